"""From a file of measured collectives to runs: text, JSON or a plain table, by its content."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from calibration.allreduce.nccl_text import (
    Header,
    collective_name,
    read_nccl_text,
    run_warnings,
    version_of_code,
    with_warnings,
)
from calibration.allreduce.runs import (
    ALL_REDUCE,
    MOST_BYTES,
    MOST_RANKS,
    MOST_WRONG,
    CollectiveReading,
    CollectiveRow,
    CollectiveRun,
    Half,
    is_possible_time,
)
from calibration.readers.json_text import at, json_records_or_refuse, number_at, text_at
from calibration.readers.log_file import LogFile
from calibration.readers.reading import SourceText
from calibration.readers.text import read_head, read_text
from specmodel.errors import FormatError, LeftOut
from specmodel.units import KIBI, MEBI, MICRO, MILLI

_KEYS = frozenset({"results", "config", "nccl_version"})
_MOST_ROWS = 100_000


def is_nccl_json(value: object) -> bool:
    """Return whether a JSON value is what nccl-tests writes."""
    return isinstance(value, Mapping) and len(_KEYS & set(value)) > 1


def read_nccl_json(value: Mapping[str, Any]) -> tuple[CollectiveRun, list[LeftOut]]:
    """Return the run of a JSON file, and the results that were left out.

    Booleans are texts, numbers may be; keys were misspelt before 2026-02 [nccl-tests]_.
    """
    config = at(value, "config")
    config = config if isinstance(config, Mapping) else {}
    header = _devices(config)
    rows, skipped = _results(at(value, "results"))
    validation = number_at(config, "validation")
    checked = any(half.num_wrong is not None for row in rows for half in row.halves)
    largest = _whole(config, "maximum_bytes")
    run = CollectiveRun(
        collective=_collective(at(value, "args")),
        library="nccl",
        library_version=_version(at(value, "nccl_version")),
        num_ranks=header.num_ranks,
        num_nodes=len(header.hosts) or None,
        gpu=header.gpu,
        warmup_iters=_whole(config, "warmup_iters"),
        iters=_whole(config, "iterations"),
        graph_launches=_whole(config, "graph"),
        validated=checked if validation is None else validation > 0 and (checked or not rows),
        complete=isinstance(at(value, "out_of_bounds"), Mapping),
        rows=tuple(rows),
        largest_planned_bytes=largest,
        failure="an error is recorded" if at(value, "errors") else "",
    )
    warnings = header.warnings | run_warnings(run)
    wrong = number_at(value, "out_of_bounds", "count") or 0.0
    if wrong > 0 or _is_false(at(value, "out_of_bounds", "okay")):
        warnings |= {"wrong_values"}
    return with_warnings(run, warnings), skipped


def _is_false(value: object) -> bool:
    """Return whether a Boolean, or the text of one, is false."""
    return value is False or (isinstance(value, str) and value.strip().lower() == "false")


def _devices(config: Mapping[str, Any]) -> Header:
    """Return a header that knows the devices."""
    header = Header()
    devices = config.get("devices")
    for device in devices[:_MOST_ROWS] if isinstance(devices, list) else ():
        rank, process = number_at(device, "rank"), number_at(device, "pid")
        if rank is None:
            continue
        place = f"{at(device, 'device')} {text_at(device, 'device_hex')}"
        name = text_at(device, "device_info") or ""
        host = text_at(device, "hostname") or ""
        header.devices.append((int(rank), int(process or 0), host, place[:60], name[:120]))
    return header


def _collective(arguments: object) -> str:
    """Return the collective of the program that was started."""
    if isinstance(arguments, str):
        arguments = arguments.split()
    first = arguments[0] if isinstance(arguments, Sequence) and arguments else None
    return collective_name(first) if isinstance(first, str) and first.strip() else "unknown"


def _version(value: object) -> str | None:
    """Return the version of the library, from a code or a text."""
    if isinstance(value, str):
        text = value.strip()
        if not text.isdigit():
            return text[:24] or None
        value = int(text[:9])
    if isinstance(value, bool) or not isinstance(value, int) or not 1000 <= value < 10**6:
        return None
    return version_of_code(value)


def _whole(values: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number that is not negative, None where there is none."""
    found = number_at(values, key)
    return int(found) if found is not None and 0 <= found <= MOST_BYTES else None


def _results(results: object) -> tuple[list[CollectiveRow], list[LeftOut]]:
    """Return rows, and the places of what is none."""
    rows: list[CollectiveRow] = []
    skipped: list[LeftOut] = []
    for place, result in enumerate(results[:_MOST_ROWS] if isinstance(results, list) else (), 1):
        size = _whole(result, "size") if isinstance(result, Mapping) else None
        if size is None:
            skipped.append(LeftOut(line=place, code="malformed_row"))
            continue
        halves = [_half(at(result, name)) for name in ("out_of_place", "in_place")]
        if halves == [None, None]:
            skipped.append(LeftOut(line=place, code="not_measured"))
            continue
        root = number_at(result, "root")
        redop = text_at(result, "redop")
        rows.append(
            CollectiveRow(
                line=place,
                size_bytes=size,
                count=_whole(result, "count"),
                dtype=text_at(result, "type"),
                redop=None if redop in {None, "none"} else redop,
                root=int(root) if root is not None and root >= 0 else None,
                out_of_place=halves[0],
                in_place=halves[1],
            )
        )
    return rows, skipped


def _half(value: object) -> Half | None:
    """Return half a row; None where it was not measured."""
    time_us = number_at(value, "time")
    if time_us is None:
        time_us = number_at(value, "cpu_time")
    if time_us is None or not is_possible_time(time_us):
        return None
    wrong = number_at(value, "nwrong")
    checked = None if wrong is None or wrong < 0 else int(min(wrong, MOST_WRONG))
    return Half(time_us=time_us, num_wrong=checked)


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
        line=number, size_bytes=int(size), out_of_place=Half(time_us=time_us, num_wrong=checked)
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


_HEAD_BYTES = 64 * KIBI


def read_collectives(path: Path | str) -> CollectiveReading:
    """Return the runs of a file."""
    path = Path(path)
    head = read_head(path, _HEAD_BYTES)
    if not head.strip():
        raise FormatError(path, "the file is empty", code="empty_file")
    if head.lstrip("\N{BYTE ORDER MARK} \t\r\n").startswith("{"):
        return _json(path)
    if recognise_table(head):
        return CollectiveReading(path=path, runs=_found(path, read_size_time_csv(read_text(path))))
    runs, skipped = read_nccl_text(LogFile(path=path).lines())
    return CollectiveReading(path=path, runs=_found(path, runs), skipped=tuple(skipped))


def _json(path: Path) -> CollectiveReading:
    """Return the runs of a JSON file, of which there may be several one after the other."""
    runs: list[CollectiveRun] = []
    skipped: list[LeftOut] = []
    for record in json_records_or_refuse(read_text(path)).records:
        if is_nccl_json(record.value):
            run, left_out = read_nccl_json(record.value)
            runs.append(run)
            skipped += left_out
    return CollectiveReading(path=path, runs=_found(path, runs), skipped=tuple(skipped))


def _found(path: Path, runs: list[CollectiveRun]) -> tuple[CollectiveRun, ...]:
    """Return the runs, of which there must be one."""
    if not runs:
        raise FormatError(
            path,
            "no run of nccl-tests, and no table with the columns size_bytes and time_us; give the "
            "output of all_reduce_perf",
            code="no_runs",
        )
    return tuple(runs)
