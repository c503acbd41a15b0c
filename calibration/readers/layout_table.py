"""The layouts of log lines as columns, and the numbers of many lines taken out at once."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.sglang_line_layout import MOST_RANKS, NUMBERS, LineLayout
from calibration.readers.terminal_text import NO_DIGITS

Whole: TypeAlias = NDArray[np.int64]
Real: TypeAlias = NDArray[np.float64]

_FACTS = ("kind", "era", "graph", "speculative", "label")
_FIRST_NUMBER = len(_FACTS)
_FIRST_RANK = _FIRST_NUMBER + 4 * len(NUMBERS)
_NUM_COLUMNS = _FIRST_RANK + 2 * MOST_RANKS


class LayoutTable:
    """What is known of each layout, numbered in the order in which they came."""

    def __init__(self) -> None:
        self._columns: Whole = np.zeros((_NUM_COLUMNS, 0), dtype=np.int64)
        self._used = np.zeros(_NUM_COLUMNS, dtype=np.bool_)

    def __len__(self) -> int:
        return int(self._columns.shape[1])

    def extend(self, layouts: Sequence[LineLayout], labels: Sequence[int]) -> None:
        """Add layouts, and a number for the kind of rank label that each has."""
        if not layouts:
            return
        rows = [_row(layout, label) for layout, label in zip(layouts, labels, strict=True)]
        new = np.array(rows, dtype=np.int64).T
        self._columns = np.concatenate((self._columns, new), axis=1)
        self._used |= new.any(axis=1)

    def fact(self, name: str, which: Whole) -> Whole:
        """Return ``kind``, ``era``, ``graph``, ``speculative`` or ``label`` of some lines."""
        found: Whole = self._columns[_FACTS.index(name)][which]
        return found

    def numbers(self, words: NDArray[np.uint64], starts: Whole, which: Whole) -> dict[str, Real]:
        """Return each of `NUMBERS` in some lines, 0 where there is none."""
        numbers = {}
        for place, name in enumerate(NUMBERS):
            column = _FIRST_NUMBER + 4 * place
            whole = self._digits(column, words, starts, which)
            if self._used[column + 2]:
                fraction = self._digits(column + 2, words, starts, which)
                # one rounding: the digits as a whole number over a power of ten
                divisor = _POWERS[self._columns[column + 3][which]]
                numbers[name] = (whole * divisor + fraction) / divisor
            else:
                numbers[name] = whole.astype(np.float64)
        return numbers

    def ranks(self, words: NDArray[np.uint64], starts: Whole, which: Whole) -> list[Whole]:
        """Return the numbers in the rank labels of some lines; none where no line has a label."""
        columns = range(_FIRST_RANK, _NUM_COLUMNS, 2)
        if not self._used[_FIRST_RANK:].any():
            return []
        return [self._digits(column, words, starts, which) for column in columns]

    def _digits(self, column: int, words: NDArray[np.uint64], starts: Whole, which: Whole) -> Whole:
        """Return the whole numbers whose end and width stand in a column and the next."""
        if not self._used[column]:
            return np.zeros(len(which), dtype=np.int64)
        end, width = self._columns[column][which], self._columns[column + 1][which]
        before = np.maximum(starts + end - 8, 0)  # digits stand behind a time
        shift = (8 * (8 - np.maximum(width, 1))).astype(np.uint64)
        return np.where(width > 0, _number((words[before] >> shift) << shift), 0)


_POWERS = 10.0 ** np.arange(9)


def _row(layout: LineLayout, label: int) -> list[int]:
    """Return the columns of one layout."""
    row = [layout.kind, layout.era, layout.graph, layout.speculative, label]
    for number in layout.numbers:
        row += [number.whole.end, number.whole.width, number.fraction.end, number.fraction.width]
    missing = MOST_RANKS - len(layout.ranks)
    for rank in (*layout.ranks, *(NO_DIGITS,) * missing):
        row += [rank.end, rank.width]
    return row


def words_of(block: bytes) -> NDArray[np.uint64]:
    """Return the eight bytes from every place of a block on, the first one lowest."""
    return np.ndarray((max(len(block) - 7, 0),), dtype="<u8", buffer=block, strides=(1,))


def _number(words: NDArray[np.uint64]) -> Whole:
    """Return the numbers that eight digits spell, leading bytes 0: pairs, fours, then eight.

    Three multiplications for eight digits, for all lines at once.
    """
    digits = words & np.uint64(0x0F0F0F0F0F0F0F0F)
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    eights = (fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return eights.astype(np.int64)
