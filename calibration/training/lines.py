"""Lines of training logs: line ends, printed numbers, progress bars, dictionaries."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.training.records import PRINTED_NAN, Array, RawLog, Split
from specmodel.units import PERCENT

# ---
# Lines of a training log as a program printed them: decoded, without what terminals and containers add.
#
# Decode, remove control sequences, split at line feeds and carriage returns, take off the labels of
# streams, in this order. A bar and a record that a carriage return glued are two lines with one number.
_MOST_PREFIXES = 4

# What moves the cursor to a place that is not behind the text: another line begins there.
_CURSOR = re.compile(r"\x1b\[(?:2K|\d{0,4}[ABEFGHJ]|\d{1,4};\d{1,4}[Hf])")
_CONTROL = re.compile(
    r"\x1b(?:"
    r"\[[0-?]{0,40}[ -/]{0,4}[@-~]"  # CSI: colours, parts of a line
    r"|\][^\x07\x1b\r\n]{0,2000}(?:\x07|\x1b\\)"  # OSC: links, titles
    r"|[()*+][0-9A-Za-z]"  # character sets
    r"|[0-9=>@-Z\\^_a-z]"
    r")?"
)

_PREFIX = re.compile(
    r"""
    (?:
        \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)(?:[ ]|$)  # container
      | (?:stdout|stderr)[ ][FP](?:[ ]|$)                                            # kubelet
      | [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,80}[ ][\w./-]{1,80}(?:\[\d+\])?:[ ]
      | \[((?i:rank|local_rank|default|trainer|worker|node|proc)[ _:=-]?\d{1,6}
           |pod/[\w./-]{1,150})\]:?[ ]?                                              # torchrun
      | \[(\d{1,5},\d{1,5})\]<std(?:out|err|diag)>:[ ]?                              # mpirun
      | \(([A-Za-z_][\w.:<>-]{0,100}[ ]pid=\d{1,9}(?:,[ ]ip=[\w.:]{1,60})?)\)(?:[ ]|$)  # ray
      | [ ]{0,4}(\d{1,5}):(?:[ ]|$)                                                  # srun
      | (?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)
        ([A-Za-z][\w.@/-]{0,100})[ ]{0,40}\|(?:[ ]|$)                                # compose
    )
    """,
    re.VERBOSE | re.ASCII,
)
_MAY_BE_PREFIX = frozenset(" 0123456789[(ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class CutText(str):
    """Text of a last line that the file ends in: without a line end, its last number may be cut."""

    __slots__ = ()


def physical_lines(
    blocks: Iterable[bytes], *, first_line: int = 1
) -> Iterator[tuple[int, str, str]]:
    """Yield number, stream and text of every line that is not blank."""
    number = first_line
    for block in blocks:
        yield from _lines_of(block, number)
        number += block.count(b"\n")


def without_control_sequences(text: str) -> str:
    """Return a text without what is meant for a terminal; where the cursor moves, a return stands."""
    return text if "\x1b" not in text else _CONTROL.sub("", _CURSOR.sub("\r", text))


def split_prefix(text: str) -> tuple[str, str]:
    """Return the label of the stream and the rest of a line."""
    labels = ""
    for _ in range(_MOST_PREFIXES):
        if not text or text[0] not in _MAY_BE_PREFIX:
            break
        found = _PREFIX.match(text)
        if found is None:
            break
        label = found[found.lastindex] if found.lastindex else ""
        labels = f"{labels}/{label}" if labels and label else labels or label
        text = text[found.end() :]
    return labels, text


def _lines_of(block: bytes, number: int) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of one block."""
    lines = without_control_sequences(block.decode("utf-8", "replace")).split("\n")
    last = len(lines) - 1
    for index, line in enumerate(lines):
        pieces = line.split("\r") if "\r" in line else [line]
        for place, piece in enumerate(pieces):
            if not piece or piece.isspace():
                continue
            stream, rest = split_prefix(piece)
            if index == last and place == len(pieces) - 1:
                rest = CutText(rest)
            if rest:
                yield number + index, stream, rest


# ---
# Numbers as trainers print them, and how finely they were printed.
# Pattern of a printed number; letters in either case.
NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|infinity)"

_LONGEST = 40
_FINITE = re.compile(r"[-+]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([-+]?\d+))?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)


def printed_number(text: str) -> float | None:
    """Return the number that a text is."""
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    if text.endswith("%"):
        number = printed_number(text[:-1]) if not text.endswith("%%") else None
        return None if number is None else number * PERCENT
    if _FINITE.fullmatch(text):
        number = float(text)
        return number if abs(number) < PRINTED_NAN else PRINTED_NAN
    return PRINTED_NAN if _NOT_FINITE.fullmatch(text) else None


def half_unit(text: str) -> float | None:
    """Return half a unit of the last printed digit of a number."""
    text = text.strip()
    percent = text.endswith("%")
    found = _FINITE.fullmatch(text.removesuffix("%")) if len(text) <= _LONGEST else None
    if found is None:
        return None
    decimals = len(found[1] or found[2] or "")
    exponent = int(found[3] or 0) - decimals
    unit = float(f"5e{exponent - 1}")
    return unit * PERCENT if percent else unit


# ---
# Many printed numbers at once.
_MOST_KNOWN: Final = 1 << 16
_FEWEST_AT_ONCE: Final = 512  # below it, one by one is faster
_MOST_DIGITS: Final = 15  # that a double holds exactly
_POINT = ord(".")
_ZERO = ord("0")
_COMMA = ord(",")
_DECIMAL = 10
_POWERS = np.array([float(_DECIMAL**power) for power in range(_MOST_DIGITS + 2)])


class PrintedNumbers(dict[bytes, float]):
    """Reads columns of finite numbers; what was printed once is read once, in bounded memory."""

    def __missing__(self, text: bytes) -> float:
        """Return a number that was not printed yet; ValueError where it is none."""
        if len(self) >= _MOST_KNOWN:
            self.clear()
        number = self[text] = float(text)
        return number

    def __deepcopy__(self, _memo: object) -> "PrintedNumbers":
        """Return itself: what is known of a text holds everywhere."""
        return self

    def table(self, rows: Sequence[Sequence[bytes]]) -> Array:
        """Return printed numbers of different widths, shape (columns, rows)."""
        texts = list(chain.from_iterable(rows))
        if len(texts) < _FEWEST_AT_ONCE:
            numbers = np.fromiter(map(self.__getitem__, texts), np.float64, len(texts))
        else:
            numbers, others = _of_many_forms(texts)
            for place in others.tolist():
                numbers[place] = self[texts[place]]
        return np.ascontiguousarray(numbers.reshape(len(rows), -1).T)


def _of_many_forms(texts: Sequence[bytes]) -> tuple[Array, NDArray[np.intp]]:
    """Return numbers that may have a point, and which of them are not plain: signs, exponents."""
    data = np.frombuffer(b",".join(texts) + b",", np.uint8)
    ends = np.flatnonzero(data == _COMMA)
    place = np.append(0, ends[:-1] + 1)
    whole = np.zeros(len(ends))
    digits, points, decimals = (np.zeros(len(ends), np.int16) for _ in range(3))
    for _ in range(min(int((ends - place).max()), _MOST_DIGITS + 1)):
        character = data[place]
        digit = character - np.uint8(_ZERO)  # what is below zero becomes large
        is_digit = digit < _DECIMAL
        whole = np.where(is_digit, whole * _DECIMAL + digit, whole)
        digits += is_digit
        decimals += is_digit & (points > 0)
        points += character == _POINT
        place = np.minimum(place + 1, ends)
    is_plain = (digits > 0) & (digits <= _MOST_DIGITS) & (points <= 1)
    is_plain &= digits + points == np.diff(ends, prepend=-1) - 1
    return whole / _POWERS[decimals], np.flatnonzero(~is_plain)


# ---
# States of progress bars (tqdm) in training logs: a counter, its total and what stands behind it.
#
# A bar is printed again and again into one line, first when its counter moves and once more when its
# numbers change: the last state of a counter is the one to keep.
_LONGEST_DESCRIPTION: Final = 80
_STATE = re.compile(
    r"(?:\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,20}(?P<counter>\d{1,12})/(?P<total>\d{1,12})"
    r"|(?<!\d)(?P<alone>\d{1,12})it)\s\[(?P<inside>[^\]\[\r\n]{0,2000})(?P<end>\]?)",
    re.ASCII,
)
_PAIR = re.compile(r"([A-Za-z_][\w./@-]{0,60})=([^\s,=\]\[]{1,40})(?=[,\]])", re.ASCII)


@dataclass(frozen=True, slots=True)
class BarState:
    """One state of a bar."""

    description: str  # what stands in front of it, without the colon
    counter: int  # steps done
    total: int | None  # steps to do; None where the bar does not know
    pairs: Mapping[str, str]  # what stands behind it, the complete pairs only
    is_closed: bool  # whether its closing bracket was printed


def bar_states(text: str) -> Iterator[BarState]:
    """Yield the states of bars in a line."""
    if "[" not in text or ("%|" not in text and "it [" not in text):
        return
    for found in _STATE.finditer(text):
        counter, total = found["counter"] or found["alone"], found["total"]
        yield BarState(
            description=_description(text, found.start()),
            counter=int(counter),
            total=int(total) if total else None,
            pairs=dict(_PAIR.findall(found["inside"] + found["end"])),
            is_closed=bool(found["end"]),
        )


class _Bar(NamedTuple):
    """The last state of a counter, and where it stands."""

    line: int
    stream: str
    epoch: float | None
    state: BarState


@dataclass(slots=True)
class Bars:
    """The bars of a trainer that show an accuracy: the last state of each counter is a record."""

    raw: RawLog  # what records are added to
    family: str
    layout: str
    name: re.Pattern[str]  # of the bar, with its epoch
    key: str  # that such a bar shows
    columns: Mapping[str, str]  # of `RecordTable`, by the key that the bar shows
    _latest: dict[str, _Bar] = field(init=False, default_factory=dict)  # by stream

    def take(self, line: int, stream: str, text: str) -> bool:
        """Take the states of a line; return whether there are any."""
        taken = False
        for state in bar_states(text):
            named = self.name.search(state.description)
            is_cut_short = isinstance(text, CutText) and not state.is_closed
            if named is None or not (self.key in state.pairs or is_cut_short):
                continue
            taken = True
            printed = named[1] if named.lastindex else state.pairs.get("epoch", "").split("/")[0]
            before, bar = (
                self._latest.get(stream),
                _Bar(line, stream, printed_number(printed), state),
            )
            self._latest[stream] = bar
            if before and (before.epoch, before.state.counter) != (bar.epoch, state.counter):
                self._add(before)
        return taken

    def end(self, *, is_last: bool = False) -> None:
        """Give the bars that are kept; the last of a file may be cut."""
        for bar in self._latest.values():
            if bar.state.is_closed or not is_last:
                self._add(bar)
            else:
                self.raw.warn("truncated-record", bar.line)
        self._latest.clear()

    def _add(self, bar: _Bar) -> None:
        """Add the last state of a counter, if it shows more than a loss."""
        pairs = bar.state.pairs
        values = {name: printed_number(pairs.get(key, "")) for key, name in self.columns.items()}
        if any(values[n] is not None for n in values if n.startswith(("mean_", "reported:"))):
            place = {"step": float(bar.state.counter), "epoch": bar.epoch}
            self.raw.add(
                self.family, Split.TRAIN, self.layout, bar.line, bar.stream, values | place,
                hints={"acceptance_rate"} & pairs.keys(), total_steps=bar.state.total,
            )  # fmt: skip


def is_cut(text: str, end: int) -> bool:
    """Return whether a number that ends at a place may be cut: the file ends there."""
    return isinstance(text, CutText) and end >= len(text)


def _description(text: str, end: int) -> str:
    """Return what stands between the state before and a state, without its colon."""
    before = text[max(0, end - _LONGEST_DESCRIPTION) : end].rstrip()
    return before[before.rfind("]") + 1 :].removesuffix(":").strip()


# ---
# Python dictionaries in training logs, printed by ``repr``: pairs of a key and numbers.
#
# They look like JSON but are not: quotes are single, ``nan`` and ``inf`` stand bare, lists and numbers
# with a type around them (``np.float64(0.5)``) occur.
# Most depths that are read; no drafter has as many.
MOST_DEPTHS: Final = 64

# What a dictionary holds: numbers and lists of numbers by key; other values are left out.
Numbers = Mapping[str, float | tuple[float, ...]]

_OPEN = re.compile(r"\{\s*['\"]")
_NESTED = re.compile(r"['\"]\s{0,4}:\s{0,4}(\{[^{}]*\})")
_DEEPEST = 8
_TYPED = r"(?:[A-Za-z_][\w.]{0,30}\()?['\"]?"  # np.float64(0.5), tensor(0.5, '0.5'
_KEY_AND_VALUE = re.compile(
    rf"['\"]([^'\"{{}}\[\]]{{1,120}})['\"]\s{{0,9}}:\s{{0,9}}"
    rf"(?:[\[(]([^\[\]{{}}]*)\]|{_TYPED}({NUMBER})(?=[^\w.+-]|$))",
    re.ASCII | re.IGNORECASE,
)
_ITEM = re.compile(rf"(?<![\w.])(?:{NUMBER})(?![\w.])", re.ASCII | re.IGNORECASE)


def dictionaries(text: str) -> Iterator[tuple[int, str]]:
    """Yield where the dictionaries of a line begin, and their text without the braces."""
    if text.count("{") > 1:
        text, inner = _without_nested(text)
        yield from inner
    place = 0
    while (end := text.find("}", place)) >= 0:
        start = text.rfind("{", place, end)
        if start >= 0:
            yield start, text[start + 1 : end]
        place = end + 1


def has_open_dictionary(text: str, start: int = 0) -> bool:
    """Return whether a dictionary of a line has no closing brace."""
    text, _ = _without_nested(text)
    found = _OPEN.search(text, start)
    while found is not None:
        closing = text.find("}", found.end())
        following = _OPEN.search(text, found.end())
        if closing < 0 or (following is not None and following.start() < closing):
            return True
        found = following
    return False


def numbers_of(body: str) -> Numbers:
    """Return the numbers of a dictionary."""
    try:
        found = _JSON.decode("{" + body.replace("'", '"') + "}")
    except (ValueError, RecursionError):
        return _numbers_by_pattern(body)
    for value in found.values():
        if type(value) is not float:
            return _plain_numbers(found)
    if PRINTED_NAN in found.values() or -PRINTED_NAN in found.values():
        return _plain_numbers(found)
    return found  # type: ignore[no-any-return]


def number(numbers: Numbers, *keys: str) -> float | None:
    """Return the first number that stands under one of some keys."""
    for key in keys:
        value = numbers.get(key)
        if isinstance(value, float):
            return value
    return None


def depths_of(numbers: Numbers, pattern: str, first: int = 0) -> tuple[float, ...]:
    """Return what stands under keys that count depths, up to the first that lacks."""
    values: list[float] = []
    while len(values) < MOST_DEPTHS:
        value = numbers.get(pattern.format(first + len(values)))
        if not isinstance(value, float):
            break
        values.append(value)
    return tuple(values)


def finest(values: Sequence[float]) -> float | None:
    """Return half a unit of the last digit of the finest of some numbers that `repr` printed.

    ``repr`` leaves zeros at the end out, so one number says nothing about how it was rounded.
    """
    halves = (half_unit(repr(value)) for value in values if value % 1.0)
    return min((half for half in halves if half is not None), default=None)


def list_numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of the text of a list, at most `MOST_DEPTHS`."""
    values: list[float] = []
    for found in _ITEM.finditer(text):
        value = printed_number(found[0])
        if value is not None:
            values.append(value)
        if len(values) == MOST_DEPTHS:
            break
    return tuple(values)


def _without_nested(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a line with blanks in the place of dictionaries that are values, and these by place."""
    inner: list[tuple[int, str]] = []
    for _ in range(_DEEPEST):
        found = [(one.start(1), one.end(1)) for one in _NESTED.finditer(text)]
        if not found:
            break
        inner += [(start, text[start + 1 : end - 1]) for start, end in found]
        pieces, done = [], 0
        for start, end in found:
            pieces += [text[done:start], "''".ljust(end - start)]  # all places stay what they are
            done = end
        text = "".join(pieces) + text[done:]
    return text, inner


def _numbers_by_pattern(body: str) -> Numbers:
    """Return the numbers of what is no JSON."""
    numbers: dict[str, float | tuple[float, ...]] = {}
    for key, items, scalar in _KEY_AND_VALUE.findall(body):
        value = printed_number(scalar) if scalar else list_numbers(items)
        if value is not None:
            numbers[key] = value
    return numbers


def _plain_numbers(found: Mapping[str, object]) -> Numbers:
    """Return numbers and lists of numbers of what JSON read."""
    numbers: dict[str, float | tuple[float, ...]] = {}
    for key, value in found.items():
        if isinstance(value, list):
            items = tuple(
                n for n in (_plain_number(v) for v in value[:MOST_DEPTHS]) if n is not None
            )
            numbers[key] = items
        else:
            plain = _plain_number(value)
            if plain is not None:
                numbers[key] = plain
    return numbers


def _plain_number(value: object) -> float | None:
    """Return a number that JSON read, or that stands in quotes."""
    if isinstance(value, str):
        return printed_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return PRINTED_NAN
    return plain if abs(plain) < PRINTED_NAN else PRINTED_NAN


def _not_finite(_name: str) -> float:
    """Return what stands for NaN and the infinities of JSON."""
    return PRINTED_NAN


_JSON: Final = json.JSONDecoder(parse_constant=_not_finite)
