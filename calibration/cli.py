"""The `specmodel` command: a list of commands, each loaded when it is called."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from specmodel.command import Command
from specmodel.errors import SpecModelError
from specmodel.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TRACEBACK = "SPECMODEL_TRACEBACK"
"""Environment variable; 1 shows where an unexpected error comes from."""

ENTRY_POINTS = "specmodel.commands"
"""Entry-point group through which other packages bring commands, which this one never imports."""

_EXIT_BAD_DATA, _EXIT_BAD_USAGE = 1, 2
_LONGEST_HELP = 66


COMMANDS = (
    Command("fit", "Fit one system's benchmark points.", "calibration.commands.fit:command"),
    Command(
        "predict",
        "Speed-up and tokens/s at an accept length, with an interval.",
        "calibration.commands.predict:command",
    ),
    Command("compare", "Which of two is faster, and why.", "calibration.commands.compare:command"),
    Command(
        "evaluate",
        "How wrong is the model on unseen points.",
        "calibration.commands.evaluate:command",
    ),
    Command("ingest", "Read engine logs and benchmark files.", "calibration.commands.other:ingest"),
    Command(
        "train",
        "What a drafter in training is worth in serving.",
        "calibration.commands.train:command",
    ),
    Command("whatif", "Price a rig from names, and changes.", "calibration.commands.other:whatif"),
    Command("allreduce", "Fit measured all-reduces.", "calibration.commands.other:allreduce"),
    Command("data", "List the packaged systems.", "calibration.commands.other:data"),
    Command("examples", "Write the files of the README.", "calibration.commands.other:examples"),
)


def brought_commands(name: str = "") -> dict[str, click.Command]:
    """Return commands that other packages bring, by name; all of them, or the one of a name.

    The metadata of what is installed is read only for a name that the list lacks, and for the help.
    One that cannot be loaded becomes a command that says why, so that the others still work.
    """
    from importlib.metadata import entry_points

    found = (
        entry_points(group=ENTRY_POINTS, name=name) if name else entry_points(group=ENTRY_POINTS)
    )
    return {entry.name: _loaded(entry) for entry in found}


def _loaded(entry: "EntryPoint") -> click.Command:
    """The command of an entry point."""
    try:
        command = entry.load()
    except Exception as error:  # noqa: BLE001 - another package may fail in any way
        return _broken(entry.name, f"{type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _broken(entry.name, f"{entry.value} is no command")
    return command


def _broken(name: str, reason: str) -> click.Command:
    """A command that only says why it cannot be loaded."""

    def refuse() -> NoReturn:
        raise click.ClickException(f"the command {name} cannot be loaded: {reason}")

    return click.Command(
        name,
        callback=refuse,
        help="Cannot be loaded.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


class CommandList(click.Group):
    """A group that loads a command only when it is called, and says every error in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name: those of the list, then what other packages bring."""
        del ctx
        return list(dict.fromkeys([*(one.name for one in COMMANDS), *brought_commands()]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, loaded; None where there is none."""
        del ctx
        listed = {one.name: one for one in COMMANDS}.get(cmd_name)
        found: click.Command | None = (
            brought_commands(cmd_name).get(cmd_name) if listed is None else listed.load()
        )
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without loading a command of it."""
        del ctx
        brought = {
            name: command.get_short_help_str(_LONGEST_HELP)
            for name, command in brought_commands().items()
        }
        lines = brought | {one.name: one.help_line for one in COMMANDS}
        own = [one.name for one in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, lines[name]) for name in dict.fromkeys([*own, *brought])])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; the one place where an error becomes one plain line."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        for stream in (sys.stdout, sys.stderr):  # what their encoding lacks is written, not refused
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(_EXIT_BAD_USAGE)
        except SystemExit as leaving:
            # No command leaves by itself: click and rich do where a reader of the output went away, which
            # is no error.
            if leaving.code != 1:
                raise
            discard(sys.stdout)
            status = 0
        except Exception as error:
            message, status = _told(error)
            if not message:
                if os.environ.get(TRACEBACK) == "1":
                    raise
                message = (
                    f"unexpected {type(error).__name__}: {error}; this is a defect of specmodel: "
                    f"please report it with what {TRACEBACK}=1 shows"
                )
            _fail(message, status)
        sys.exit(status if isinstance(status, int) else 0)


def _told(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the status; nothing of one that is unexpected."""
    match error:
        case click.UsageError():
            hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
            return error.format_message().rstrip(".") + hint, _EXIT_BAD_USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case click.Abort():
            return "interrupted", _EXIT_BAD_DATA
        case SpecModelError():
            return str(error), error.exit_code
        case OSError(filename=None):  # files have names
            discard(sys.stdout)
            return f"the output cannot be written: {error.strerror or error}", _EXIT_BAD_DATA
    return "", _EXIT_BAD_DATA


def _fail(message: str, status: int) -> NoReturn:
    """Print an error as one line and leave."""
    try:
        click.echo("Error: " + " ".join(message.split()), err=True)
    except OSError:  # nobody is there to be told
        discard(sys.stderr)
    sys.exit(status)


def discard(stream: TextIO | None) -> None:
    """Send what is still to be written nowhere, so that the interpreter leaves in peace."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = stream.fileno()  # type: ignore[union-attr]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


@click.group(cls=CommandList, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specmodel")
def main() -> None:
    """What speed-up does speculative decoding give, how sure is that, and what to do next.

    \b
    specmodel fit bench.csv
    specmodel predict --accept 2.75
    """
