r"""Many dictionaries of steps of SpecForge at once, where they look alike.

A pattern is made from the keys of dictionaries that were read one by one; lines that match it are taken
many at a time. What does not match exactly is left to be read one by one: the result is the same.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibration.training.number_columns import PrintedNumbers
from calibration.training.physical_lines import split_prefix
from calibration.training.records import Array
from calibration.training.specforge_dicts import KnownKeys, StepDictionaries

_MOST_RECORDS: Final = 4096  # that are taken at once
_MOST_KNOWN: Final = 1 << 12
_NUMBER = rb"([\d.e+-]{1,30})"
_OTHER = rb"[^,'{}\r\n]{1,60}"
_START = rb"([^\r\n{]{0,200}?)step (\d{1,12}): \{"
_END = rb"\}[ ]{0,200}\n"
_RECORD = "step 1: {"  # how what stands behind a prefix begins
_OTHERS_MARKS = ("position ", "Training Epoch ")  # of records that would be glued in front


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What dictionaries with certain keys look like."""

    known: KnownKeys
    # Columns of `RecordTable` in the order in which the numbers are printed.
    names: tuple[str, ...]
    compiled: re.Pattern[bytes]
    beginning: bytes


@dataclass(frozen=True, slots=True)
class _Run:
    """Dictionaries of one pattern on lines that follow each other."""

    pattern: _Pattern
    end: int
    groups: list[tuple[bytes, ...]]


@dataclass(slots=True)
class StepBlocks:
    """Takes the dictionaries that look alike out of blocks of a log."""

    dictionaries: StepDictionaries  # what reads them one by one, and knows their keys
    before: Callable[[], None]  # called before some are taken
    _patterns: list[_Pattern] = field(init=False, default_factory=list)
    _numbers: PrintedNumbers = field(init=False, default_factory=PrintedNumbers)
    _streams: dict[bytes, str | None] = field(init=False, default_factory=dict)

    def rest(
        self, first_line: int, block: bytes, may_take: Callable[[], bool]
    ) -> Iterator[tuple[int, bytes]]:
        """Take dictionaries and yield what is left, in the order of the file."""
        self._patterns += [_pattern(k) for k in self.dictionaries.known[len(self._patterns) :]]
        found: dict[bytes, int] = {}
        place = left = 0
        while (start := self._next(block, place, found)) < len(block):
            run = self._run(block, start)
            if run is None:
                place = block.find(b"\n", start) + 1 or len(block)
                continue
            place = run.end
            if left < start:
                yield first_line, block[left:start]
                first_line += block.count(b"\n", left, start)
                left = start
            if may_take() and self._take(run, first_line):
                first_line, left = first_line + len(run.groups), run.end
        if left < len(block):
            yield first_line, block[left:]

    def _next(self, block: bytes, place: int, found: dict[bytes, int]) -> int:
        """Return where the next line begins that may hold a dictionary of a pattern."""
        first = len(block)
        for pattern in self._patterns:
            text = pattern.beginning
            if found.get(text, -1) < place:  # no byte is searched twice
                at = block.find(text, place)
                found[text] = at if at >= 0 else len(block)
            first = min(first, found[text])
        if first == len(block):
            return first
        start = max(place, block.rfind(b"\n", place, first) + 1)
        return max(start, block.rfind(b"\r", start, first) + 1)

    def _run(self, block: bytes, start: int) -> _Run | None:
        """Return the dictionaries of one pattern that begin at a place; None where there is none."""
        alike = (one for one in self._patterns if one.compiled.match(block, start))
        pattern = next(alike, None)
        if pattern is None:
            return None
        matches, place = pattern.compiled.match, start
        groups: list[tuple[bytes, ...]] = []
        while len(groups) < _MOST_RECORDS:
            match = matches(block, place)
            if match is None or self._stream(match[1]) is None:
                break
            groups.append(match.groups())
            place = match.end()
        return _Run(pattern, place, groups) if groups else None

    def _stream(self, prefix: bytes) -> str | None:
        """Return the label of a stream; None where what stands in front may be something else."""
        if prefix not in self._streams:
            if len(self._streams) >= _MOST_KNOWN:  # time stamps
                self._streams.clear()
            text = prefix.decode("utf-8", "replace")
            label, behind = split_prefix(text + _RECORD)
            is_sound = behind.endswith(_RECORD) and not any(mark in text for mark in _OTHERS_MARKS)
            self._streams[prefix] = label if is_sound else None
        return self._streams[prefix]

    def _take(self, run: _Run, first_line: int) -> bool:
        """Add the dictionaries of a run; False where one is not sound: all are read one by one."""
        try:
            numbers = self._numbers.table([group[1:] for group in run.groups])
        except ValueError:
            return False
        if not np.isfinite(numbers).all():
            return False
        columns: dict[str, Sequence[float] | Array] = {
            "line": np.arange(first_line, first_line + len(run.groups), dtype=np.float64)
        }
        columns |= zip(run.pattern.names, numbers, strict=True)
        self.before()
        labels = [self._stream(group[0]) or "" for group in run.groups]
        self.dictionaries.add_known(run.pattern.known, columns, labels)
        return True


def _pattern(known: KnownKeys) -> _Pattern:
    """Return what dictionaries with certain keys look like."""
    names = dict(zip(known.places, known.layout.columns[1:], strict=True))
    keys = [re.escape(key.encode()) for key in known.keys]
    values = [_NUMBER if place in names else _OTHER for place in range(len(keys))]
    pairs = (b"'" + key + b"': " + value for key, value in zip(keys, values, strict=True))
    return _Pattern(
        known=known,
        names=("step", *(names[place] for place in sorted(names))),
        compiled=re.compile(_START + b", ".join(pairs) + _END),
        beginning=b": {'" + known.keys[0].encode() + b"': ",
    )
