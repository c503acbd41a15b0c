"""All families that read lines, fed the blocks of a log together."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from calibration.training.alike_blocks import AlikeBlocks, Pattern
from calibration.training.lines import CutText, physical_lines, split_prefix
from calibration.training.modelopt_log import ModelOptLines
from calibration.training.records import RawLog
from calibration.training.run_tables import KeyValueLines
from calibration.training.small_trainers import (
    AutomodelLines,
    DeepSpecLines,
    Eagle1Lines,
    Eagle3Lines,
    HfTrainerLines,
    TorchSpecLines,
)
from calibration.training.specforge_log import SpecForgeLines
from calibration.training.speculators_log import SpeculatorsLines

# ---
# Which lines of a block may be part of a record: most lines of some logs are not, and are passed over.
#
# A line is marked where it contains what every record of some family contains. The bytes of a piece of
# the block are searched at once; where many lines are marked, all are.
_MARKS: Final = (
    *(b"{", b"acc", b"Acc", b"loss", b"AR:", b"poch", b"position "),  # of all families
    *(b"train/", b"val/", b"profile", b"step=", b"lr=", b"lr/"),  # speculators, wrapped anywhere
    *(b"INFO     t", b"INFO     v"),  # a beginning of train/ or val/, broken behind it
)
_BLANKS = re.compile(rb"    +")  # fewer are no indent of a record
_BEFORE_INDENT = b"\n\r:])|FPZ0123456789"  # a line begins, or a prefix ends

_PIECE_BYTES: Final = 1 << 16
_FEWEST_BYTES: Final = 1 << 10  # worth a search
_MANY_BYTES: Final = 400  # a marked line in so many bytes: the others are not worth a search


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Lines that follow each other and are of one kind."""

    line: int  # number of the first one
    text: bytes  # the lines
    is_marked: bool  # whether they may be part of a record; where not, none is


def line_groups(first_line: int, block: bytes, *, is_open: bool = False) -> Iterator[LineGroup]:
    """Yield the lines of a block, together where they are of one kind."""
    start = 0
    while start < len(block):
        end = block.rfind(b"\n", start, start + _PIECE_BYTES) + 1
        end = end or block.find(b"\n", start) + 1 or len(block)
        piece = block[start:end]
        marked = _marked(piece, is_open=is_open)
        is_open |= bool(marked)
        place = 0
        for begin, stop in marked:
            if begin > place:
                yield LineGroup(first_line, piece[place:begin], is_marked=False)
                first_line += piece.count(b"\n", place, begin)
            yield LineGroup(first_line, piece[begin:stop], is_marked=True)
            first_line += piece.count(b"\n", begin, stop)
            place = stop
        if place < len(piece):
            yield LineGroup(first_line, piece[place:], is_marked=False)
            first_line += piece.count(b"\n", place)
        start = end


def _marked(piece: bytes, *, is_open: bool) -> list[tuple[int, int]]:
    """Return where marked lines begin and end, joined where they follow each other."""
    size = len(piece)
    if size < _FEWEST_BYTES:
        return [(0, size)]
    most = size // _MANY_BYTES
    lines: dict[int, int] = {}
    for mark in _MARKS:
        place = piece.find(mark)
        while place >= 0:
            end = piece.find(b"\n", place) + 1 or size
            lines[piece.rfind(b"\n", 0, place) + 1] = end
            place = piece.find(mark, end)
            if len(lines) > most:
                return [(0, size)]
    if not piece.endswith(b"\n"):
        lines[piece.rfind(b"\n") + 1] = size
    if is_open or lines:
        _add_indented(piece, lines)
    joined: list[tuple[int, int]] = []
    for start in sorted(lines):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], lines[start])
        else:
            joined.append((start, lines[start]))
    return joined


def _add_indented(piece: bytes, lines: dict[int, int]) -> None:
    """Add the lines in which blanks stand at the left, or behind a prefix."""
    for blanks in _BLANKS.finditer(piece):
        place, end = blanks.span()
        if place and piece[place - 1] not in _BEFORE_INDENT:
            continue
        start = piece.rfind(b"\n", 0, place) + 1
        if start in lines:
            continue
        before = piece[max(start, piece.rfind(b"\r", start, place) + 1) : end]
        _, behind = split_prefix(before.decode("utf-8", "replace"))
        if not behind or behind.isspace():
            lines[start] = piece.find(b"\n", end) + 1 or len(piece)


_SHARED: Final = "position "


class FamilyLines(Protocol):
    """Reads the records of one family from lines."""

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line; True where it is one of the family."""

    def finish(self) -> None:
        """Add what is open at the end of a file."""


_FACTORIES: Final[tuple[Callable[[RawLog], FamilyLines], ...]] = (
    Eagle3Lines,
    Eagle1Lines,
    TorchSpecLines,
    AutomodelLines,
    DeepSpecLines,
    ModelOptLines,
    HfTrainerLines,
    KeyValueLines,
)


class LineReaders:
    """Feeds the lines of logs to all families until one takes each.

    Records of speculators and SpecForge that look alike are taken in whole blocks first.
    """

    def __init__(self, raw: RawLog) -> None:
        self.num_lines = 0
        self._speculators = SpeculatorsLines(raw)
        self._blocks = AlikeBlocks(self._learnt)
        self._specforge = SpecForgeLines(raw)
        self._readers: list[FamilyLines] = [
            self._speculators,
            self._specforge,
            *(make(raw) for make in _FACTORIES),
        ]

    def feed(self, block: bytes) -> None:
        """Take some whole lines in UTF-8; the last ones of a file may lack the line end."""
        first_line = self.num_lines + 1
        for line, rest in self._blocks.rest(first_line, block):
            self._feed_groups(line, rest)
        self.num_lines += block.count(b"\n")

    def finish(self) -> None:
        """End a file: nothing that is open goes on in the next one."""
        for reader in self._readers:
            reader.finish()

    def _learnt(self) -> Iterator[Pattern]:
        """Yield patterns of the records that are new."""
        yield from self._speculators.learnt()
        yield from self._specforge.learnt(self._is_specforge)

    def _is_specforge(self) -> bool:
        """Return whether SpecForge is asked first: its dictionaries are not offered to others then."""
        return self._readers[0] is self._specforge

    def _feed_groups(self, first_line: int, lines: bytes) -> None:
        """Feed the lines that may be part of a record, and pass over the others."""
        is_open = self._speculators.has_open
        for group in line_groups(first_line, lines, is_open=is_open):
            if group.is_marked:
                self._feed_lines(group.line, group.text)
            elif self._speculators.has_open:
                self._speculators.interrupt(group.line, group.text)

    def _feed_lines(self, first_line: int, text: bytes) -> None:
        """Feed lines one by one."""
        for number, stream, line in physical_lines([text], first_line=first_line):
            if _may_be_metrics(line):
                self._feed(number, stream, line)
            else:  # it may go on with a record that was wrapped
                self._speculators.feed(number, stream, line)

    def _feed(self, line: int, stream: str, text: str) -> None:
        """Offer a line to the families, the one that took the last line first.

        Blocks of positions are offered to all: several families print them alike.
        """
        shared = _SHARED in text
        for place, reader in enumerate(self._readers):
            if reader.feed(line, stream, text) and not shared:
                if place:
                    self._readers.insert(0, self._readers.pop(place))
                return


def _may_be_metrics(text: str) -> bool:
    """Return whether a line may be a record, for a quick look: most lines of some logs are not."""
    return (
        "acc" in text
        or "loss" in text
        or "{" in text
        or "AR:" in text
        or "Acc" in text
        or "poch " in text
        or _SHARED in text
        or isinstance(text, CutText)
    )
