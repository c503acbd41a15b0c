"""Many printed numbers at once."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.training.records import Array

_MOST_KNOWN: Final = 1 << 16
_FEWEST_AT_ONCE: Final = 32  # below it, one by one is faster
_MOST_DIGITS: Final = 15  # that a double holds exactly
_POINT = ord(".")
_ZERO = ord("0")
_COMMA = ord(",")
_DECIMAL = 10
_POWERS = np.array([float(_DECIMAL**power) for power in range(_MOST_DIGITS + 2)])


class PrintedNumbers(dict[bytes, float]):
    """Reads columns of finite numbers; what was printed once is read once, in bounded memory."""

    def __missing__(self, text: bytes) -> float:
        """Return a number that was not printed yet; ValueError where it is none."""
        if len(self) >= _MOST_KNOWN:
            self.clear()
        number = self[text] = float(text)
        return number

    def __deepcopy__(self, _memo: object) -> "PrintedNumbers":
        """Return itself: what is known of a text holds everywhere."""
        return self

    def column(self, texts: Sequence[bytes]) -> Array:
        """Return printed numbers, each the double that is nearest to what was printed."""
        numbers = _of_one_form(texts) if len(texts) >= _FEWEST_AT_ONCE else None
        if numbers is None:
            numbers = np.fromiter(map(self.__getitem__, texts), np.float64, len(texts))
        return numbers

    def table(self, rows: Sequence[Sequence[bytes]]) -> Array:
        """Return printed numbers of different widths, shape (columns, rows)."""
        texts = list(chain.from_iterable(rows))
        numbers, others = _of_many_forms(texts)
        for place in others.tolist():
            numbers[place] = self[texts[place]]
        return np.ascontiguousarray(numbers.reshape(len(rows), -1).T)


def _of_many_forms(texts: Sequence[bytes]) -> tuple[Array, NDArray[np.intp]]:
    """Return numbers that may have a point, and which of them are not plain: signs, exponents."""
    data = np.frombuffer(b",".join(texts) + b",", np.uint8)
    ends = np.flatnonzero(data == _COMMA)
    place = np.append(0, ends[:-1] + 1)
    whole = np.zeros(len(ends))
    digits, points, decimals = (np.zeros(len(ends), np.int16) for _ in range(3))
    for _ in range(min(int((ends - place).max()), _MOST_DIGITS + 1)):
        character = data[place]
        digit = character - np.uint8(_ZERO)  # what is below zero becomes large
        is_digit = digit < _DECIMAL
        whole = np.where(is_digit, whole * _DECIMAL + digit, whole)
        digits += is_digit
        decimals += is_digit & (points > 0)
        points += character == _POINT
        place = np.minimum(place + 1, ends)
    is_plain = (digits > 0) & (digits <= _MOST_DIGITS) & (points <= 1)
    is_plain &= digits + points == np.diff(ends, prepend=-1) - 1
    return whole / _POWERS[decimals], np.flatnonzero(~is_plain)


def _of_one_form(texts: Sequence[bytes]) -> Array | None:
    """Return numbers of which each has as many digits before and behind the point, else None.

    A whole number of up to 15 digits divided by a power of ten is the double nearest to the decimal.
    """
    width = len(texts[0])
    joined = b",".join(texts) + b","  # a comma where a digit is expected shows another width
    if len(joined) != (width + 1) * len(texts):
        return None
    point = texts[0].find(b".")
    characters = np.frombuffer(joined, np.uint8).reshape(len(texts), width + 1).T
    places = [place for place in range(width) if place != point]
    if not 0 < len(places) <= _MOST_DIGITS:
        return None
    if point >= 0 and (characters[point] != _POINT).any():
        return None
    whole = np.zeros(len(texts))
    for place in places:
        digit = characters[place] - np.uint8(_ZERO)  # what is below zero becomes large
        if (digit >= _DECIMAL).any():
            return None
        whole = whole * _DECIMAL + digit
    return whole / float(_DECIMAL ** (width - 1 - point)) if point >= 0 else whole
