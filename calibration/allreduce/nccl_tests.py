"""From a file of measured collectives to records: text, JSON or a plain table, by its content."""

from pathlib import Path

from calibration.allreduce.collective_runs import CollectiveReading, CollectiveRun, Skipped
from calibration.allreduce.nccl_json import is_nccl_json, read_nccl_json
from calibration.allreduce.nccl_text import read_nccl_text
from calibration.allreduce.size_time_csv import read_size_time_csv, recognise_table
from calibration.readers.json_text import json_records_or_refuse
from calibration.readers.log_file import LogFile
from calibration.readers.text import read_head, read_text
from specmodel.errors import FormatError
from specmodel.units import KIBI

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
    skipped: list[Skipped] = []
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
