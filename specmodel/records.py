"""One way from dataclasses to plain JSON and back, for every file that the project writes.

A record holds a field by its name; one that holds nothing by default and nothing now is left out. Arrays
and tuples are lists, NaN is null, and where a field may hold several dataclasses ``kind`` says which.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from specmodel.errors import ParameterError

T = TypeVar("T")

_TAG = "kind"


def to_record(value: Any, hint: Any = Any) -> Any:
    """Plain JSON of a dataclass, as `from_record` reads it; `hint` is the type that it may have.

    >>> from specmodel.question import Configuration
    >>> to_record(Configuration(num_steps=3))
    {'num_steps': 3, 'topk': 1.0, 'num_draft_tokens': 4.0}
    """
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, np.ndarray):
        if np.isnan(value).any():
            value = value.astype(object)
            value[value != value] = None  # noqa: PLR0124 - NaN
        return value.tolist()
    origin = get_origin(hint)
    types = get_args(hint) if origin in {Union, UnionType} else (hint,)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tagged = sum(map(dataclasses.is_dataclass, types)) > 1
        record = {_TAG: type(value).__name__} if tagged else {}
        for name, (inner, default) in _fields(type(value)).items():
            held = to_record(getattr(value, name), inner)
            if held or default is dataclasses.MISSING or held != to_record(default, inner):
                record[name] = held
        return record
    if isinstance(value, Mapping):
        held_type = get_args(hint)[1] if origin in {dict, Mapping} else Any
        return {key: to_record(each, held_type) for key, each in value.items()}
    if isinstance(value, tuple | list):
        items = next((get_args(one) for one in types if get_origin(one) is tuple), (Any, ...))
        each_type = items[:1] * len(value) if items[-1] is Ellipsis else items
        return [to_record(one, inner) for one, inner in zip(value, each_type, strict=True)]
    return value


def from_record(kind: type[T], record: Any) -> T:
    """A dataclass from plain JSON; a value of another type is refused by its place, `posterior.mean[3]`.

    >>> from specmodel.question import Configuration
    >>> from_record(Configuration, {"num_steps": "3"})
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: num_steps must be a number, got '3'
    """
    found: T = _value(kind, record, "")
    return found


@cache
def _fields(kind: type) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field that makes a dataclass."""
    hints = get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default_factory()
            if field.default_factory is not dataclasses.MISSING
            else field.default,
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


def _value(hint: Any, value: Any, place: str) -> Any:
    """A value of a type from JSON; a refusal names its place."""
    if hint is Any or (type(value) is hint and hint is not float):
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if hint is float:
        if value is None or (type(value) is float and math.isfinite(value)):
            return math.nan if value is None else value
        if type(value) is int:
            with contextlib.suppress(OverflowError):  # a whole number of hundreds of digits
                return float(value)
    elif origin in {Union, UnionType}:
        types = [each for each in inner if each is not NoneType]
        records: tuple[Any, ...] = tuple(filter(dataclasses.is_dataclass, types))
        kinds = {kind.__name__: kind for kind in records}
        if value is None and len(types) < len(inner):
            return None
        if len(kinds) > 1 and isinstance(value, Mapping):
            tag = value.get(_TAG)
            if tag not in [*kinds]:
                raise ParameterError(
                    f"{place}.{_TAG}", repr(tag)[:40], f"one of {', '.join(kinds)}"
                )
            return _value(kinds[tag], value, place)
        if len(types) == 1:
            return _value(types[0], value, place)
        for each in types:
            with contextlib.suppress(ParameterError):
                return _value(each, value, place)
    elif dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        kind: Any = hint
        fields, before, given = _fields(kind), f"{place}." if place else "", {}
        for name, each in value.items():
            if name in fields:
                given[name] = _value(fields[name][0], each, before + name)
            elif name != _TAG or each != kind.__name__:
                known = f"one of {', '.join(fields)}"
                raise ParameterError(before + str(name)[:40], "no such field", known)
        for name, (_, default) in fields.items():
            if default is dataclasses.MISSING and name not in given:
                raise ParameterError(before + name, "nothing", "given")
        try:
            return kind(**given)
        except ParameterError as error:  # its own checks name the place, too
            raise ParameterError(
                before + error.name, error.value, error.allowed, error.hint
            ) from None
    elif origin is np.ndarray and isinstance(value, list):
        try:
            array = np.array(value)
        except ValueError:  # rows of several lengths
            array = np.array(None)
        if array.dtype.kind in "iuf" and np.all(np.isfinite(array)):
            return array.astype(np.float64)
        items = [  # one by one, to name the wrong one
            _value(hint if isinstance(each, list) else float, each, f"{place}[{index}]")
            for index, each in enumerate(value)
        ]
        try:
            return np.array(items, dtype=np.float64)
        except ValueError:
            several = "rows of several lengths"
            raise ParameterError(place, several, "an array of numbers") from None
    elif origin is tuple and isinstance(value, list):
        types = [*inner[:1]] * len(value) if inner[-1] is Ellipsis else [*inner]
        if len(types) == len(value):
            pairs = enumerate(zip(types, value, strict=True))
            return tuple(_value(one, each, f"{place}[{index}]") for index, (one, each) in pairs)
    elif origin in {dict, Mapping} and isinstance(value, Mapping):
        before = f"{place}." if place else ""
        return {
            key: _value(inner[1], each, f"{before}{str(key)[:40]}") for key, each in value.items()
        }
    elif origin is Literal and isinstance(value, str) and value in inner:
        return value
    raise ParameterError(place or "the record", repr(value)[:40], _words(hint))


def _words(hint: Any) -> str:
    """A type for a person to read."""
    if get_origin(hint) in {Union, UnionType}:
        return " or ".join(_words(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    named = {
        NoneType: "None",
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        str: "a text",
        tuple: "a list",
        np.ndarray: "an array of numbers",
    }
    return named.get(get_origin(hint) or hint, "an object with fields")
