r"""Lines of a training log as a program printed them: decoded, without what terminals and containers add.

Decode, remove control sequences, split at line feeds and carriage returns, take off the labels of
streams, in this order. A bar and a record that a carriage return glued are two lines with one number.
"""

import re
from collections.abc import Iterable, Iterator

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
    if "\x1b" not in text:
        return text
    return _CONTROL.sub("", _CURSOR.sub("\r", text))


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
    text = without_control_sequences(block.decode("utf-8", "replace"))
    lines = text.split("\n")
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
