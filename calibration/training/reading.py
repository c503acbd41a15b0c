"""Training logs from files and folders: containers first, then every family is fed the lines.

training_logs.md sections 2 and 3.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

from calibration.points.files import PathLike, files_of
from calibration.readers.log_file import LogFile
from calibration.readers.text import read_head
from calibration.training.family_facts import FAMILIES
from calibration.training.line_readers import LineReaders
from calibration.training.records import Kind, RawLog, RecordTable, merged
from calibration.training.refusals import usable_log
from calibration.training.run_tables import add_run_tables
from calibration.training.speculators_files import SpeculatorsFiles
from calibration.training.training_log import TrainingLog
from specmodel.errors import ParameterError
from specmodel.units import MEBI

# ---
# What a file is by its content: console output, JSON, a table, or nothing that a training log is in.
# Largest JSON file that is read as a whole, [bytes]; metrics of a checkpoint have hundreds.
MAX_JSON_BYTES: Final = 32 * MEBI

# Of a file that may be a table of a run as people keep it, [bytes].
MAX_TABLE_BYTES: Final = 4 * MEBI

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


_RANK_IN_NAME: Final = re.compile(r"(?i)rank[_-]?(\d{1,6})")

_MOST_BLOCKS = 8  # of a JSON file, which is small


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadFiles:
    """What was read from some files; lines are counted through all of them."""

    raw: RawLog
    paths: tuple[Path, ...]
    first_lines: tuple[int, ...]


def read_training_log(
    paths: PathLike | Sequence[PathLike],
    *,
    family: str | None = None,
    correct_alias: bool = False,
    accuracy_kind: Kind | None = None,
    progress: Callable[[int], None] | None = None,
) -> TrainingLog:
    """Return the training log that some files hold.

    `accuracy_kind` is what accuracies by depth are in a table that does not say it.
    """
    if family is not None and family not in FAMILIES:
        raise ParameterError("family", family, " or ".join(FAMILIES))
    read = _read_files(paths, progress, family)
    if len(read.paths) == 1 and not any(read.raw.num_records.values()):
        text = read_head(read.paths[0], MAX_TABLE_BYTES)
        add_run_tables(read.raw, read.paths[0], text, accuracy_kind)
    return usable_log(
        read.raw,
        paths=read.paths,
        first_lines=read.first_lines,
        family=family,
        correct_alias=correct_alias,
    )


def _read_files(
    paths: PathLike | Sequence[PathLike], progress: Callable[[int], None] | None, family: str | None
) -> _ReadFiles:
    """Read files and folders: console logs first, then what stands beside them."""
    named = [paths] if isinstance(paths, Path | str) else list(paths)
    if not named:
        raise ParameterError("paths", "none", "one file or more")
    files = files_of(named)
    raw, beside = RawLog(), RawLog()
    readers, tables = LineReaders(raw), SpeculatorsFiles(beside, family)
    places: list[tuple[Path, int]] = []
    others: list[Path] = []
    for path, is_named in files:
        kind = source_kind(path, named=is_named)
        if kind is SourceKind.NOTHING:
            continue
        if kind is not SourceKind.LINES and _took(tables, kind, path, progress):
            others.append(path)
        elif is_named or kind is SourceKind.LINES or path.suffix == ".jsonl":
            places.append((path, readers.num_lines + 1))
            before = _lengths(raw)
            _read_lines(path, readers, progress)
            _label_rank(raw, before, path)
    tables.finish()
    last = readers.num_lines + 2  # the last line of a log may have no end
    places += [(path, last) for path in others]
    if not places:
        places = [(path, 1) for path, _ in files]
    return _ReadFiles(
        raw=merged([raw, beside], [1, last]) if others else raw,
        paths=tuple(path for path, _ in places),
        first_lines=tuple(line for _, line in places),
    )


def _took(
    tables: SpeculatorsFiles, kind: SourceKind, path: Path, progress: Callable[[int], None] | None
) -> bool:
    """Return whether a file is one of those beside console logs, and read it then."""
    log = LogFile(path=path, progress=progress)
    if kind is SourceKind.TABLE:
        return tables.feed_table(path, (line for _, line in log.lines()))
    text = b"".join(islice(log.blocks(MAX_JSON_BYTES), _MOST_BLOCKS))[:MAX_JSON_BYTES]
    return tables.feed_json(path, text.decode("utf-8", "replace"))


def _read_lines(path: Path, readers: LineReaders, progress: Callable[[int], None] | None) -> None:
    """Feed one file to the families."""
    for block in LogFile(path=path, progress=progress).blocks():
        readers.feed(block)
    readers.finish()


def _lengths(raw: RawLog) -> dict[int, int]:
    """Return how many records each table has."""
    return {id(table): len(table) for table in _tables(raw)}


def _tables(raw: RawLog) -> list[RecordTable]:
    """Return all tables."""
    return [table for tables in raw.tables.values() for table in tables.values()]


def _label_rank(raw: RawLog, before: dict[int, int], path: Path) -> None:
    """Label the new records of a file that is named after a rank, where no line says another."""
    found = _RANK_IN_NAME.search(path.name)
    if found is None:
        return
    for table in _tables(raw):
        start = before.get(id(table), 0)
        stream = table.columns.get("stream")
        if stream is None or start == len(table):
            continue
        rank, unlabelled = table.label(f"rank{found[1]}"), table.label("")
        for row in range(start, len(table)):
            if stream[row] == unlabelled:
                stream[row] = rank
