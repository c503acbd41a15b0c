"""A block of an SGLang log as arrays: which lines are of interest, and all their numbers at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.readers.layout_table import LayoutTable, Real, Whole, words_of
from calibration.readers.sglang_line_layout import (
    MASK,
    OTHER,
    LineKind,
    LineLayout,
    line_layout,
)

_MOST_LAYOUTS = 16384
_MOST_OTHER_LAYOUTS = 4096
_LONGEST_KEPT = 1024  # [bytes]; longer layouts are looked at again each time
_RANK_BASE = 10_000  # above any number of a rank label
_MOST_LABELS = 900  # keeps a rank's key below 2**63: 901 x 10^16
_MOST_RANK_LABELS = 4096
_UNKNOWN: Final = -1

# Key of the ranks beyond 4096 labels, which no server has.
NO_RANK: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLines:
    """Decode and prefill lines of one piece of a log, in its order."""

    line: Whole  # line of the file, 1-based
    kind: Whole  # as in `LineLayout`
    era: Whole
    graph: Whole
    speculative: NDArray[np.bool_]
    running: Real  # numbers of complete decode lines, 0 where there is none
    tokens: Real
    accept_length: Real
    throughput: Real
    cap_length: Real
    rank: Whole  # A key that lines of one rank share

    def take(self, chosen: Whole | slice) -> "BatchLines":
        """Return some of the lines."""
        return BatchLines(**{name: getattr(self, name)[chosen] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLine:
    """A line that tells how a server is started."""

    line: int  # line of the file, 1-based
    banner: bool  # whether it is the banner with the server's arguments, not the command before it
    text: str  # the line


class LineScanner:
    """From blocks of a log to its lines of interest.

    Remembers the layouts it has met, at most 16384 of them.
    """

    def __init__(self, *, remember: bool = True) -> None:
        self._remember = remember
        self._known: dict[bytes, int] = {}
        self._layouts: list[LineLayout] = [OTHER]
        self._others = 0
        self._table = LayoutTable()
        self._label_numbers: dict[bytes, int] = {b"": 0}
        self._rank_labels: dict[int, str] = {0: ""}
        self._lines_before = 0

    def scan(self, block: bytes) -> Iterator[BatchLines | StartLine]:
        """Yield the lines of interest of the next block, in the order of the file."""
        if len(self._layouts) > _MOST_LAYOUTS:
            self._known, self._layouts, self._others = {}, [OTHER], 0
            self._table = LayoutTable()
        lines = block.translate(MASK).split(b"\n")
        if not lines[-1]:
            lines.pop()
        which = np.fromiter(
            map(self._known.get, lines, repeat(_UNKNOWN)), np.int64, count=len(lines)
        )
        for index in np.flatnonzero(which == _UNKNOWN).tolist():
            which[index] = self._layout_number(lines[index])
        indices = np.flatnonzero(which)
        if len(indices):
            starts = _line_starts(block)[indices]
            yield from self._pieces(block, starts, indices, which[indices])
        self._lines_before += len(lines)

    def label(self, rank: int) -> str:
        """Return the label of a rank, such as ``DP1 TP2``; empty where it has none."""
        return self._rank_labels[rank]

    def _layout_number(self, masked: bytes) -> int:
        """Return the number of the layout of a line, 0 where it is of no interest."""
        number = self._known.get(masked)
        if number is not None:
            return number
        layout = line_layout(masked)
        keep = self._remember and len(masked) <= _LONGEST_KEPT
        if layout.kind is LineKind.OTHER:
            if keep and self._others < _MOST_OTHER_LAYOUTS:
                self._others += 1
                self._known[masked] = 0
            return 0
        self._layouts.append(layout)
        if keep:
            self._known[masked] = len(self._layouts) - 1
        return len(self._layouts) - 1

    def _pieces(
        self, block: bytes, starts: Whole, indices: Whole, which: Whole
    ) -> Iterator[BatchLines | StartLine]:
        """Yield the lines of interest, split where a server is started."""
        new = self._layouts[len(self._table) :]
        self._table.extend(new, [self._label_number(layout.letters) for layout in new])
        kind = self._table.fact("kind", which)
        batch = kind >= LineKind.PREFILL
        lines = self._batch_lines(block, starts[batch], indices[batch], which[batch])
        done = 0
        for place in np.flatnonzero(~batch).tolist():
            line = self._lines_before + int(indices[place]) + 1
            until = int(np.searchsorted(lines.line, line))
            if until > done:
                yield lines.take(slice(done, until))
            done = until
            start = int(starts[place])
            end = block.find(b"\n", start)
            text = block[start : end if end >= 0 else len(block)].decode("utf-8", "replace")
            yield StartLine(line=line, banner=bool(kind[place] == LineKind.BANNER), text=text)
        if done < len(lines.line):
            yield lines.take(slice(done, None))

    def _batch_lines(self, block: bytes, starts: Whole, indices: Whole, which: Whole) -> BatchLines:
        """Return decode and prefill lines as arrays."""
        table, words = self._table, words_of(block)
        return BatchLines(
            line=indices + (self._lines_before + 1),
            kind=table.fact("kind", which),
            era=table.fact("era", which),
            graph=table.fact("graph", which),
            speculative=table.fact("speculative", which) > 0,
            rank=self._ranks(block, words, starts, which),
            **table.numbers(words, starts, which),
        )

    def _label_number(self, letters: bytes) -> int:
        """Return a number for labels that differ in their numbers only."""
        number = self._label_numbers.get(letters, len(self._label_numbers))
        if number < _MOST_LABELS:
            self._label_numbers[letters] = number
        return number

    def _ranks(self, block: bytes, words: NDArray[np.uint64], starts: Whole, which: Whole) -> Whole:
        """Return a key for the rank of each line, and remember the labels."""
        rank = self._table.fact("label", which)
        if not rank.any():
            return rank
        for numbers in self._table.ranks(words, starts, which):
            rank = rank * _RANK_BASE + numbers
        for key in np.unique(rank).tolist():
            if key in self._rank_labels:
                continue
            if len(self._rank_labels) >= _MOST_RANK_LABELS:
                rank[rank == key] = NO_RANK
            else:
                place = int(np.argmax(rank == key))
                begin, end = self._layouts[int(which[place])].label
                text = block[int(starts[place]) + begin : int(starts[place]) + end]
                self._rank_labels[key] = text.decode("utf-8", "replace")
        return rank


def _line_starts(block: bytes) -> Whole:
    """Return where the lines of a block begin."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 0x0A)
    return np.concatenate(([0], ends + 1))
