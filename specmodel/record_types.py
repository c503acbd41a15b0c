"""Whether values from JSON are of the types that a dataclass declares: a record is checked once, on entry."""

import dataclasses
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from specmodel.errors import ParameterError


def check_types(kind: type, values: Mapping[str, Any]) -> None:
    r"""Refuse values that are not of the types of a dataclass's fields.

    .. math:: v_i \in T_i

    Parameters
    ----------
    kind : type
        A dataclass.
    values : mapping
        By the name of a field; some of its fields.

    Raises
    ------
    ParameterError
        With the name of the first value that is of another type or of no field.

    Notes
    -----
    Knows plain types, unions, literals, tuples and dataclasses. A number is finite; a
    whole number counts as a float, and True as no number.

    Examples
    --------
    >>> from specmodel.question import Configuration
    >>> check_types(Configuration, {"num_steps": 3, "topk": None})
    >>> check_types(Configuration, {"num_steps": "3"})
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: num_steps must be of type float or None, got '3'
    """
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise ParameterError(
                str(name)[:40], "no such field", f"one of {', '.join(sorted(known))}"
            )
        if not _is_of(value, hints[name]):
            raise ParameterError(name, repr(value)[:40], f"of type {_words(hints[name])}")


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(_is_of(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple and isinstance(value, tuple):
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(kinds) and all(map(_is_of, value, kinds))
    if hint in {int, float} and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return origin is None and isinstance(value, hint)


def _words(hint: Any) -> str:
    """A type for a person to read."""
    if get_origin(hint) in {Union, UnionType}:
        return " or ".join(_words(each) for each in get_args(hint))
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
