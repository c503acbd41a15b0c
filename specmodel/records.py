"""One way from dataclasses to plain JSON and back, for every file that the project writes.

A record holds a field by its name; one that holds nothing by default and nothing now is left out. Arrays
and tuples are lists, NaN is null, and where a field may hold several dataclasses ``kind`` says which.
"""

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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        record = {_TAG: type(value).__name__} if len(_dataclasses_of(hint)) > 1 else {}
        for name, (inner, default) in _fields(type(value)).items():
            held = to_record(getattr(value, name), inner)
            if held or default is dataclasses.MISSING or held != to_record(default, inner):
                record[name] = held
        return record
    if isinstance(value, Mapping):
        held_type = get_args(hint)[1] if get_origin(hint) in {dict, Mapping} else Any
        return {key: to_record(each, held_type) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_record(each, _item(hint, index)) for index, each in enumerate(value)]
    return value


def from_record(kind: type[T], record: Any) -> T:
    """A dataclass from plain JSON; a value of another type is refused by its place, `posterior.mean[3]`.

    >>> from specmodel.question import Configuration
    >>> from_record(Configuration, {"num_steps": "3"})
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: num_steps must be a number, got '3'
    """
    if not isinstance(record, Mapping):
        raise ParameterError("the record", repr(record)[:40], _words(kind))
    found: T = _built(kind, record)
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


@cache
def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


@cache
def _dataclasses_of(hint: Any) -> dict[str, Any]:
    """Dataclasses among the types that a value may have, by name."""
    kinds: tuple[Any, ...] = tuple(filter(dataclasses.is_dataclass, _alternatives(hint)))
    return {kind.__name__: kind for kind in kinds}


def _item(hint: Any, index: int) -> Any:
    """Type of an item of a tuple."""
    for each in _alternatives(hint):
        inner = get_args(each)
        if get_origin(each) is tuple and inner:
            return inner[0] if inner[-1] is Ellipsis else inner[index]
    return Any


# --- from JSON ---


def _value(hint: Any, value: Any) -> Any:
    """A value of a type from JSON."""
    if hint is float:
        return _number(value)
    if hint is Any or type(value) is hint:
        return value
    origin = get_origin(hint)
    if origin in {Union, UnionType}:
        return _one_of(hint, value)
    if dataclasses.is_dataclass(hint):
        return _built(hint, value)
    if origin is np.ndarray:
        return _array(value)
    if origin is tuple and isinstance(value, list):
        inner = get_args(hint)
        if inner[-1] is not Ellipsis and len(inner) != len(value):
            raise _refusal(value, hint)
        return tuple(_at(f"[{index}]", _item(hint, index), it) for index, it in enumerate(value))
    if isinstance(value, Mapping) and origin in {dict, Mapping}:
        inner = get_args(hint)[1]
        return {key: _at(str(key)[:40], inner, each) for key, each in value.items()}
    if origin is Literal and isinstance(value, str) and value in get_args(hint):
        return value
    raise _refusal(value, hint)


def _number(value: Any) -> float:
    """A finite number; NaN for null."""
    if value is None:
        return math.nan
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            pass
    raise _refusal(value, float)


def _one_of(hint: Any, value: Any) -> Any:
    """A value of one of several types."""
    types = _alternatives(hint)
    if NoneType in types:
        if value is None:
            return None
        if len(types) == 2:
            return _value(types[types[0] is NoneType], value)
    kinds = _dataclasses_of(hint)
    if len(kinds) > 1 and isinstance(value, Mapping):
        tag = value.get(_TAG)
        if tag not in [*kinds]:
            raise ParameterError(_TAG, repr(tag)[:40], f"one of {', '.join(kinds)}")
        return _built(kinds[tag], value)
    for each in types:
        if each is NoneType:
            continue
        try:
            return _value(each, value)
        except ParameterError:
            continue
    raise _refusal(value, hint)


def _built(kind: Any, value: Any) -> Any:
    """A dataclass from its fields, none unknown and none missing; its own checks name the place, too."""
    if not isinstance(value, Mapping):
        raise _refusal(value, kind)
    fields = _fields(kind)
    given = {}
    for name, each in value.items():
        if name in fields:
            given[name] = _at(name, fields[name][0], each)
        elif name != _TAG or each != kind.__name__:
            raise ParameterError(str(name)[:40], "no such field", f"one of {', '.join(fields)}")
    for name, (_, default) in fields.items():
        if default is dataclasses.MISSING and name not in given:
            raise ParameterError(name, "nothing", "given")
    return kind(**given)


def _array(value: Any) -> Any:
    """Numbers of any depth as an array; item by item where not all are plain, to name the wrong one."""
    if not isinstance(value, list):
        raise _refusal(value, np.ndarray)
    try:
        array = np.array(value)
    except ValueError:  # rows of several lengths
        array = np.array(None)
    if array.dtype.kind in "iuf" and np.all(np.isfinite(array)):
        return array.astype(np.float64)
    items = [
        _at(f"[{index}]", np.ndarray[Any, Any] if isinstance(each, list) else float, each)
        for index, each in enumerate(value)
    ]
    try:
        return np.array(items, dtype=np.float64)
    except ValueError:
        raise ParameterError("", "rows of several lengths", "an array of numbers") from None


def _at(place: str, hint: Any, value: Any) -> Any:
    """A value, or a refusal that names its place."""
    try:
        return _value(hint, value)
    except ParameterError as error:
        dot = "." if error.name and not error.name.startswith("[") else ""
        where = f"{place}{dot}{error.name}"
        raise ParameterError(where, error.value, error.allowed, error.hint) from None


def _refusal(value: Any, hint: Any) -> ParameterError:
    return ParameterError("", repr(value)[:40], _words(hint))


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
