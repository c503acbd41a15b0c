"""Lines of an SGLang server log: what each layout is, and all numbers of a block at once."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.terminal_text import LINE_PREFIX, NO_DIGITS, Digits, TextPlaces, cleaned

# What a line is and where its numbers stand follow from its layout alone: the line with every digit
# written as 0. A log of ten million lines has a few hundred layouts, so each is looked at once and with
# care; the numbers of all lines are then taken out by their places.
# Table for `bytes.translate` that turns a line into its layout.
MASK: Final = bytes.maketrans(b"123456789", b"000000000")

# Oldest release of each layout.
ERAS: Final = ("0.4.3", "0.4.6", "0.5.4", "0.5.6", "0.5.16")

# The numbers of a decode line that are read, in the order of `LineLayout.numbers`.
NUMBERS: Final = ("running", "tokens", "accept_length", "throughput", "cap_length")

# Most numbers of a rank label, such as the two of ``DP1 TP2``.
MOST_RANKS: Final = 4

_LONGEST_LINE = 4096  # [bytes] of a decode line; today's have up to 500
_MOST_DIGITS = 8
_MOST_RANK_DIGITS = 4


class LineKind(IntEnum):
    """What a line means to a reader."""

    OTHER = 0
    BANNER = 1
    LAUNCH = 2
    PREFILL = 3
    DECODE = 4
    CUT = 5


class Graph(IntEnum):
    """Whether a decode line says that its rounds ran from a captured graph."""

    UNKNOWN = 0
    EAGER = 1
    CAPTURED = 2


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number in a line: its digits before and behind the point."""

    whole: Digits = NO_DIGITS
    fraction: Digits = NO_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLayout:
    """What all lines of one layout have in common."""

    kind: LineKind  # ``CUT`` is a decode line without all its values
    era: int = -1  # index into `ERAS` of a decode line, -1 of others
    graph: Graph = Graph.UNKNOWN  # what a decode line says of its graph
    speculative: bool = False  # whether a decode line has an accept length
    numbers: tuple[Decimal, ...] = (Decimal(),) * len(NUMBERS)
    label: tuple[int, int] = (0, 0)  # where the rank label stands; empty where there is none
    letters: bytes = b""  # the rank label without its numbers
    ranks: tuple[Digits, ...] = ()  # the numbers of the rank label


OTHER: Final = LineLayout(kind=LineKind.OTHER)

_TIME = (
    rb"\[(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<label>[^\]\[\n]{0,80})\][ ]+"
)
_BATCH_LINE = re.compile(
    rb"(?x)" + LINE_PREFIX + _TIME + rb"(?P<kind>Decode|Prefill)[ ]batch(?P<rest>.*)", re.DOTALL
)
_BANNER = re.compile(
    rb"(?x)"
    + LINE_PREFIX
    + rb"(?:"
    + _TIME
    + rb")?(?:[A-Z]+:[\w.]+:)?(?:server_args=)?ServerArgs\("
)
_TIMED = re.compile(rb"(?x)" + LINE_PREFIX + _TIME)
_AFTER_KIND = re.compile(rb"(?:[ ]\[\d+\])?[.,]?[ ]*")
_NUMBER = re.compile(rb"[ ]*(?P<whole>\d+)(?:\.(?P<fraction>\d*))?[ ]*")
_RANK = re.compile(rb"[A-Za-z_]+(\d+)")
_FIRST_KEY = b"#running-req"
_SETTING = b"SGLANG_SIMULATE_ACC_LEN="
_SUFFIXES = (b"cap len", b"est. ", b"fwd occupancy")


def line_layout(masked: bytes) -> LineLayout:
    """Return what a line is and where its numbers stand."""
    if b"code batch" in masked or b"fill batch" in masked:
        layout = _batch_layout(masked)
        if layout is not None:
            return layout
    if b"ServerArgs(" in masked and _BANNER.match(cleaned(masked[:_LONGEST_LINE])[0]):
        return LineLayout(kind=LineKind.BANNER)
    if _SETTING in masked:
        start = cleaned(masked[:_LONGEST_LINE])[0]
        before = start.partition(_SETTING)[0]
        if b"{" not in before and not _TIMED.match(start):
            return LineLayout(kind=LineKind.LAUNCH)
    return OTHER


def _batch_layout(masked: bytes) -> LineLayout | None:
    """Return the layout of a decode or prefill line, None where it is none."""
    offset = masked.rstrip(b"\r").rfind(b"\r") + 1  # a progress bar leaves its line unfinished
    line = masked[offset:] if offset else masked
    if len(line) > _LONGEST_LINE:
        return None
    text, kept = cleaned(line)
    found = _BATCH_LINE.match(text)
    if found is None:
        return None
    after = _AFTER_KIND.match(text, found.start("rest"))
    begin = after.end() if after else found.start("rest")
    rest = text[begin:]
    begins = _FIRST_KEY in rest or _FIRST_KEY.startswith(rest.strip())
    if not begins and (found["kind"] == b"Decode" or b"#new-seq" not in rest):
        return None
    places = TextPlaces(offset, kept)
    cut = _labelled(found, places)
    if found["kind"] == b"Prefill":
        return replace(cut, kind=LineKind.PREFILL)
    return _decode_layout(text, begin, places, cut)


def _decode_layout(text: bytes, begin: int, places: TextPlaces, cut: LineLayout) -> LineLayout:
    """Return the layout of a decode line whose items begin at a place."""
    items: dict[bytes, tuple[int, int]] = {}
    place = begin
    for item in text[begin:].split(b","):
        key, colon, value = item.partition(b":")
        if colon:
            if key.strip() in items:
                return cut  # another line was written into this one
            start = place + len(key) + 1
            items[key.strip()] = (start, start + len(value))
        place += len(item) + 1
    numbers = {}
    for name, keys in _KEYS.items():
        written = [items[key] for key in keys if key in items]
        if not written:
            continue
        number = _decimal(text, *written[0], places)
        if number is not None:
            numbers[name] = number
        elif name in _NEEDED:
            return cut
    queue = items.get(b"#queue-req")
    if queue is None or not text[slice(*queue)].strip()[:1].isdigit():
        return cut
    if "running" not in numbers or "throughput" not in numbers:
        return cut
    return replace(
        cut,
        kind=LineKind.DECODE,
        era=_era(text, begin, items),
        graph=_graph(text, items),
        speculative="accept_length" in numbers,
        numbers=tuple(numbers.get(name, Decimal()) for name in NUMBERS),
    )


_KEYS: Final = {
    "running": (b"#running-req",),
    "tokens": (b"#token", b"#full token"),
    "accept_length": (b"accept len",),
    "throughput": (b"gen throughput (token/s)", b"gen throughput"),
    "cap_length": (b"cap len",),
}
_NEEDED = ("running", "accept_length", "throughput")  # present without a value: the line is cut


def _era(text: bytes, begin: int, items: Iterable[bytes]) -> int:
    """Return the index of the oldest release that writes such a decode line."""
    keys = tuple(items)
    if any(key.startswith(_SUFFIXES) for key in keys):
        return ERAS.index("0.5.16")
    if text[:begin].rstrip().endswith(b","):
        return ERAS.index("0.5.6")
    if b"largest-len" in keys:
        return ERAS.index("0.4.3")
    return ERAS.index("0.5.4" if b"accept rate" in keys else "0.4.6")


def _graph(text: bytes, items: dict[bytes, tuple[int, int]]) -> Graph:
    """Return what a decode line says of its graph, whatever the backend is called."""
    for key, (start, end) in items.items():
        if key.endswith(b" graph"):
            value = text[start:end].strip().lower()
            return {b"true": Graph.CAPTURED, b"false": Graph.EAGER}.get(value, Graph.UNKNOWN)
    return Graph.UNKNOWN


def _decimal(text: bytes, start: int, end: int, places: TextPlaces) -> Decimal | None:
    """Return the number that an item's value is, None where it is none that can be measured."""
    found = _NUMBER.fullmatch(text, start, end)
    if found is None or len(found["whole"]) > _MOST_DIGITS:
        return None
    whole = places.digits(*found.span("whole"))
    if not found["fraction"]:
        return None if whole is None else Decimal(whole)
    first, last = found.span("fraction")
    fraction = places.digits(first, min(last, first + _MOST_DIGITS))
    return None if whole is None or fraction is None else Decimal(whole, fraction)


def _labelled(found: re.Match[bytes], places: TextPlaces) -> LineLayout:
    """Return the layout of a line of which nothing but the rank label is known."""
    label = found["label"]
    start = found.start("label") + len(label) - len(label.lstrip())
    end = found.start("label") + len(label.rstrip())
    ranks = []
    for rank in list(_RANK.finditer(found.string, start, end))[:MOST_RANKS]:
        digits = places.digits(*rank.span(1))
        if digits is not None and digits.width <= _MOST_RANK_DIGITS:
            ranks.append(digits)
    return LineLayout(
        kind=LineKind.CUT,
        label=places.between(start, end),
        letters=label.strip().translate(None, b"0123456789"),
        ranks=tuple(ranks),
    )


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
        # eight digits of all lines at once: pairs, fours, then eight
        digits = ((words[before] >> shift) << shift) & np.uint64(0x0F0F0F0F0F0F0F0F)
        pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
        fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        eights = (fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        return np.where(width > 0, eights.astype(np.int64), 0)


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
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 0x0A)
            starts = np.concatenate(([0], ends + 1))[indices]
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
        words, begins, layouts = words_of(block), starts[batch], which[batch]
        lines = BatchLines(
            line=indices[batch] + (self._lines_before + 1),
            kind=kind[batch],
            era=self._table.fact("era", layouts),
            graph=self._table.fact("graph", layouts),
            speculative=self._table.fact("speculative", layouts) > 0,
            rank=self._ranks(block, words, begins, layouts),
            **self._table.numbers(words, begins, layouts),
        )
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
