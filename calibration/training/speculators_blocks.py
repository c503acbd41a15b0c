r"""Whole blocks of a speculators log at once, where its records look alike.

A pattern is made from the order of the keys of a record that was read line by line; records that match
it, also those wrapped at commas, are taken many at a time. What does not match exactly is left to be
read line by line, in the order of the file: the result is the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibration.training.number_columns import PrintedNumbers
from calibration.training.physical_lines import split_prefix, without_control_sequences
from calibration.training.records import Array
from calibration.training.speculators_console import SpeculatorsLines
from calibration.training.speculators_keys import KeyPlan, key_plans

_MOST_RECORDS: Final = 4096  # that are taken at once
_MOST_ACTIVE: Final = 4  # patterns that are looked for
_MOST_PATTERNS: Final = 32  # in a log: more kinds of records are not alike
_REST_BYTES: Final = 1 << 16  # read line by line before looking for a pattern again
_MOST_KNOWN: Final = 1 << 12
_NUMBER = rb"([\d.e+-]{1,20})"
_OTHER = rb"[^,\s=]{1,40}"
_SPACES = rb"[ ]{0,2000}"
_PATH = rb"[ ]{1,2000}[\w.-]{1,100}\.py:\d{1,7}"
_BREAK = _SPACES + rb"\n[ ]{20}"
_SEPARATOR = rb",(?:[ ](?=[A-Za-z])|" + _BREAK + rb"|" + _PATH + _BREAK + rb")"
_START = rb"(\S[^\r\n]{0,150}?)??(?:\[\d\d:\d\d:\d\d\]|[ ]{10}) INFO     "
_END = rb"(?:" + _PATH + rb")?" + _SPACES + rb"\n(?![ ]{20})"
_LEVEL = b"INFO     "
_LINE_FEED = ord("\n")
_MOST_BEFORE_LEVEL = 200
_RECORD = "["  # how what stands behind a prefix begins


@dataclass(slots=True)
class _Pattern:
    """What records with certain keys look like."""

    plan: KeyPlan
    # Columns of `RecordTable` in the order in which the numbers are printed.
    names: tuple[str, ...]
    compiled: re.Pattern[bytes]
    # What its first line contains.
    beginning: bytes


@dataclass(slots=True)
class _Run:
    """Records of one pattern that follow each other."""

    pattern: _Pattern
    lines: Array
    groups: list[tuple[bytes, ...]]


@dataclass(slots=True)
class SpeculatorsBlocks:
    """Takes the records that look alike out of blocks of a log."""

    # what reads the rest line by line. It must be fed what `rest` yields before `rest` goes on
    lines: SpeculatorsLines
    _patterns: dict[tuple[str, ...], _Pattern] = field(init=False, default_factory=dict)
    _active: list[_Pattern] = field(init=False, default_factory=list)
    _numbers: PrintedNumbers = field(init=False, default_factory=PrintedNumbers)
    _streams: dict[bytes, str | None] = field(init=False, default_factory=dict)

    def rest(self, first_line: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Take records and yield what is left, in the order of the file."""
        block = _cleaned(block)
        state = _Place(line=first_line, left_line=first_line)
        while state.place < len(block):
            if state.place - state.left >= _REST_BYTES:
                yield state.give(block)
            if state.place == state.left:
                self._choose()
            pattern = self._beginning(block, state.place)
            if pattern is None:
                state.advance(block, self._end_of_rest(block, state))
                continue
            if state.left < state.place:
                yield state.give(block)
            self._take(self._run(block, pattern, state), state)
        if state.left < len(block):
            yield state.give(block)

    def _choose(self) -> None:
        """Make patterns of the kinds of records that are new."""
        for keys in self.lines.layouts:
            if keys not in self._patterns and len(self._patterns) < _MOST_PATTERNS:
                pattern = self._patterns[keys] = _pattern(keys)
                self._active = [pattern, *self._active[: _MOST_ACTIVE - 1]]

    def _beginning(self, block: bytes, place: int) -> _Pattern | None:
        """Return the pattern of the record that begins at a place."""
        if not self._active or block.find(_LEVEL, place, place + _MOST_BEFORE_LEVEL) < 0:
            return None
        for pattern in self._active:
            match = pattern.compiled.match(block, place)
            if match is not None and self.lines.takes(pattern.plan):
                return pattern if self._sound(match) else None
        return None

    def _run(self, block: bytes, pattern: _Pattern, state: "_Place") -> _Run:
        """Return the records of a pattern that begin at a place and go on without a gap."""
        matches, size, place = pattern.compiled.match, len(block), state.place
        starts: list[int] = []
        groups: list[tuple[bytes, ...]] = []
        for _ in range(_MOST_RECORDS):
            match = matches(block, place)
            if match is None:
                break
            found, end = match.groups(), match.end()
            if end == size or (found[0] is not None and not self._sound(match)):
                break  # the last record of a block may go on in the next one
            starts.append(place)
            groups.append(found)
            place = end
        ends = np.flatnonzero(
            np.frombuffer(block, np.uint8, place - state.place, state.place) == _LINE_FEED
        )
        lines = state.line + np.searchsorted(ends, np.array(starts) - state.place)
        state.place, state.line = place, state.line + len(ends)
        return _Run(pattern, lines.astype(np.float64), groups)

    def _sound(self, match: re.Match[bytes]) -> bool:
        """Return whether a record ends inside its block, and the label of a stream stands before it."""
        prefix = match[1]
        return match.end() < len(match.string) and (
            prefix is None or self._stream(prefix) is not None
        )

    def _end_of_rest(self, block: bytes, state: "_Place") -> int:
        """Return how far what begins at a place is read line by line: to where a record may begin."""
        place = state.place
        most = block.find(b"\n", place + _REST_BYTES) + 1 or len(block)
        if not self._active:  # nothing to look for
            return most
        end = block.find(b"\n", place, most) + 1 or most
        end = block.find(b"\r", place, end) + 1 or end
        first = min(most, *(state.next(block, one.beginning, end) for one in self._active))
        return max(end, block.rfind(b"\n", end, first) + 1, block.rfind(b"\r", end, first) + 1)

    def _stream(self, prefix: bytes) -> str | None:
        """Return the label of a stream, None where what stands before a record is something else."""
        if prefix not in self._streams:
            if len(self._streams) >= _MOST_KNOWN:  # time stamps
                self._streams.clear()
            label, behind = split_prefix(prefix.decode("utf-8", "replace") + _RECORD)
            self._streams[prefix] = label if behind == _RECORD else None
        return self._streams[prefix]

    def _take(self, run: _Run, state: "_Place") -> None:
        """Add the records of a run; where one is not sound, leave all to be read line by line."""
        prefixes, *printed = zip(*run.groups, strict=True)
        length = len(run.lines)
        columns: dict[str, Sequence[float] | Array] = {"line": run.lines}
        try:
            for name, texts in zip(run.pattern.names, printed, strict=True):
                columns[name] = self._numbers.column(texts)
        except ValueError:
            return
        if not np.isfinite(np.concatenate(tuple(columns.values()))).all():
            return
        labels = {text: self._stream(text) or "" for text in set(prefixes) if text is not None}
        streams = [labels.get(text, "") for text in prefixes] if labels else []
        self.lines.close(set(streams) or {""})
        table = self.lines.raw.table(run.pattern.plan.family, run.pattern.plan.split)
        columns["stream"] = (
            [float(table.label(stream)) for stream in streams]
            if streams
            else np.full(length, float(table.label("")))
        )
        self.lines.store(run.pattern.plan, columns, length)
        state.left, state.left_line = state.place, state.line


@dataclass(slots=True)
class _Place:
    """How far a block was looked at, and from where on nothing was taken or given."""

    line: int
    left_line: int
    place: int = 0
    left: int = 0
    _found: dict[bytes, int] = field(init=False, default_factory=dict)

    def next(self, block: bytes, text: bytes, start: int) -> int:
        """Return where a text stands next, at its end if nowhere; no byte is searched twice."""
        found = self._found.get(text, -1)
        if found < start:
            found = block.find(text, start)
            self._found[text] = found = found if found >= 0 else len(block)
        return found

    def advance(self, block: bytes, end: int) -> None:
        """Go on to a place."""
        self.line += block.count(b"\n", self.place, end)
        self.place = end

    def give(self, block: bytes) -> tuple[int, bytes]:
        """Return what is left so far."""
        given = self.left_line, block[self.left : self.place]
        self.left, self.left_line = self.place, self.line
        return given


def _pattern(keys: tuple[str, ...]) -> _Pattern:
    """Return what records with certain keys look like."""
    (plan,) = key_plans(keys)
    names = {place: name for name, place in plan.columns.items()}
    pairs = (
        re.escape(key).encode() + b"=" + (_NUMBER if place in names else _OTHER)
        for place, key in enumerate(keys)
    )
    return _Pattern(
        plan=plan,
        names=tuple(names[place] for place in sorted(names)),
        compiled=re.compile(_START + _SEPARATOR.join(pairs) + _END),
        beginning=_LEVEL + keys[0].encode() + b"=",
    )


def _cleaned(block: bytes) -> bytes:
    """Return a block of as many lines without control sequences and returns before line feeds."""
    if b"\x1b" in block:
        text = block.decode("utf-8", "surrogateescape")
        block = without_control_sequences(text).encode("utf-8", "surrogateescape")
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block
