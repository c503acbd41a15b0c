"""Decode lines of one stream, batch size and graph flag pooled: medians in bounded memory."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.weighted_values import WeightedValues

# A round time this many powers of two above that of the usual one is a gap: 4 to 8 times it.
GAP_OCTAVES: Final = 3

# Contexts of a group that stay within this factor are pooled.
ONE_BAND: Final = 3.0

# Otherwise contexts are pooled between powers of four.
BAND_OCTAVES: Final = 2

_BUFFERED_LINES = 1 << 17
_KEY_BITS = (("time", 7), ("band", 5), ("speculative", 1), ("graph", 2), ("batch", 20))
_MOST_STREAMS = 1 << 15
_MOST_CELLS = 1 << 16
_LARGEST_BATCH = (1 << 20) - 1
_MOST_CONTEXTS = 1 << 17  # no constant depends on the last digits of a context
_TIME_ZERO = 64
_MOST_BAND = 30
_LONGEST = 127  # octave above all
_FEW = 3  # lines; fewer have no usual round time of their own

_Kind: TypeAlias = tuple[int, bool]  # graph and speculative


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLines:
    """Steady decode lines of one stream."""

    line: NDArray[np.int64]  # line of the file
    batch: NDArray[np.int64]  # what sorts them into groups
    graph: NDArray[np.int64]
    speculative: NDArray[np.bool_]
    accept_length: NDArray[np.float64]  # what is pooled, above 0; a context of 0 is unknown
    round_time_ms: NDArray[np.float64]
    context_tokens: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """What the lines of one group and context band have in common."""

    batch: int  # the group
    graph: int
    speculative: bool
    # ``i`` for contexts from 4^i to 4^(i+1), None where the group has a single band
    band: int | None
    first_line: int  # where it begins, and how many lines were pooled
    lines: int
    accept_length: float  # medians; the context is None where no line has it
    round_time_ms: float
    context_tokens: float | None


@dataclass(slots=True)
class _Cell:
    """Lines of one group and context band, with round times within the same powers of two."""

    batch: int
    graph: int
    speculative: bool
    band: int | None
    time_octave: int
    number: int
    first_line: int
    lines: int = 0
    least_context: float = np.inf
    most_context: float = 0.0


@dataclass(frozen=True, slots=True)
class PooledStream:
    """The groups of a stream, and how many lines were left out of them as gaps."""

    groups: tuple[DecodeGroup, ...]
    gaps: int = 0
    first_gap: int = 0


@dataclass(slots=True)
class DecodePool:
    """Steady decode lines of any number of streams, pooled as they come.

    Lines are sorted into cells: a stream's group, a context band, and the power of two below the
    round time. Gaps are told by cell at the end, when the usual round time is known.
    """

    _cells: dict[int, _Cell] = field(default_factory=dict)
    _waiting: list[tuple[int, DecodeLines]] = field(default_factory=list)
    _num_waiting: int = 0
    _accept_lengths: WeightedValues = field(default_factory=WeightedValues)
    _round_times: WeightedValues = field(default_factory=WeightedValues)
    _contexts: WeightedValues = field(default_factory=lambda: WeightedValues(_MOST_CONTEXTS))
    left_out: int = 0
    first_left_out: int = 0

    def add(self, stream: int, lines: DecodeLines) -> None:
        """Add lines of a stream.

        Streams beyond 32768 and cells beyond 65536 are counted in `left_out`: no server makes them.
        """
        if stream >= _MOST_STREAMS:
            self._leave_out(len(lines.line), int(lines.line[0]))
            return
        self._waiting.append((stream, lines))
        self._num_waiting += len(lines.line)
        if self._num_waiting >= _BUFFERED_LINES or len(self._waiting) >= _BUFFERED_LINES // 16:
            self._flush()

    def _leave_out(self, lines: int, first_line: int) -> None:
        """Count lines that find no place."""
        self.first_left_out = min(self.first_left_out or first_line, first_line)
        self.left_out += lines

    def pooled(self) -> dict[int, PooledStream]:
        """Return what the lines of each stream amount to."""
        self._flush()
        streams: dict[int, dict[_Kind, dict[int, list[_Cell]]]] = {}
        for key, cell in self._cells.items():
            kinds = streams.setdefault(key >> _STREAM_SHIFT, {})
            batches = kinds.setdefault((cell.graph, cell.speculative), {})
            batches.setdefault(cell.batch, []).append(cell)
        return {stream: self._stream(kinds) for stream, kinds in streams.items()}

    def _stream(self, kinds: dict[_Kind, dict[int, list[_Cell]]]) -> PooledStream:
        """Return what the groups of a stream amount to."""
        found: list[DecodeGroup] = []
        gaps: list[_Cell] = []
        for batches in kinds.values():
            known = {
                batch: self._usual_octave(cells)
                for batch, cells in batches.items()
                if _num_lines(cells) >= _FEW
            }
            for batch, cells in batches.items():
                usual = self._usual_octave(cells)
                if _num_lines(cells) == 1:
                    usual = min(usual, _most_octave(batch, known))
                for band, members in _bands(cells).items():
                    few = _num_lines(members) < _FEW
                    most = (usual if few else self._usual_octave(members)) + GAP_OCTAVES
                    steady = [cell for cell in members if cell.time_octave < most]
                    gaps += [cell for cell in members if cell.time_octave >= most]
                    if steady:
                        found.append(self._group(steady, band))
        return PooledStream(
            groups=tuple(sorted(found, key=lambda group: group.first_line)),
            gaps=_num_lines(gaps),
            first_gap=min((cell.first_line for cell in gaps), default=0),
        )

    def _usual_octave(self, cells: list[_Cell]) -> int:
        """Return the power of two below the usual round time: few lines may be gaps, not most."""
        usual = self._round_times.lower_quartile([cell.number for cell in cells])
        return int(np.frexp(usual or 1.0)[1]) + _TIME_ZERO

    def _group(self, cells: list[_Cell], band: int | None) -> DecodeGroup:
        """Return the medians over some cells."""
        numbers = [cell.number for cell in cells]
        accept_length = self._accept_lengths.median(numbers)
        round_time_ms = self._round_times.median(numbers)
        if accept_length is None or round_time_ms is None:
            raise AssertionError("a cell has at least one line")
        return DecodeGroup(
            batch=cells[0].batch,
            graph=cells[0].graph,
            speculative=cells[0].speculative,
            band=band,
            first_line=min(cell.first_line for cell in cells),
            lines=sum(cell.lines for cell in cells),
            accept_length=accept_length,
            round_time_ms=round_time_ms,
            context_tokens=self._contexts.median(numbers),
        )

    def _flush(self) -> None:
        """Sort the waiting lines into their cells."""
        if not self._waiting:
            return
        stream = np.concatenate([np.full(len(x.line), s) for s, x in self._waiting])
        line, batch, graph, speculative, accept_length, round_time, context = (
            np.concatenate([getattr(lines, name) for _, lines in self._waiting])
            for name in DecodeLines.__slots__
        )
        self._waiting, self._num_waiting = [], 0
        parts = {
            "time": np.clip(np.frexp(round_time)[1] + _TIME_ZERO, 0, 127),
            "band": np.where(context > 0, _bands_of(context) + 1, 0),
            "speculative": speculative,
            "graph": graph,
            "batch": np.minimum(batch, _LARGEST_BATCH),
        }
        key = stream.astype(np.int64)
        for name, bits in reversed(_KEY_BITS):
            key = (key << bits) | parts[name]
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        numbers = self._note(key[starts], starts, line[order], context[order])
        cells = np.repeat(numbers, np.diff(starts, append=len(key)))
        order, cells = order[cells >= 0], cells[cells >= 0]
        self._accept_lengths.add(cells, accept_length[order])
        self._round_times.add(cells, round_time[order])
        known = context[order] > 0
        self._contexts.add(cells[known], context[order][known])

    def _note(
        self,
        keys: NDArray[np.int64],
        starts: NDArray[np.int64],
        line: NDArray[np.int64],
        context: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return the numbers of the cells of sorted lines, and note their size; -1 is left out."""
        numbers = np.full(len(keys), -1, dtype=np.int64)
        lines = np.diff(starts, append=len(line)).tolist()
        least = np.minimum.reduceat(context, starts).tolist()
        most = np.maximum.reduceat(context, starts).tolist()
        for place, (key, first) in enumerate(
            zip(keys.tolist(), line[starts].tolist(), strict=True)
        ):
            cell = self._cells.get(key)
            if cell is None:
                if len(self._cells) >= _MOST_CELLS:
                    self._leave_out(lines[place], first)
                    continue
                cell = _new_cell(key, len(self._cells), first)
                self._cells[key] = cell
            cell.lines += lines[place]
            cell.least_context = min(cell.least_context, least[place])
            cell.most_context = max(cell.most_context, most[place])
            numbers[place] = cell.number
        return numbers


_STREAM_SHIFT: Final = sum(bits for _, bits in _KEY_BITS)


def _new_cell(key: int, number: int, first_line: int) -> _Cell:
    """Return an empty cell for the lines of a key."""
    parts = {}
    for name, bits in _KEY_BITS:
        parts[name] = key & ((1 << bits) - 1)
        key >>= bits
    return _Cell(
        batch=parts["batch"],
        graph=parts["graph"],
        speculative=bool(parts["speculative"]),
        band=parts["band"] - 1 if parts["band"] else None,
        time_octave=parts["time"],
        number=number,
        first_line=first_line,
    )


def _bands(cells: list[_Cell]) -> dict[int | None, list[_Cell]]:
    """Return the cells of a group by context band, all of them together where one is enough."""
    known = [cell for cell in cells if cell.band is not None]
    least = min((cell.least_context for cell in known), default=0.0)
    most = max((cell.most_context for cell in known), default=0.0)
    if most <= ONE_BAND * least or not known:
        return {None: cells}
    bands: dict[int | None, list[_Cell]] = defaultdict(list)
    for cell in cells:
        bands[cell.band].append(cell)
    return bands


def _bands_of(context_tokens: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bands of contexts; below one token it is that of one."""
    octave = np.frexp(context_tokens)[1].astype(np.int64) - 1
    return np.clip(octave // BAND_OCTAVES, 0, _MOST_BAND)


def _most_octave(batch: int, known: Mapping[int, int]) -> int:
    """Return the longest usual time of a batch that was seen once, from what others take.

    No batch takes longer than a larger one. Beyond the largest, half of proportional growth is
    allowed, in powers of two; a gap is eight times that.
    """
    larger = [octave for other, octave in known.items() if other >= batch]
    if larger:
        return min(larger)
    if not known:
        return _LONGEST
    nearest = max(known)
    return known[nearest] + math.ceil(math.log2(batch / nearest) / 2)


def _num_lines(cells: list[_Cell]) -> int:
    """Return how many lines some cells hold."""
    return sum(cell.lines for cell in cells)
