"""Fields of a draft model's ``config.json`` that are no counts: numbers, sections, repeated keys."""

import math
from collections.abc import Mapping
from typing import Any, final

from specmodel.architecture.config_json import ConfigFields
from specmodel.errors import FormatError

_LONGEST_LIST = 1000


@final
class DraftFields(ConfigFields):
    """Fields of a configuration by name, with what draft models state besides counts.

    Parameters
    ----------
    values : mapping
        The parsed object.
    path : str
        The file, for messages.
    architecture : str
        Class or layout, for messages.

    Examples
    --------
    >>> DraftFields({"rope_theta": 500000}, "config.json", "llama").number("rope_theta")
    500000.0
    """

    __slots__ = ()

    def number(self, name: str, *, lowest: float = 0.0) -> float | None:
        """Return a finite number of at least `lowest`; None where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number >= lowest):
            raise self.wrong(name, value, f"a finite number of at least {lowest:g}")
        return number

    def text(self, *names: str) -> str | None:
        """Return the text under the first name that is there; None where there is none."""
        value = self._found(names)
        if value is not None and not isinstance(value, str):
            raise self.wrong(names[0], value, "a text")
        return value

    def section(self, name: str) -> Mapping[str, Any]:
        """Return an object inside the configuration; an empty one where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object with keys of its own")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, as ``architectures`` is; empty where it is missing."""
        entries = self.entries(name, str)
        return tuple(entries or ())

    def layer_ids(self, name: str) -> tuple[int, ...] | None:
        """Return a list of layers; None where it is missing, null or empty."""
        entries = self.entries(name, int)
        if not entries:
            return None
        if len(entries) > _LONGEST_LIST or min(entries) < 0:
            raise self.wrong(name, entries, f"at most {_LONGEST_LIST} layers, none negative")
        return tuple(entries)

    def inside(self, name: str) -> "DraftFields":
        """Return the fields of an object inside the configuration; messages name it."""
        return DraftFields(self.section(name), f"{self.path}, {name}", self.architecture)

    def refused(self, reason: str) -> FormatError:
        """Error for a configuration that is sound, but not of a draft model that is known."""
        return FormatError(self.path, reason, code="not_supported")


def agreed_flag(name: str, *stated: tuple[str, bool | None], fields: DraftFields) -> bool | None:
    r"""Truth value that several keys state; None where none does.

    .. math:: \{(\text{key}, \text{value})\} \mapsto \text{value}

    Parameters
    ----------
    name : str
        What they state, for the message.
    *stated : tuple of (str, bool or None)
        Key as a reader finds it, and what it holds.
    fields : DraftFields
        Where they stand.

    Returns
    -------
    bool or None

    Raises
    ------
    FormatError
        If two of them disagree.

    Notes
    -----
    Older files say some switches under another name, or in ``eagle_config``.

    Examples
    --------
    >>> fields = DraftFields({}, "config.json", "llama")
    >>> agreed_flag("fc_norm", ("fc_norm", None), ("use_aux_norm", True), fields=fields)
    True
    """
    present = [(key, value) for key, value in stated if value is not None]
    if len({value for _, value in present}) > 1:
        told = " and ".join(f"{key} is {str(value).lower()}" for key, value in present)
        raise fields.refused(f"{told}: they state one switch ({name}); keep one of them")
    return present[0][1] if present else None


def optional_flag(fields: DraftFields, name: str) -> bool | None:
    r"""Truth value of a key; None where it is missing or null.

    .. math:: \text{key} \mapsto \text{value}

    Parameters
    ----------
    fields : DraftFields
        Where it stands.
    name : str
        The key.

    Returns
    -------
    bool or None

    Raises
    ------
    FormatError
        If it is there and no truth value.

    Notes
    -----
    A default belongs to whoever knows the layout.

    Examples
    --------
    >>> optional_flag(DraftFields({}, "config.json", "llama"), "bias") is None
    True
    """
    return fields.flag(name) if fields.values.get(name) is not None else None
