"""Decode lines of an SGLang server: which are steady, and their medians in bounded memory."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.sglang_log_lines import BatchLines, LineKind
from specmodel.units import MILLI

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
        bits = np.clip(values, _LEAST, _MOST).view(np.int64)
        rounded = (bits + (1 << (_DROPPED_BITS - 1))) >> _DROPPED_BITS
        codes = np.sort((cells << _VALUE_BITS) | (rounded - _EXPONENT_ZERO))
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
        inside = (codes & ((1 << _VALUE_BITS) - 1)) + _EXPONENT_ZERO
        values = (inside << _DROPPED_BITS).view(np.float64)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(counts[order], dtype=np.int64)
        total = int(below[-1])
        middle = values[order[np.searchsorted(below, (total - 1) // share, side="right")]]
        if share == 2:
            high = values[order[np.searchsorted(below, total // 2, side="right")]]
            middle = (middle + high) / 2
        return float(f"{middle:.11g}")  # the digits that a code holds, so that 2.54 comes back

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
            last = int(self._codes[-1] >> _VALUE_BITS) if len(self._codes) else -1
            inner = np.searchsorted(self._codes, np.arange(1, last + 1) << _VALUE_BITS)
            edges = np.concatenate(([0], inner, [len(self._codes)]))  # of each cell
            sizes = np.diff(edges)
            if sizes.max(initial=0) <= most:
                continue
            half = 1 << (_MANTISSA_BITS - binary_digits - 1)
            for cell in np.flatnonzero(sizes > most).tolist():
                part = self._codes[edges[cell] : edges[cell + 1]]
                part += half
                part &= ~(2 * half - 1)
            self._codes, self._counts = _merged(self._codes, self._counts)


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
        octave = np.frexp(context)[1].astype(np.int64) - 1  # below one token it is that of one
        band = np.clip(octave // BAND_OCTAVES, 0, _MOST_BAND)
        parts = {
            "time": np.clip(np.frexp(round_time)[1] + _TIME_ZERO, 0, 127),
            "band": np.where(context > 0, band + 1, 0),
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
                parts, rest = {}, key
                for name, bits in _KEY_BITS:
                    parts[name] = rest & ((1 << bits) - 1)
                    rest >>= bits
                cell = self._cells[key] = _Cell(
                    batch=parts["batch"],
                    graph=parts["graph"],
                    speculative=bool(parts["speculative"]),
                    band=parts["band"] - 1 if parts["band"] else None,
                    time_octave=parts["time"],
                    number=len(self._cells),
                    first_line=first,
                )
            cell.lines += lines[place]
            cell.least_context = min(cell.least_context, least[place])
            cell.most_context = max(cell.most_context, most[place])
            numbers[place] = cell.number
        return numbers


_STREAM_SHIFT: Final = sum(bits for _, bits in _KEY_BITS)


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


# Why a decode line is left out; the first that holds is counted.
REASONS: Final = (
    *("truncated_line", "duplicate_rank", "idle", "warmup", "prefill_mixed", "batch_changed"),
    *("accept_length_out_of_range", "missing_accept_length", "too_many_groups"),
)


@dataclass(slots=True)
class DropCounts:
    """How many lines were left out, by reason, and the first of each."""

    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, reason: str, count: int, first_line: int) -> None:
        """Count lines."""
        if count:
            before, first = self._counts.get(reason, (0, first_line))
            self._counts[reason] = (before + count, min(first, first_line))

    def of(self, reason: str) -> tuple[int, int]:
        """Return the number of lines and the first one."""
        return self._counts.get(reason, (0, 0))

    def merge(self, other: "DropCounts") -> None:
        """Add the counts of another."""
        for reason in REASONS:
            self.add(reason, *other.of(reason))


@dataclass(slots=True)
class RankStream:
    """The decode lines of one rank of one server, in their order."""

    number: int  # of the stream, as in `DecodePool.add`
    label: str  # of the rank, as in the log
    drops: DropCounts = field(init=False, default_factory=DropCounts)
    complete: int = field(init=False, default=0)
    first_line: int = field(init=False, default=0)
    least_cap_length: float = field(init=False, default=np.inf)
    eras: list[int] = field(init=False, default_factory=list)
    _running: float = field(init=False, default=-1.0)
    _after_prefill: bool = field(init=False, default=False)

    def steady(self, lines: BatchLines) -> DecodeLines | None:
        """Return the lines that tell the time of a round, counting the others."""
        prefill = lines.kind == LineKind.PREFILL
        after_prefill = np.concatenate(([self._after_prefill], prefill[:-1]))
        self._after_prefill = bool(prefill[-1])
        cut = np.flatnonzero(lines.kind == LineKind.CUT)
        if len(cut):
            self.drops.add("truncated_line", len(cut), int(lines.line[cut[0]]))
        chosen = np.flatnonzero(lines.kind == LineKind.DECODE)
        if not len(chosen):
            return None
        decode, after_prefill = lines.take(chosen), after_prefill[chosen]
        before = np.concatenate(([self._running], decode.running[:-1]))
        first = np.zeros(len(chosen), dtype=np.bool_)
        first[0] = self.complete == 0
        idle = (decode.running == 0) | (decode.throughput == 0)
        impossible = decode.speculative & (decode.accept_length < 1)
        reasons: dict[str, NDArray[np.bool_]] = {
            "idle": idle,
            "warmup": first,
            "prefill_mixed": after_prefill,
            "batch_changed": decode.running != before,
            "accept_length_out_of_range": impossible,
        }
        self._note(decode, ~idle)
        left = np.ones(len(chosen), dtype=np.bool_)
        for reason, holds in reasons.items():
            dropped = np.flatnonzero(left & holds)
            if len(dropped):
                self.drops.add(reason, len(dropped), int(decode.line[dropped[0]]))
                left[dropped] = False
        kept = np.flatnonzero(left)
        if not len(kept):
            return None
        decode = decode.take(kept)  # `running` requests, each `accept_length` tokens a round
        accept_length = np.where(decode.speculative, decode.accept_length, 1.0)
        return DecodeLines(
            line=decode.line,
            batch=decode.running.astype(np.int64),
            graph=decode.graph,
            speculative=decode.speculative,
            accept_length=accept_length,
            round_time_ms=decode.running * accept_length / decode.throughput / MILLI,
            context_tokens=decode.tokens / decode.running,
        )

    def _note(self, decode: BatchLines, busy: NDArray[np.bool_]) -> None:
        """Remember what the lines after these need, and what is said of all of them."""
        if not self.complete:
            self.first_line = int(decode.line[0])
        self.complete += len(decode.line)
        self._running = float(decode.running[-1])
        eras = decode.era[busy]
        if len(eras):
            self.eras += [era for era in np.unique(eras).tolist() if era not in self.eras]
        capped = busy & (decode.cap_length > 0)
        if capped.any():
            least = float(decode.cap_length[capped].min())
            self.least_cap_length = min(self.least_cap_length, least)
