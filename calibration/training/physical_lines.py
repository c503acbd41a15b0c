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
    r"""Text of a last line that the file ends in: without a line end, its last number may be cut.

    Examples
    --------
    >>> [type(text).__name__ for _, _, text in physical_lines([b"loss=1.5\nloss=1."])]
    ['str', 'CutText']
    """

    __slots__ = ()


def physical_lines(
    blocks: Iterable[bytes], *, first_line: int = 1
) -> Iterator[tuple[int, str, str]]:
    r"""Yield number, stream and text of every line that is not blank.

    Parameters
    ----------
    blocks : iterable of bytes
        UTF-8, each of whole lines (`LogFile.blocks`); bytes that are none become U+FFFD.
    first_line : int
        Number of the first line.

    Yields
    ------
    tuple of (int, str, str)
        Lines end with a line feed and are counted from 1; what stands between carriage returns is a
        line of its own with the same number. The stream is the label of a process or container,
        empty where there is none; time stamps of containers are no label. Blanks at the beginning
        and the end stay. `CutText` where the line has no end.

    Examples
    --------
    >>> block = b"[rank0]: \x1b[1mstep\x1b[0m 1\r\n\nbar\rstep 2\n"
    >>> list(physical_lines([block]))
    [(1, 'rank0', 'step 1'), (3, '', 'bar'), (3, '', 'step 2')]
    """
    number = first_line
    for block in blocks:
        yield from _lines_of(block, number)
        number += block.count(b"\n")


def without_control_sequences(text: str) -> str:
    r"""Return a text without what is meant for a terminal; where the cursor moves, a return stands.

    Examples
    --------
    >>> without_control_sequences("bar\x1b[2Kloss=\x1b[1;36m1\x1b[0m\x1b[1;36m.5\x1b[0m")
    'bar\rloss=1.5'
    """
    if "\x1b" not in text:
        return text
    return _CONTROL.sub("", _CURSOR.sub("\r", text))


def split_prefix(text: str) -> tuple[str, str]:
    """Return the label of the stream and the rest of a line.

    Parameters
    ----------
    text : str
        One line without control sequences.

    Returns
    -------
    tuple of (str, str)
        The label is empty where there is none; several labels are joined by a slash.

    Examples
    --------
    >>> split_prefix("worker-0  | 2026-05-02T10:11:12.5Z [rank1]:  loss=1")
    ('worker-0/rank1', ' loss=1')
    >>> split_prefix("INFO | loss=1")
    ('', 'INFO | loss=1')
    """
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
