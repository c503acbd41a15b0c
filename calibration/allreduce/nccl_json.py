"""nccl-tests as JSON (``-J``): the same records; the environment in the file is not looked at."""

from collections.abc import Mapping, Sequence
from typing import Any

from calibration.allreduce.collective_runs import (
    MOST_BYTES,
    MOST_WRONG,
    CollectiveRow,
    CollectiveRun,
    Half,
    Skipped,
    is_possible_time,
)
from calibration.allreduce.nccl_header import Header, collective_name, version_of_code
from calibration.allreduce.nccl_text import run_warnings, with_warnings
from calibration.readers.json_text import at, number_at, text_at

_KEYS = frozenset({"results", "config", "nccl_version"})
_MOST_ROWS = 100_000


def is_nccl_json(value: object) -> bool:
    """Return whether a JSON value is what nccl-tests writes."""
    return isinstance(value, Mapping) and len(_KEYS & set(value)) > 1


def read_nccl_json(value: Mapping[str, Any]) -> tuple[CollectiveRun, list[Skipped]]:
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


def _results(results: object) -> tuple[list[CollectiveRow], list[Skipped]]:
    """Return rows, and the places of what is none."""
    rows: list[CollectiveRow] = []
    skipped: list[Skipped] = []
    for place, result in enumerate(results[:_MOST_ROWS] if isinstance(results, list) else (), 1):
        size = _whole(result, "size") if isinstance(result, Mapping) else None
        if size is None:
            skipped.append(Skipped(line=place, reason="malformed_row"))
            continue
        halves = [_half(at(result, name)) for name in ("out_of_place", "in_place")]
        if halves == [None, None]:
            skipped.append(Skipped(line=place, reason="not_measured"))
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
