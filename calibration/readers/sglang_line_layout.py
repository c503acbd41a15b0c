r"""What a line of an SGLang server log is, and where in it the numbers stand.

Both follow from the layout alone: the line with every digit written as 0. A log of ten million
lines has a few hundred layouts, so each is looked at once and with care; the numbers of all lines
are then taken out by their places.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from calibration.readers.terminal_text import LINE_PREFIX, NO_DIGITS, Digits, TextPlaces, cleaned

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
    for key, start, end in _items(text, begin):
        if key in items:
            return cut  # another line was written into this one
        items[key] = (start, end)
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


def _items(text: bytes, begin: int) -> Iterable[tuple[bytes, int, int]]:
    """Yield key and place of the value of each item."""
    place = begin
    for item in text[begin:].split(b","):
        key, colon, value = item.partition(b":")
        if colon:
            start = place + len(key) + 1
            yield key.strip(), start, start + len(value)
        place += len(item) + 1


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
