"""A plain table of sizes and times: kernels that nccl-tests does not run."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Final

from calibration.allreduce.collective_runs import (
    ALL_REDUCE,
    MOST_BYTES,
    MOST_RANKS,
    MOST_WRONG,
    CollectiveRow,
    CollectiveRun,
    Half,
    is_possible_time,
)
from calibration.allreduce.nccl_text import run_warnings, with_warnings
from calibration.readers.reading import SourceText
from specmodel.errors import FormatError
from specmodel.units import KIBI, MEBI, MICRO, MILLI

_SIZES: Final = {
    **dict.fromkeys(("size_bytes", "bytes", "size_b", "message_bytes"), 1),
    **dict.fromkeys(("size_kib", "kib"), KIBI),
    **dict.fromkeys(("size_mib", "mib"), MEBI),
}
_TIMES: Final = {
    **dict.fromkeys(("time_us", "latency_us", "us"), 1.0),
    **dict.fromkeys(("time_ms", "latency_ms", "ms"), MILLI / MICRO),
    **dict.fromkeys(("time_s", "latency_s"), 1.0 / MICRO),
    **dict.fromkeys(("time_ns", "latency_ns", "ns"), MILLI),
}
_RANKS = ("num_ranks", "num_gpus", "ranks", "tp_size")
_WRONG = ("num_wrong", "wrong")


def recognise_table(head: str) -> bool:
    """Return whether a text begins with columns of sizes and times."""
    names = _names(head.lstrip().split("\n", 1)[0])
    return any(name in _SIZES for name in names) and any(name in _TIMES for name in names)


def read_size_time_csv(source: SourceText) -> list[CollectiveRun]:
    """Return the runs of a table: one for each library and number of ranks.

    Columns are ``size_bytes`` (or ``_kib``, ``_mib``) and ``time_us`` (or ``_ns``, ``_ms``, ``_s``);
    ``num_ranks``, ``library`` and ``num_wrong`` are optional.
    """
    lines = source.text.lstrip().split("\n")
    offset = source.text[: len(source.text) - len(source.text.lstrip())].count("\n")
    names = _names(lines[0])
    if not recognise_table(lines[0]) or len(set(names)) < len(names):
        raise FormatError(
            source.path, "the columns size_bytes and time_us must be named, each once", line=1
        )
    separator = _separator(lines[0])
    groups: dict[tuple[str, int | None], list[CollectiveRow]] = {}
    for number, cells in enumerate(_cells(source, lines, separator), start=1 + offset):
        if number == 1 + offset or not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names):
            raise FormatError(
                source.path, f"{len(cells)} cells under {len(names)} columns", line=number
            )
        values = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        key = (values.get("library") or "table", _ranks(source, number, values))
        groups.setdefault(key, []).append(_row(source, number, values))
    return [_run(library, ranks, rows) for (library, ranks), rows in groups.items()]


def _cells(source: SourceText, lines: list[str], separator: str) -> list[list[str]]:
    """Return the cells of every line."""
    try:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    except csv.Error as error:
        raise FormatError(source.path, f"no table: {error}") from None


def _names(line: str) -> list[str]:
    """Return the columns of a line."""
    return [name.strip().strip('"').lower() for name in line.split(_separator(line))]


def _separator(line: str) -> str:
    """Return what separates the columns."""
    return next((mark for mark in (",", ";", "\t") if mark in line), ",")


def _row(source: SourceText, number: int, values: Mapping[str, str]) -> CollectiveRow:
    """Return one row."""
    size_name = next(name for name in values if name in _SIZES)
    time_name = next(name for name in values if name in _TIMES)
    size = _number(source, number, size_name, values) * _SIZES[size_name]
    time_us = _number(source, number, time_name, values) * _TIMES[time_name]
    if size != int(size) or size > MOST_BYTES:
        raise FormatError(source.path, f"{size_name} is no number of bytes: {size:g}", line=number)
    wrong = next((name for name in _WRONG if values.get(name)), None)
    if not is_possible_time(time_us):
        raise FormatError(source.path, f"{time_name} is no time: {time_us:g} µs", line=number)
    counted = None if wrong is None else _number(source, number, wrong, values, zero=True)
    checked = None if counted is None else int(min(counted, MOST_WRONG))
    return CollectiveRow(
        line=number,
        size_bytes=int(size),
        out_of_place=Half(time_us=time_us, num_wrong=checked),
    )


def _ranks(source: SourceText, number: int, values: Mapping[str, str]) -> int | None:
    """Return the ranks that a row names."""
    name = next((name for name in _RANKS if values.get(name)), None)
    if name is None:
        return None
    ranks = _number(source, number, name, values)
    if ranks != int(ranks) or ranks > MOST_RANKS:
        raise FormatError(source.path, f"{name} is no number of ranks: {ranks:g}", line=number)
    return int(ranks)


def _number(
    source: SourceText, number: int, name: str, values: Mapping[str, str], *, zero: bool = False
) -> float:
    """Return a positive number."""
    try:
        value = float(values[name].replace("_", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        shown = values[name][:40]
        raise FormatError(
            source.path,
            f"{name} must be a positive number, got {shown!r}; leave out what was not measured",
            line=number,
        )
    return value


def _run(library: str, ranks: int | None, rows: list[CollectiveRow]) -> CollectiveRun:
    """Return the record of a group of rows."""
    checked = all(half.num_wrong is not None for row in rows for half in row.halves)
    run = CollectiveRun(
        collective=ALL_REDUCE,
        library=library[:60],
        num_ranks=ranks,
        validated=checked,
        complete=True,
        rows=tuple(rows),
    )
    return with_warnings(run, run_warnings(run))
