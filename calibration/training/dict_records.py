"""Python dictionaries in training logs, printed by ``repr``: pairs of a key and numbers.

They look like JSON but are not: quotes are single, ``nan`` and ``inf`` stand bare, lists and numbers
with a type around them (``np.float64(0.5)``) occur.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from calibration.training.number_text import NUMBER, half_unit, printed_number
from calibration.training.records import PRINTED_NAN

# Most depths that are read; no drafter has as many.
MOST_DEPTHS: Final = 64

# What a dictionary holds: numbers and lists of numbers by key; other values are left out.
Numbers = Mapping[str, float | tuple[float, ...]]

_OPEN = re.compile(r"\{\s*['\"]")
_NESTED = re.compile(r"['\"]\s{0,4}:\s{0,4}(\{[^{}]*\})")
_DEEPEST = 8
_TYPED = r"(?:[A-Za-z_][\w.]{0,30}\()?['\"]?"  # np.float64(0.5), tensor(0.5, '0.5'
_PAIR = re.compile(
    rf"['\"]([^'\"{{}}\[\]]{{1,120}})['\"]\s{{0,9}}:\s{{0,9}}"
    rf"(?:[\[(]([^\[\]{{}}]*)\]|{_TYPED}({NUMBER})(?=[^\w.+-]|$))",
    re.ASCII | re.IGNORECASE,
)
_ITEM = re.compile(rf"(?<![\w.])(?:{NUMBER})(?![\w.])", re.ASCII | re.IGNORECASE)


def dictionaries(text: str) -> Iterator[tuple[int, str]]:
    """Yield where the dictionaries of a line begin, and their text without the braces."""
    if text.count("{") > 1:
        text, inner = _without_nested(text)
        yield from inner
    place = 0
    while (end := text.find("}", place)) >= 0:
        start = text.rfind("{", place, end)
        if start >= 0:
            yield start, text[start + 1 : end]
        place = end + 1


def has_open_dictionary(text: str, start: int = 0) -> bool:
    """Return whether a dictionary of a line has no closing brace."""
    text, _ = _without_nested(text)
    found = _OPEN.search(text, start)
    while found is not None:
        closing = text.find("}", found.end())
        following = _OPEN.search(text, found.end())
        if closing < 0 or (following is not None and following.start() < closing):
            return True
        found = following
    return False


def numbers_of(body: str) -> Numbers:
    """Return the numbers of a dictionary."""
    try:
        found = _JSON.decode("{" + body.replace("'", '"') + "}")
    except (ValueError, RecursionError):
        return _numbers_by_pattern(body)
    for value in found.values():
        if type(value) is not float:
            return _plain_numbers(found)
    if PRINTED_NAN in found.values() or -PRINTED_NAN in found.values():
        return _plain_numbers(found)
    return found  # type: ignore[no-any-return]


def number(numbers: Numbers, *keys: str) -> float | None:
    """Return the first number that stands under one of some keys."""
    for key in keys:
        value = numbers.get(key)
        if isinstance(value, float):
            return value
    return None


def by_depth(numbers: Numbers, pattern: str, first: int = 0) -> tuple[float, ...]:
    """Return what stands under keys that count depths, up to the first that lacks."""
    values: list[float] = []
    while len(values) < MOST_DEPTHS:
        value = numbers.get(pattern.format(first + len(values)))
        if not isinstance(value, float):
            break
        values.append(value)
    return tuple(values)


def finest(values: Sequence[float]) -> float | None:
    """Return half a unit of the last digit of the finest of some numbers that `repr` printed.

    ``repr`` leaves zeros at the end out, so one number says nothing about how it was rounded.
    """
    halves = (half_unit(repr(value)) for value in values if value % 1.0)
    return min((half for half in halves if half is not None), default=None)


def list_numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of the text of a list, at most `MOST_DEPTHS`."""
    values: list[float] = []
    for found in _ITEM.finditer(text):
        value = printed_number(found[0])
        if value is not None:
            values.append(value)
        if len(values) == MOST_DEPTHS:
            break
    return tuple(values)


def _without_nested(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a line with blanks in the place of dictionaries that are values, and these by place."""
    inner: list[tuple[int, str]] = []
    for _ in range(_DEEPEST):
        found = [(one.start(1), one.end(1)) for one in _NESTED.finditer(text)]
        if not found:
            break
        inner += [(start, text[start + 1 : end - 1]) for start, end in found]
        pieces, done = [], 0
        for start, end in found:
            pieces += [text[done:start], "''".ljust(end - start)]  # all places stay what they are
            done = end
        text = "".join(pieces) + text[done:]
    return text, inner


def _numbers_by_pattern(body: str) -> Numbers:
    """Return the numbers of what is no JSON."""
    numbers: dict[str, float | tuple[float, ...]] = {}
    for key, items, scalar in _PAIR.findall(body):
        value = printed_number(scalar) if scalar else list_numbers(items)
        if value is not None:
            numbers[key] = value
    return numbers


def _plain_numbers(found: Mapping[str, object]) -> Numbers:
    """Return numbers and lists of numbers of what JSON read."""
    numbers: dict[str, float | tuple[float, ...]] = {}
    for key, value in found.items():
        if isinstance(value, list):
            items = tuple(
                n for n in (_plain_number(v) for v in value[:MOST_DEPTHS]) if n is not None
            )
            numbers[key] = items
        else:
            plain = _plain_number(value)
            if plain is not None:
                numbers[key] = plain
    return numbers


def _plain_number(value: object) -> float | None:
    """Return a number that JSON read, or that stands in quotes."""
    if isinstance(value, str):
        return printed_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return PRINTED_NAN
    return plain if abs(plain) < PRINTED_NAN else PRINTED_NAN


def _not_finite(_name: str) -> float:
    """Return what stands for NaN and the infinities of JSON."""
    return PRINTED_NAN


_JSON: Final = json.JSONDecoder(parse_constant=_not_finite)
