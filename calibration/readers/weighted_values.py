"""Medians of very many numbers in bounded memory: values of many cells, each with its count."""

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 36
_EXPONENT_BITS = 7
_VALUE_BITS = _MANTISSA_BITS + _EXPONENT_BITS
_DROPPED_BITS = 52 - _MANTISSA_BITS
_LEAST, _MOST = 2.0**-60, 2.0**60
_EXPONENT_ZERO = (1023 - 64) << _MANTISSA_BITS

# Above how many different values of a cell they are rounded, and to how many binary digits.
_STAGES = (
    *((32768, 17), (8192, 17), (4096, 16), (2048, 15), (512, 13), (64, 11), (8, 9)),
    *((0, 7), (0, 5), (0, 3), (0, 1)),
)


class WeightedValues:
    """Positive numbers, sorted into cells, with how often each occurred.

    Cells are numbered from 0 to 2^20 - 1. A cell is exact (to 11 digits) up to 32768 different
    values; beyond it they are rounded to 4e-6 of their size, and step by step more coarsely when
    all cells together hold too many: 50 cells that each spread over 15 % stay within 8e-6.
    """

    def __init__(self, most: int = 3 << 18) -> None:
        self._most = most
        self._codes = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, cells: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Add values, each to its cell."""
        codes = np.sort((cells << _VALUE_BITS) | _value_codes(values))
        codes, counts = _merged(codes, np.ones(len(codes), dtype=np.int32))
        places = np.searchsorted(self._codes, codes)
        known = places < len(self._codes)
        known[known] = self._codes[places[known]] == codes[known]
        self._counts[places[known]] += counts[known]
        self._codes = np.insert(self._codes, places[~known], codes[~known])
        self._counts = np.insert(self._counts, places[~known], counts[~known])
        self._round_off()

    def count(self, cells: list[int]) -> int:
        """Return how many values some cells hold."""
        return int(sum(self._counts[part].sum() for part in map(self._part, cells)))

    def median(self, cells: list[int]) -> float | None:
        """Return the median of the values in some cells, None where there are none.

        Of an even number it is the mean of the middle two.
        """
        return self._middle(cells, 2)

    def lower_quartile(self, cells: list[int]) -> float | None:
        """Return the value that a quarter of the values lie below, None where there are none."""
        return self._middle(cells, 4)

    def _middle(self, cells: list[int], share: int) -> float | None:
        """Return the value at a share of the way up; the mean of two at half the way."""
        parts = [self._part(cell) for cell in cells]
        codes = np.concatenate([self._codes[part] for part in parts] or [self._codes[:0]])
        counts = np.concatenate([self._counts[part] for part in parts] or [self._counts[:0]])
        if not len(codes):
            return None
        values = _values(codes)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(counts[order], dtype=np.int64)
        total = int(below[-1])
        low = values[order[np.searchsorted(below, (total - 1) // share, side="right")]]
        if share != 2:
            return _as_written(low)
        high = values[order[np.searchsorted(below, total // 2, side="right")]]
        return _as_written((low + high) / 2)

    def _part(self, cell: int) -> slice:
        """Return where the values of a cell stand."""
        edges = np.array([cell << _VALUE_BITS, (cell + 1) << _VALUE_BITS], dtype=np.uint64)
        low, high = np.searchsorted(self._codes.view(np.uint64), edges)
        return slice(int(low), int(high))

    def _round_off(self) -> None:
        """Round values until no cell and not the whole is too large."""
        for stage, (most, binary_digits) in enumerate(_STAGES):
            if stage and len(self._codes) <= self._most:
                return
            edges = self._edges()
            sizes = np.diff(edges)
            if sizes.max(initial=0) <= most:
                continue
            half = 1 << (_MANTISSA_BITS - binary_digits - 1)
            for cell in np.flatnonzero(sizes > most).tolist():
                part = self._codes[edges[cell] : edges[cell + 1]]
                part += half
                part &= ~(2 * half - 1)
            self._codes, self._counts = _merged(self._codes, self._counts)

    def _edges(self) -> NDArray[np.int64]:
        """Return where each cell begins, and where the last one ends."""
        most = int(self._codes[-1] >> _VALUE_BITS) if len(self._codes) else -1
        inner = np.searchsorted(self._codes, np.arange(1, most + 1) << _VALUE_BITS)
        return np.concatenate(([0], inner, [len(self._codes)]))


def _value_codes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers in the order of the values: their exponents and first binary digits."""
    bits = np.clip(values, _LEAST, _MOST).view(np.int64)
    rounded: NDArray[np.int64] = (bits + (1 << (_DROPPED_BITS - 1))) >> _DROPPED_BITS
    return rounded - _EXPONENT_ZERO


def _values(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values that codes stand for, whatever their cell."""
    inside = (codes & ((1 << _VALUE_BITS) - 1)) + _EXPONENT_ZERO
    return (inside << _DROPPED_BITS).view(np.float64)


def _as_written(value: np.float64) -> float:
    """Return a value with the digits that its code holds, so that 2.54 comes back as 2.54."""
    return float(f"{value:.11g}")


def _merged(
    codes: NDArray[np.int64], counts: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return sorted codes without repetitions, and how often each occurred."""
    if not len(codes):
        return codes, counts
    new = np.ones(len(codes), dtype=np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    return codes[starts], np.add.reduceat(counts, starts, dtype=np.int32)
