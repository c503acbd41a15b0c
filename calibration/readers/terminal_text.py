"""Lines of logs as terminals and containers leave them: what is in front of them and in between."""

import re
from dataclasses import dataclass
from typing import Final

# What containers, clusters and terminals put before a line. No quotes: a quoted line is data.
# Possessive throughout: what was read as a prefix is not read in another way.
# Pattern, in verbose form, of what may stand before a line.
LINE_PREFIX: Final = rb"""[ \t]*+(?:(?>
        [\w.@/-]{1,120}[ \t]{0,40}\|(?=[ \t])                          # compose, swarm
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?=[ \t])  # docker -t
      | (?:stdout|stderr)[ ][FP](?=[ ])                                # kubelet
      | \[[A-Za-z][\w./-]{0,150}\]:?(?=[ ])                            # [pod/name], [rank0]:
      | [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,80}[ ][\w./-]{1,80}(?:\[\d+\])?:(?=[ ])
      | \([\w.:=,\ -]{1,120}\)(?=[ ])                                  # ray
      | \d{1,6}:(?=[ ])                                                # srun -l
      | [\w./-]{1,120}:(?:\d+:)?(?=\[\d)                               # grep
      | [a-z0-9][a-z0-9.]{0,60}-[a-z0-9.-]{1,120}[ ][a-z0-9-]{1,60}(?=[ ]\[)  # stern
    )[ \t]*+){0,6}+"""

_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])"
)


@dataclass(frozen=True, slots=True)
class Digits:
    """A run of digits in a line."""

    end: int = 0  # place behind the last digit, from the start of the line
    width: int = 0  # how many digits; 0 where there is no number


NO_DIGITS: Final = Digits()


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """From places in a cleaned text to places in its line."""

    offset: int
    kept: tuple[int, ...]

    def digits(self, start: int, end: int) -> Digits | None:
        """Return a run of digits, None where something stands between them."""
        if not self.kept:
            return Digits(self.offset + end, end - start)
        first, last = self.kept[start], self.kept[end - 1]
        return (
            Digits(self.offset + last + 1, end - start) if last - first == end - 1 - start else None
        )

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Return where a piece of the cleaned text stands."""
        if start >= end:
            return (0, 0)
        if not self.kept:
            return (self.offset + start, self.offset + end)
        return (self.offset + self.kept[start], self.offset + self.kept[end - 1] + 1)


_ESCAPE_IN_TEXT = re.compile(_ESCAPE.pattern.decode("ascii"))


def without_escapes(line: str) -> str:
    """Return a line without what tells a terminal colours."""
    return _ESCAPE_IN_TEXT.sub("", line) if "\x1b" in line else line


def cleaned(line: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return a line without terminal controls, and where its bytes stood; empty where unchanged."""
    if b"\x1b" not in line and b"\r" not in line:
        return line, ()
    places: list[int] = []
    start = 0
    for escape in _ESCAPE.finditer(line):
        places += range(start, escape.start())
        start = escape.end()
    places += range(start, len(line))
    places = [place for place in places if line[place] != 0x0D]
    return bytes(line[place] for place in places), tuple(places)
