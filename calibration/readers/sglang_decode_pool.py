"""Decode lines of servers, pooled into groups in bounded memory: medians, and what was a gap."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A round time this many powers of two above that of the usual one is a gap: 4 to 8 times it.
GAP_OCTAVES: Final = 3

# Contexts of a group that stay within this factor are pooled.
ONE_BAND: Final = 3.0

# Otherwise contexts are pooled between powers of four.
BAND_OCTAVES: Final = 2

MOST_STREAMS: Final = 1 << 15

# Values of a cell that differ are told apart to 11 digits (36 bits) while there are few; above so many of a
# cell they are rounded to so many bits, all stages but the first only while all cells hold too many.
_STAGES = (
    *((32768, 17), (8192, 17), (4096, 16), (2048, 15), (512, 13), (64, 11), (8, 9)),
    *((0, 7), (0, 5), (0, 3), (0, 1)),
)
_MOST_VALUES = 3 << 19
_MANTISSA_BITS = 36
_VALUE_BITS = _MANTISSA_BITS + 7  # and those of the exponent, for 2^-60 to 2^60
_DROPPED_BITS = 52 - _MANTISSA_BITS
_LEAST, _MOST = 2.0**-60, 2.0**60
_EXPONENT_ZERO = (1023 - 64) << _MANTISSA_BITS

_BUFFERED_LINES = 1 << 17
_MOST_CELLS = 1 << 16
# Of a cell's key: stream, graph, speculative, batch, band of the context, power of two of the time.
_KEY = (MOST_STREAMS, 3, 2, 1 << 20, 32, 128)
_TIME_ZERO = 64
_FEW = 3  # lines; fewer have no usual round time of their own
_ACCEPT_LENGTH, _ROUND_TIME, _CONTEXT = range(3)


class Group(NamedTuple):
    """What the lines of one batch, graph flag and context band have in common."""

    first_line: int  # where it begins, and how many lines were pooled
    lines: int
    batch: int
    graph: int
    speculative: bool
    accept_length: float  # medians; the context is 0 where no line has it
    round_time_ms: float
    context_tokens: float


class _Cell(NamedTuple):
    """Lines of one group and context band, with round times within the same powers of two."""

    stream: int
    graph: int
    speculative: int
    batch: int
    band: int  # 0 where the context is unknown, else 1 + i from 4^i tokens on
    octave: int
    number: int
    first_line: int
    lines: int


@dataclass(slots=True)
class DecodePool:
    """Steady decode lines of any number of streams, pooled as they come.

    Lines are sorted into cells: a stream's group, a context band, and the power of two below the
    round time. Gaps are told by cell at the end, when the usual round time is known. Medians are exact
    (to 11 digits) up to 32768 different values of a cell, beyond it within 8e-6 for 50 cells that each
    spread over 15 %.
    """

    most: int = _MOST_VALUES  # values of all cells together
    left_out: int = 0  # lines of more cells than any server makes, and the first of them
    first_left_out: int = 0
    _cells: dict[int, list[int]] = field(default_factory=dict)  # by key: number, first line, lines
    _waiting: list[NDArray[np.float64]] = field(default_factory=list)
    # Sorted: cell, quantity and value in one number; and how often each occurred.
    _codes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, lines: NDArray[np.float64]) -> None:
        """Add lines, a column each.

        The rows are: stream, line of the file, batch, graph (0 to 2), whether speculative, accept
        length, round time and context, which is 0 where it is unknown.
        """
        self._waiting.append(lines)
        if sum(part.shape[1] + 16 for part in self._waiting) >= _BUFFERED_LINES:
            self._flush()

    def _flush(self) -> None:
        """Sort the waiting lines into their cells, and their values into the table."""
        if not self._waiting:
            return
        lines = np.concatenate(self._waiting, axis=1)
        self._waiting = []
        stream, line, batch, graph, speculative = lines[:5].astype(np.int64)
        context, time = lines[7], lines[6]
        band = (np.frexp(context)[1] - 1) // BAND_OCTAVES + 1
        band = np.where(context > 0, np.clip(band, 1, 31), 0)
        octave = np.frexp(time)[1] + _TIME_ZERO
        key = np.ravel_multi_index(
            (stream, graph, speculative, batch, band, octave), _KEY, mode="clip"
        )
        keys, firsts, which, counts = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        numbers = np.full(len(keys), -1, dtype=np.int64)
        for place, one in enumerate(keys.tolist()):
            first_line, count = int(line[firsts[place]]), int(counts[place])
            if one not in self._cells and len(self._cells) >= _MOST_CELLS:
                self.left_out += count
                self.first_left_out = min(self.first_left_out or first_line, first_line)
                continue
            cell = self._cells.setdefault(one, [len(self._cells), first_line, 0])
            cell[2] += count
            numbers[place] = cell[0]
        cells = numbers[which]
        bits = np.clip(lines[5:], _LEAST, _MOST).view(np.int64)
        rounded = (bits + (1 << (_DROPPED_BITS - 1)) >> _DROPPED_BITS) - _EXPONENT_ZERO
        quantity = np.arange(3)[:, None]
        codes = ((3 * cells + quantity) << _VALUE_BITS) | rounded
        self._keep(codes[(cells >= 0) & ((quantity != _CONTEXT) | (context > 0))])

    def _keep(self, codes: NDArray[np.int64]) -> None:
        """Add values to the table, and round it until no cell and not the whole is too large."""
        codes, counts = np.unique(codes, return_counts=True)
        places = np.searchsorted(self._codes, codes)
        known = places < len(self._codes)
        known[known] = self._codes[places[known]] == codes[known]
        self._counts[places[known]] += counts[known]
        self._codes = np.insert(self._codes, places[~known], codes[~known])
        self._counts = np.insert(self._counts, places[~known], counts[~known])
        for stage, (most, binary_digits) in enumerate(_STAGES):
            if stage and len(self._codes) <= self.most:
                return
            edges = np.flatnonzero(np.diff(self._codes >> _VALUE_BITS, prepend=-1, append=-1))
            large = np.flatnonzero(np.diff(edges) > most)
            half = 1 << (_MANTISSA_BITS - binary_digits - 1)
            for cell in large.tolist():
                part = self._codes[edges[cell] : edges[cell + 1]]
                part += half
                part &= ~(2 * half - 1)
            if len(large):
                starts = np.flatnonzero(np.diff(self._codes, prepend=-1))
                self._codes = self._codes[starts]
                self._counts = np.add.reduceat(self._counts, starts)

    def groups(self) -> tuple[dict[int, list[Group]], dict[int, list[tuple[int, int]]]]:
        """Return the groups of each stream, and the cells that are gaps: their lines and first line."""
        self._flush()
        keys = np.transpose(np.unravel_index(np.array([*self._cells], dtype=np.int64), _KEY))
        cells = sorted(
            _Cell(*key, *cell)
            for key, cell in zip(keys.tolist(), self._cells.values(), strict=True)
        )
        groups: dict[int, list[Group]] = defaultdict(list)
        gaps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (stream, graph, speculative), alike in groupby(cells, key=itemgetter(0, 1, 2)):
            batches = {batch: [*few] for batch, few in groupby(alike, key=itemgetter(3))}
            lines = {batch: sum(cell.lines for cell in few) for batch, few in batches.items()}
            usual = {batch: self._usual_octave(few) for batch, few in batches.items()}
            known = {batch: usual[batch] for batch in batches if lines[batch] >= _FEW}
            for batch, few in batches.items():
                if lines[batch] == 1:
                    usual[batch] = min(usual[batch], _most_octave(batch, known))
                contexts = self._values(few, _CONTEXT)[0]
                bands = [few]
                if len(contexts) and contexts[-1] > ONE_BAND * contexts[0] * (1 + 1e-9):
                    bands = [[*band] for _, band in groupby(few, key=attrgetter("band"))]
                for band in bands:
                    own = sum(cell.lines for cell in band) >= _FEW
                    most = (self._usual_octave(band) if own else usual[batch]) + GAP_OCTAVES
                    gaps[stream] += [(c.lines, c.first_line) for c in band if c.octave >= most]
                    steady = [cell for cell in band if cell.octave < most]
                    if steady:
                        group = Group(
                            min(cell.first_line for cell in steady),
                            sum(cell.lines for cell in steady),
                            batch,
                            graph,
                            bool(speculative),
                            *(self._middle(steady, quantity) for quantity in range(3)),
                        )
                        groups[stream].append(group)
            groups[stream].sort()
        return groups, gaps

    def _usual_octave(self, cells: list[_Cell]) -> int:
        """Return the power of two below the usual round time: few lines may be gaps, not most."""
        return int(np.frexp(self._middle(cells, _ROUND_TIME, 4))[1]) + _TIME_ZERO

    def _middle(self, cells: list[_Cell], quantity: int, share: int = 2) -> float:
        """Return the median over some cells, or what a quarter is below; 0 where nothing is known."""
        values, counts = self._values(cells, quantity)
        if not len(values):
            return 0.0
        below = np.cumsum(counts)
        last = int(below[-1]) - 1
        ranks = (last // share, (last + 1) // 2 if share == 2 else last // share)
        middle = values[np.searchsorted(below, ranks, side="right")].mean()
        return float(f"{middle:.11g}")  # the digits that a code holds, so that 2.54 comes back

    def _values(
        self, cells: list[_Cell], quantity: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the values of some cells in their order, and how often each occurred."""
        first = np.array([3 * cell.number + quantity for cell in cells], dtype=np.uint64)
        edges = np.array((first, first + np.uint64(1))) << np.uint64(_VALUE_BITS)
        places = np.searchsorted(self._codes.view(np.uint64), edges)
        chosen = np.concatenate([np.arange(*part) for part in places.T])
        codes = self._codes[chosen] & ((1 << _VALUE_BITS) - 1)
        order = np.argsort(codes, kind="stable")
        values = (codes[order] + _EXPONENT_ZERO << _DROPPED_BITS).view(np.float64)
        return values, self._counts[chosen[order]]


def _most_octave(batch: int, known: Mapping[int, int]) -> int:
    """Return the longest usual time of a batch that was seen once, from what others take.

    No batch takes longer than a larger one. Beyond the largest, half of proportional growth is
    allowed, in powers of two; a gap is eight times that.
    """
    larger = [octave for other, octave in known.items() if other >= batch]
    if larger or not known:
        return min(larger, default=_KEY[-1])
    nearest = max(known)
    return known[nearest] + math.ceil(math.log2(batch / nearest) / 2)
