"""Fields of a ``config.json``, refused with one line where they are missing or impossible."""

from collections.abc import Mapping
from typing import Any, Final

from specmodel.architecture.counts import LARGEST_COUNT
from specmodel.errors import FormatError

_SHOWN = 60
MOST_ENTRIES: Final = 10_000
"""Entries of a list with one for each layer (judgement)."""


class ConfigFields:
    """Fields of a configuration by name, each read under the first of its names that is there.

    Parameters
    ----------
    values : mapping
        The parsed object.
    path : str
        The file, for messages.
    architecture : str
        Class or model type, for messages.
    """

    __slots__ = ("architecture", "path", "values")

    def __init__(self, values: Mapping[str, Any], path: str, architecture: str) -> None:
        self.values, self.path, self.architecture = values, path, architecture

    def count(self, *names: str, default: int | None = None, lowest: int = 1) -> int:
        """Whole number under one of the names; refused where it is missing without a default."""
        value = self._found(names)
        if value is None:
            if default is None:
                raise self.missing(names[0])
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(names[0], value, "a whole number")
        if not lowest <= value <= LARGEST_COUNT:
            raise self.wrong(names[0], value, f"from {lowest} to {LARGEST_COUNT}")
        return value

    def optional_count(self, *names: str) -> int | None:
        """Whole number of at least 1, or None where it is missing, null or 0."""
        value = self._found(names)
        return self.count(*names) if value is not None and value != 0 else None

    def flag(self, *names: str, default: bool = False) -> bool:
        """Truth value under one of the names."""
        value = self._found(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(names[0], value, "true or false")
        return value

    def entries(self, name: str, kind: type) -> list[Any] | None:
        """List of that kind, or None where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_ENTRIES:
            raise self.wrong(name, value, f"a list of at most {MOST_ENTRIES}")
        if any(not isinstance(each, kind) or isinstance(each, bool) for each in value):
            raise self.wrong(name, value, f"a list of {kind.__name__}")
        return value

    def layer_entries(self, name: str, kind: type, num_layers: int) -> list[Any] | None:
        """List with an entry for each layer, or None; longer ones (with MTP layers) are cut."""
        value = self.entries(name, kind)
        if value is not None and len(value) < num_layers:
            raise self.wrong(name, f"{len(value)} entries", f"one for each of {num_layers} layers")
        return None if value is None else value[:num_layers]

    def missing(self, name: str) -> FormatError:
        """Error for a field that the architecture needs."""
        reason = (
            f"{name} is missing, which {self.architecture} needs; "
            "take the config.json of the model's own repository"
        )
        return FormatError(self.path, reason, code="missing_field")

    def wrong(self, name: str, value: object, allowed: str) -> FormatError:
        """Error for a field that is there and impossible."""
        shown = ascii(value) if not isinstance(value, str) else ascii(value)[1:-1]
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        return FormatError(self.path, f"{name} must be {allowed}, got {shown}", code="bad_field")

    def _found(self, names: tuple[str, ...]) -> Any:
        return next(
            (self.values[name] for name in names if self.values.get(name) is not None), None
        )
