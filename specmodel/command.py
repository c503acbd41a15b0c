"""A line of a list of commands, as `calibration` and `drafter` have them for one command line."""

from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """What a user types, what it does, and where it is defined; loaded when it is called."""

    name: str
    help_line: str
    place: str  # module:attribute

    def load(self) -> Any:
        """The click command itself."""
        module, _, attribute = self.place.partition(":")
        return getattr(import_module(module), attribute)
