"""What a file is by its content: console output, JSON, a table, or nothing that a training log is in."""

from enum import StrEnum
from pathlib import Path
from typing import Final

from calibration.readers.text import read_head
from specmodel.units import MEBI

# Largest JSON file that is read as a whole, [bytes]; metrics of a checkpoint have hundreds.
MAX_JSON_BYTES: Final = 32 * MEBI

_HEAD_BYTES: Final = 8192
_GZIP_SUFFIX: Final = ".gz"
_TABLE_SUFFIXES: Final = (".csv", ".tsv")
_JSON_SUFFIXES: Final = (".json",)
_LOG_SUFFIXES: Final = ("", ".log", ".txt", ".out", ".err", ".jsonl", ".ndjson", ".console")
_MOST_NULS: Final = 0.05  # share of them in what is text, broken or not; UTF-16 is decoded before


class SourceKind(StrEnum):
    """How a file is read."""

    LINES = "lines"
    JSON = "json"
    TABLE = "table"
    NOTHING = "nothing"


def source_kind(path: Path, *, named: bool) -> SourceKind:
    """Return how a file is to be read."""
    suffix = path.with_suffix("").suffix if path.suffix == _GZIP_SUFFIX else path.suffix
    suffix = suffix.lower()
    numbered = suffix.removeprefix(".").isdigit()  # a log that was rotated
    known = suffix in (*_TABLE_SUFFIXES, *_JSON_SUFFIXES, *_LOG_SUFFIXES)
    if not named and not (known or numbered):
        return SourceKind.NOTHING
    head = read_head(path, _HEAD_BYTES)
    if not named and head.count("\0") > _MOST_NULS * len(head):
        return SourceKind.NOTHING
    text = head.lstrip()
    if suffix in _TABLE_SUFFIXES or _is_header(text.split("\n", 1)[0]):
        return SourceKind.TABLE
    may_be_json = text.startswith("{") or (text.startswith("[") and suffix in _JSON_SUFFIXES)
    if may_be_json and path.stat().st_size <= MAX_JSON_BYTES:
        return SourceKind.JSON
    return SourceKind.LINES


def _is_header(line: str) -> bool:
    """Return whether a line is the header of a table of metrics."""
    separated = "," in line or "\t" in line or ";" in line
    return separated and "acc" in line and not any(mark in line for mark in "={}")
