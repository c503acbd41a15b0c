"""Lines of a log that are alike: each layout looked at once, the numbers of all its lines as columns.

What a line is and where its numbers stand follow from its layout alone: the line with every digit written
as 0. A log of ten million lines has a few hundred layouts, so each is looked at once and with care; the
numbers of all lines are then taken out by their places.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.log_file import ESCAPES

Columns: TypeAlias = Mapping[str, NDArray[Any]]

LONGEST_LINE: Final = 4096  # [bytes]; of a longer line that much is looked at and a byte more

# Table for `bytes.translate` that turns a line into its layout.
_MASK = bytes.maketrans(b"123456789", b"000000000")
_MOST_OTHERS = 4096  # layouts of no interest that are remembered
_LONGEST_KEPT = 1024  # [bytes]; longer layouts are looked at again each time
_MOST_DIGITS = 8  # before the point, and behind it
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_PLACES = 4  # of a number: where its whole digits end, how many, and the same of its fraction


class Layout(NamedTuple):
    """What all lines of one layout have in common."""

    facts: tuple[int, ...]  # what they are, in whole numbers
    # from where to where numbers and texts stand, by name; one that is missing is 0 or empty
    spans: Mapping[str, tuple[int, int]] = {}


@dataclass(slots=True)
class AlikeLines:
    """From blocks of a log to columns of its lines of interest.

    `layout_of` says what a line without its escapes is whose digits are all 0, None where it is of no
    interest. Numbers have up to eight digits before the point, texts are where they stand.
    """

    layout_of: Callable[[bytes], Layout | None]
    facts: tuple[str, ...]  # names of what layouts say, in the order in which they say it
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    most: int = 16384  # layouts that are remembered
    _known: dict[bytes, int] = field(default_factory=dict)
    # A column for each layout; the first is that of lines of no interest.
    _table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    _lines_before: int = 0

    def columns(self, block: bytes) -> Columns:
        """Return the lines of interest of the next block: facts, numbers, texts, `line` and `start`.

        `line` is that of the file, from 1; `start` its place in the block. A text is two columns: the
        places in the block where it begins, `name`, and where it ends, `name_end`.
        """
        width = len(self.facts) + _PLACES * len(self.numbers) + 2 * len(self.texts)
        if len(self._table) != width or self._table.shape[1] > self.most:
            self._known, self._table = {}, np.zeros((width, 1), dtype=np.int64)
        masked = block.translate(_MASK).split(b"\n")
        if not masked[-1]:
            masked.pop()
        which = np.fromiter(map(self._known.get, masked, repeat(-1)), np.int64, count=len(masked))
        new: list[list[int]] = []
        for index in np.flatnonzero(which < 0).tolist():
            which[index] = self._learnt(masked[index], new)
        if new:
            self._table = np.concatenate((self._table, np.array(new, dtype=np.int64).T), axis=1)
        chosen = np.flatnonzero(which)
        which = which[chosen]
        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 0x0A)
        starts = np.concatenate(([0], ends + 1))[chosen]
        columns = {"line": chosen + (self._lines_before + 1), "start": starts}
        self._lines_before += len(masked)
        rows = iter(self._table)
        columns |= {name: next(rows)[which] for name in self.facts}
        padded = bytes(_MOST_DIGITS) + block  # the eight bytes before every place, the first lowest
        words = np.ndarray((len(block) + 1,), dtype="<u8", buffer=padded, strides=(1,))
        for name in self.numbers:
            places = [next(rows) for _ in range(_PLACES)]
            whole_end, whole, fraction_end, fraction = (row[which] for row in places)
            columns[name] = np.zeros(len(which))
            if whole.any():
                columns[name] += _digits(words, starts, whole_end, whole)
            if fraction.any():  # one rounding: the digits as a whole number over a power of ten
                divisor = _POWERS[fraction]
                columns[name] *= divisor
                columns[name] += _digits(words, starts, fraction_end, fraction)
                columns[name] /= divisor
        for name in self.texts:
            columns[name] = starts + next(rows)[which]
            columns[f"{name}_end"] = starts + next(rows)[which]
        return columns

    def _learnt(self, masked: bytes, new: list[list[int]]) -> int:
        """Return the number of the layout of a line, 0 where it is of no interest."""
        number = self._known.get(masked)
        if number is not None:
            return number
        offset, line = 0, masked[: LONGEST_LINE + 1]
        if b"\r" in masked:  # a progress bar leaves its line unfinished
            offset = masked.rstrip(b"\r").rfind(b"\r") + 1
            line = masked[offset : offset + LONGEST_LINE + 1].rstrip(b"\r")
        text = line
        kept = None  # the places of the text in the line, where they are others
        if b"\x1b" in line:
            stays = np.ones(len(line), dtype=np.bool_)
            for escapes in ESCAPES.finditer(line):
                start, end = escapes.span()
                stays[start:end] = False
                # one between digits stays, so that they are no number: they do not stand together
                stays[start] = line[start - 1 : start].isdigit() and line[end : end + 1].isdigit()
            kept = np.flatnonzero(stays)
            text = np.frombuffer(line, dtype=np.uint8)[kept].tobytes()
        layout = self.layout_of(text)
        remember = len(masked) <= _LONGEST_KEPT
        if layout is None:
            if remember and len(self._known) < _MOST_OTHERS:
                self._known[masked] = 0
            return 0
        kept = np.arange(len(line)) if kept is None else kept
        ends = np.concatenate(([0], kept + 1)) + offset  # from ends in the text to ends in the line
        row = [*layout.facts]
        for name in self.numbers:
            start, end = layout.spans.get(name, (0, 0))
            whole, _, fraction = text[start:end].partition(b".")
            point, behind = start + len(whole), min(len(fraction), _MOST_DIGITS)
            row += [ends[point], len(whole), ends[point + (behind and behind + 1)], behind]
        for name in self.texts:
            start, end = layout.spans.get(name, (0, 0))
            row += [ends[start + 1] - 1, ends[end]] if end > start else [0, 0]
        new.append(row)
        number = int(self._table.shape[1]) + len(new) - 1
        if remember:
            self._known[masked] = number
        return number


def _digits(
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    widths: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return whole numbers, from where they end in their lines and how many digits they have."""
    shift = (8 * (_MOST_DIGITS - np.maximum(widths, 1))).astype(np.uint64)
    # eight digits of all lines at once: pairs, fours, then eight
    digits = ((words[starts + ends] >> shift) << shift) & np.uint64(0x0F0F0F0F0F0F0F0F)
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    eights = (fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return np.where(widths > 0, eights.astype(np.int64), 0)
