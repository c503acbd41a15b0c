r"""Which lines of a block may be part of a record: most lines of some logs are not, and are passed over.

A line is marked where it contains what every record of some family contains. The bytes of a piece of
the block are searched at once; where many lines are marked, all are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibration.training.physical_lines import split_prefix

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
