"""Many printed numbers at once."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from calibration.training.records import Array

_MOST_KNOWN: Final = 1 << 16
_MOST_DIGITS: Final = 15  # that a double holds exactly
_POINT = ord(".")
_ZERO = ord("0")
_DECIMAL = 10


class PrintedNumbers(dict[bytes, float]):
    """Reads columns of finite numbers; what was printed once is read once, in bounded memory.

    Examples
    --------
    >>> numbers = PrintedNumbers()
    >>> numbers.column([b"0.604", b"0.412"]).tolist(), numbers.column([b"9.30e-04", b"1"]).tolist()
    ([0.604, 0.412], [0.00093, 1.0])
    """

    def __missing__(self, text: bytes) -> float:
        """Return a number that was not printed yet; ValueError where it is none."""
        if len(self) >= _MOST_KNOWN:
            self.clear()
        number = self[text] = float(text)
        return number

    def column(self, texts: Sequence[bytes]) -> Array:
        """Return printed numbers, each the double that is nearest to what was printed.

        Parameters
        ----------
        texts : sequence of bytes
            At least one; digits, points, signs and exponents.

        Returns
        -------
        array of float
            Of the same length.

        Raises
        ------
        ValueError
            Where one is no number.
        """
        numbers = _of_one_form(texts)
        if numbers is None:
            numbers = np.fromiter(map(self.__getitem__, texts), np.float64, len(texts))
        return numbers


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
