"""Lines of nccl-tests without what launchers, terminals and NCCL's own messages put around them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,Z+:-]*\s+(?:std(?:out|err) [FP]\s)?")
_MPIRUN_TAG = re.compile(r"\[\d+,[\w:,.\-]+\]\s*<(stdout|stderr)>\s?:?")
_RANK_TAG = re.compile(  # `[0] `, `srun --label` and `pdsh`
    r"(?:\[\d+\]|\d+:|[A-Za-z][\w.\-]{0,80}:)\s+(?=#|\d+\s+\d+\s+[a-z]|$)"
)
_QUOTE = re.compile(r"(?:\s*[>|]\s?)+(?=\s*[#\d])")
_BOX = str.maketrans("\N{BOX DRAWINGS LIGHT VERTICAL}\N{BOX DRAWINGS HEAVY VERTICAL}|", "   ")
_MESSAGE = re.compile(
    r"(?P<host>[A-Za-z][\w.\-]{0,252}):\d+:\d+(?:\s*:\d+)?\s*(?:\[\d+\]|\(\w+\))\s.{0,400}?"
    r"\b(?:NCCL|RCCL|NET|CUDA)\b",
    re.ASCII,
)
_MESSAGE_TAIL = r":\d+:\d+\s*(?:\[\d+\]|\(\w+\))\s"
_BANNER = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_FAILURES = re.compile(
    r"Test (?:NCCL|CUDA|RCCL) failure|Test failure |unhandled (?:system|cuda) error|MPI_ABORT|"
    r"Segmentation fault|DUE TO TIME LIMIT|[Ww]atchdog|\b[Tt]imed? ?out\b|CANCELLED AT|"
    r"exited on signal|Killed$|Aborted(?: \(core dumped\))?$|illegal memory access"
)
_LONGEST: Final = 4000


@dataclass(frozen=True, slots=True)
class CleanLine:
    """What is left of a line."""

    text: str  # without tags, quotes and messages
    cut: bool = False  # whether a message took the rest of the line


def clean_line(line: str, hosts: Iterable[str] = ()) -> CleanLine | None:
    """Return a line of a table or its head without what is around it; None for a message."""
    text = _ESCAPE.sub("", line[:_LONGEST]).rstrip("\r\n")
    for pattern in (_STAMP, _MPIRUN_TAG, _QUOTE, _RANK_TAG):
        found = pattern.match(text)
        if found:
            if pattern is _MPIRUN_TAG and found[1] == "stderr":
                return None
            text = text[found.end() :]
    place = _message_place(text, hosts)
    if place < 0:
        return CleanLine(text=text.translate(_BOX))
    left = text[:place]
    return CleanLine(text=left, cut=True) if left.strip() else None


def banner(line: str) -> tuple[str, str] | None:
    """Return library and version of a banner; None for any other line."""
    found = _BANNER.search(line[:_LONGEST])
    return (found[1].lower(), found[2]) if found else None


def failure(line: str) -> str:
    """Return what a line says of a run that failed; empty where it says nothing."""
    if " INFO " in line[:_LONGEST]:  # which tells of time-outs that are set
        return ""
    found = _FAILURES.search(line[:_LONGEST])
    return found[0].strip() if found else ""


def _message_place(text: str, hosts: Iterable[str]) -> int:
    """Return where a message of NCCL begins; -1 where there is none."""
    if ":" not in text or text.lstrip().startswith("#"):
        return -1
    places = [
        found.start()
        for host in sorted(hosts, key=len, reverse=True)
        for found in [re.search(re.escape(host) + _MESSAGE_TAIL, text)]
        if found
    ]
    if places:
        return min(places)
    found = _MESSAGE.search(text)
    return found.start() if found else -1
