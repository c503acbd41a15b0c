"""The `specmodel` command: a table of commands, each loaded when it is called."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from specmodel.errors import SpecModelError
from specmodel.version import __version__

TRACEBACK = "SPECMODEL_TRACEBACK"
"""Environment variable; 1 shows where an unexpected error comes from."""

_EXIT_BAD_DATA, _EXIT_BAD_USAGE = 1, 2


class ListedCommand(click.Command):
    """A line of the table of commands; the command itself stands in a module of its own.

    Parameters
    ----------
    name : str
        What the user types.
    module : str
        Where ``command`` is defined.
    help_line : str
        What it does, on one line.
    """

    def __init__(self, name: str, module: str, help_line: str) -> None:
        super().__init__(name, help=help_line)
        self.module = module

    def load(self) -> click.Command:
        """Return the command itself."""
        command: click.Command = import_module(self.module).command
        return command


_COMMANDS = (
    ListedCommand("fit", "calibration.commands.fit", "Fit one system's benchmark points."),
    ListedCommand(
        "predict",
        "calibration.commands.predict",
        "Speed-up and tokens/s at an accept length, with an interval.",
    ),
    ListedCommand(
        "evaluate", "calibration.commands.evaluate", "How wrong is the model on unseen points."
    ),
    ListedCommand("data", "calibration.commands.data", "List the packaged systems."),
)


class CommandTable(click.Group):
    """A group that loads a command only when it is called, and says every error in one line."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, loaded; None where there is none."""
        del ctx
        listed = self.commands.get(cmd_name)
        return listed.load() if isinstance(listed, ListedCommand) else listed

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.help or "") for name, command in self.commands.items()]
            )

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,  # noqa: ANN401 - settings of the context, passed on
    ) -> Any:  # noqa: ANN401 - what a command returns
        """Run the command line; the one place where an error becomes one plain line."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(_EXIT_BAD_USAGE)
        except click.UsageError as error:
            hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
            _fail(error.format_message().rstrip(".") + hint, _EXIT_BAD_USAGE)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            _fail("interrupted", _EXIT_BAD_DATA)
        except SpecModelError as error:
            _fail(str(error), getattr(error, "exit_code", _EXIT_BAD_DATA))
        except Exception as error:
            if os.environ.get(TRACEBACK) == "1":
                raise
            _fail(
                f"unexpected {type(error).__name__}: {error}; this is a defect of specmodel: please "
                f"report it with what {TRACEBACK}=1 shows",
                _EXIT_BAD_DATA,
            )
        sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> NoReturn:
    """Print an error as one line and leave."""
    click.echo("Error: " + " ".join(message.split()), err=True)
    sys.exit(status)


@click.group(
    cls=CommandTable,
    commands=list(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="specmodel")
def main() -> None:
    """What speed-up does speculative decoding give, how sure is that, and what to do next.

    \b
    specmodel fit bench.csv
    specmodel predict --accept 2.75
    """  # noqa: D301 - click wants the backspace itself
