"""Whole blocks of a log at once, where its records look alike.

A pattern is made from the keys of records that were read line by line; records that match it, also those
wrapped at commas, are taken many at a time. What does not match exactly is left to be read line by line, in
the order of the file: the result is the same.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from calibration.training.lines import PrintedNumbers, without_control_sequences
from calibration.training.records import Array

NUMBER: Final = rb"([\d.e+-]{1,30})"  # how a pattern takes a number

_MOST_RECORDS: Final = 4096  # that are taken at once
_MOST_ACTIVE: Final = 8  # patterns that are looked for
_REST_BYTES: Final = 1 << 16  # read line by line before looking for a pattern again
_MOST_KNOWN: Final = 1 << 12
_MOST_BEFORE: Final = 300  # what begins a record, [bytes]
_LINE_FEED = ord("\n")


class Pattern(NamedTuple):
    """What records with certain keys look like."""

    compiled: re.Pattern[
        bytes
    ]  # its first group is what stands before the record, the others numbers
    beginning: bytes  # what its first line contains
    names: tuple[str, ...]  # columns of `RecordTable` in the order in which the numbers are printed
    label: Callable[[bytes], str | None]  # of the stream, of what stands before; None where unsound
    takes: Callable[[], bool]  # whether the log, as far as it was read, lets such records be taken
    store: Callable[[Mapping[str, Sequence[float] | Array], Sequence[str]], None]


@dataclass(slots=True)
class AlikeBlocks:
    """Takes the records that look alike out of blocks of a log."""

    # Yields what was learnt since; what `rest` yields must be read before `rest` goes on.
    learnt: Callable[[], Iterator[Pattern]]
    _active: list[Pattern] = field(init=False, default_factory=list)
    _numbers: PrintedNumbers = field(init=False, default_factory=PrintedNumbers)
    _streams: dict[tuple[bytes, bytes], str | None] = field(init=False, default_factory=dict)

    def rest(self, first_line: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Take records and yield what is left, in the order of the file."""
        block = _cleaned(block)
        state = _Place(line=first_line, left_line=first_line)
        while state.place < len(block):
            if state.place - state.left >= _REST_BYTES:
                yield state.give(block)
            if state.place == state.left:
                for pattern in self.learnt():
                    self._active = [pattern, *self._active[: _MOST_ACTIVE - 1]]
            found = self._beginning(block, state.place)
            if found is None:
                state.advance(block, self._end_of_rest(block, state))
                continue
            if state.left < state.place:
                yield state.give(block)
            self._take(found, *self._run(block, found, state), state)
        if state.left < len(block):
            yield state.give(block)

    def _beginning(self, block: bytes, place: int) -> Pattern | None:
        """Return the pattern of the record that begins at a place."""
        for pattern in self._active:
            if block.find(pattern.beginning, place, place + _MOST_BEFORE) >= 0:
                match = pattern.compiled.match(block, place)
                if match is not None and pattern.takes():
                    return pattern if self._sound(pattern, match) else None
        return None

    def _run(
        self, block: bytes, pattern: Pattern, state: "_Place"
    ) -> tuple[Array, list[tuple[bytes, ...]]]:
        """Return lines and groups of the records of a pattern that begin at a place and go on without a gap."""
        matches, size, place = pattern.compiled.match, len(block), state.place
        starts: list[int] = []
        groups: list[tuple[bytes, ...]] = []
        for _ in range(_MOST_RECORDS):
            match = matches(block, place)
            if match is None:
                break
            found, end = match.groups(b""), match.end()
            if end == size or (found[0] and not self._sound(pattern, match)):
                break  # the last record of a block may go on in the next one
            starts.append(place)
            groups.append(found)
            place = end
        ends = np.flatnonzero(
            np.frombuffer(block, np.uint8, place - state.place, state.place) == _LINE_FEED
        )
        lines = state.line + np.searchsorted(ends, np.array(starts) - state.place)
        state.place, state.line = place, state.line + len(ends)
        return lines.astype(np.float64), groups

    def _sound(self, pattern: Pattern, match: re.Match[bytes]) -> bool:
        """Return whether a record ends inside its block, and the label of a stream stands before it."""
        inside = match.end() < len(match.string)
        return inside and self._stream(pattern, match[1] or b"") is not None

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

    def _stream(self, pattern: Pattern, before: bytes) -> str | None:
        """Return the label of a stream, None where what stands before a record is something else."""
        key = (pattern.beginning, before)
        if key not in self._streams:
            if len(self._streams) >= _MOST_KNOWN:  # time stamps
                self._streams.clear()
            self._streams[key] = pattern.label(before)
        return self._streams[key]

    def _take(
        self, pattern: Pattern, lines: Array, groups: list[tuple[bytes, ...]], state: "_Place"
    ) -> None:
        """Add the records of a run; where one is not sound, leave all to be read line by line."""
        if not pattern.takes():
            return
        try:
            numbers = self._numbers.table([group[1:] for group in groups])
        except ValueError:
            return
        if not np.isfinite(numbers).all():
            return
        columns = {"line": lines, **dict(zip(pattern.names, numbers, strict=True))}
        pattern.store(columns, [self._stream(pattern, group[0]) or "" for group in groups])
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


def _cleaned(block: bytes) -> bytes:
    """Return a block of as many lines without control sequences and returns before line feeds."""
    if b"\x1b" in block:
        text = block.decode("utf-8", "surrogateescape")
        block = without_control_sequences(text).encode("utf-8", "surrogateescape")
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block
