"""The command group `specmodel drafter`, which joins the command line as an entry point.

Importing it loads click and nothing else; a command's module is loaded when it is called, torch only by
the commands that need it.
"""

import sys
from typing import Any

import click

from drafter.extra import EXTRA
from specmodel.command import Command
from specmodel.errors import MissingExtraError, SpecModelError

COMMANDS = (
    Command(
        "inspect",
        "What a checkpoint is, and the floor of its draft step.",
        "drafter.commands.inspect:inspect",
    ),
    Command(
        "floor", "Floors of public draft models on usual GPUs.", "drafter.commands.inspect:floor"
    ),
    Command(
        "check",
        "Kernels of this machine against the fp64 reference.",
        "drafter.commands.check:command",
    ),
    Command(
        "time", "Times of a draft step on this GPU, as a record.", "drafter.commands.time:command"
    ),
    Command(
        "tune",
        "Tiles that are fastest on this GPU, into the table of launches.",
        "drafter.commands.tune:command",
    ),
)

_EXTRA_PACKAGES = ("torch", "triton", "safetensors")


class DrafterCommands(click.Group):
    """A group that loads a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return [one.name for one in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, loaded; None where there is none."""
        del ctx
        found: click.Command | None = next(
            (one.load() for one in COMMANDS if one.name == cmd_name), None
        )
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(one.name, one.help_line) for one in COMMANDS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a package of the extra that is missing becomes one line."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _EXTRA_PACKAGES:
                raise
            name = ctx.invoked_subcommand or "drafter"
            raise MissingExtraError(f"specmodel drafter {name}", [missing], EXTRA) from None


@click.group(cls=DrafterCommands, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """EAGLE-3 draft models: what they are and how fast a step can be.

    \b
    specmodel drafter inspect path/to/checkpoint
    specmodel drafter floor --gpu H100
    """


if __name__ == "__main__":  # from a tree that is not installed: python -m drafter.cli
    try:
        command(prog_name="specmodel drafter")
    except SpecModelError as error:
        sys.exit(f"Error: {error}")
