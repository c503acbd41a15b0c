"""Readers: one file per input format, from a file to rows in canonical columns.

A reader is a module with ``FORMAT``, ``recognise(head)`` and ``read(source)``, for a log
``read_log(log)``; a new one takes its place in `READERS` or `LOG_READERS`, before those that accept
more. Readers fit nothing and print nothing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from calibration.readers import (
    aiperf_summary,
    llamacpp_server_log,
    llamacpp_timings,
    modelopt_acceptance,
    no_points,
    pasted_tables,
    points_csv,
    scraped_counters,
    sglang_bench_one_batch_server,
    sglang_bench_one_batch_server_markdown,
    sglang_bench_serving,
    sglang_bench_speculative,
    sglang_dspark_cost_table,
    sglang_meta_info,
    sglang_prometheus,
    sglang_send_one,
    sglang_server_info,
    sglang_server_log,
    specforge_bench_eagle3,
    speculators_acceptance,
    speculators_perf,
    trtllm_bench_console,
    trtllm_bench_report,
    trtllm_iteration_stats,
    vllm_bench_serve,
    vllm_log,
    vllm_offline_example,
    vllm_request_metrics,
)
from calibration.readers.columns import CANONICAL_NAMES, NUMBER_NAMES, TEXT_NAMES
from calibration.readers.containers import NAMED_LINE, container_names, is_wrapped, only, unwrapped
from calibration.readers.header import canonical_name
from calibration.readers.json_text import json_keys, json_records_or_refuse
from calibration.readers.log_file import LogFile
from calibration.readers.reading import (
    ORIGIN_NAMES,
    Cell,
    LogReader,
    Reader,
    Reading,
    Row,
    SeriesReader,
    SourceText,
)
from calibration.readers.text import read_head, read_text, redacted
from specmodel.errors import FormatError, LeftOut, Note

__all__ = [
    "CANONICAL_NAMES",
    "HEAD_CHARACTERS",
    "LOG_READERS",
    "NUMBER_NAMES",
    "ORIGIN_NAMES",
    "READERS",
    "TEXT_NAMES",
    "Cell",
    "LeftOut",
    "LogFile",
    "LogReader",
    "Note",
    "Reader",
    "Reading",
    "Recognised",
    "Row",
    "SeriesReader",
    "SourceText",
    "canonical_name",
    "read_text",
    "recognise_file",
]

# Logs of any length; asked first, since a log may quote anything further inside.
LOG_READERS: Final[tuple[LogReader, ...]] = (sglang_server_log, vllm_log, llamacpp_server_log)

# Formats that are read as a whole, the most particular first.
READERS: Final[tuple[Reader, ...]] = (
    sglang_bench_speculative,
    sglang_bench_serving,
    sglang_bench_one_batch_server,
    specforge_bench_eagle3,
    sglang_server_info,
    sglang_meta_info,
    sglang_prometheus,
    sglang_dspark_cost_table,
    vllm_bench_serve,
    vllm_request_metrics,
    *no_points.FORMATS,
    scraped_counters.VLLM,
    scraped_counters.LLAMACPP,
    trtllm_bench_report,
    trtllm_iteration_stats,
    scraped_counters.TRTLLM,
    llamacpp_timings,
    modelopt_acceptance,
    aiperf_summary,
    sglang_bench_one_batch_server_markdown,
    sglang_send_one,
    vllm_offline_example,
    trtllm_bench_console,
    speculators_perf,
    speculators_acceptance,
    points_csv,
    pasted_tables,
)

_JSON = re.compile(r'\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["\]]|-?[\d.eE+]+\s*[,\]]|$))')

_SGLANG_KEYS = frozenset(
    {
        *(
            "model_path",
            "tokenizer_path",
            "internal_states",
            "server_args",
            "meta_info",
            "run_name",
        ),
        *("dataset_name", "sharegpt_output_len", "acc_length", "step_time", "last_ttft", "steps"),
        *("sample_batch_tokens", "bias_seconds", "speculative_algorithm", "server_info"),
    }
)

# How much of a file decides what it is. [characters]
HEAD_CHARACTERS: Final = 1 << 20
_HINTED = 1 << 16  # of an unknown file; what it nearly is stands at its beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A file whose format is known, not read yet."""

    reader: Reader | LogReader  # of its format
    source: SourceText | LogFile  # what the reader takes
    containers: tuple[str, ...] = ()  # those of a log of several that are of this format

    @property
    def series(self) -> tuple[str, ...]:
        """What the files of one server share, where files of the format are moments of it."""
        if isinstance(self.source, LogFile) or not hasattr(self.reader, "series_key"):
            return ()
        return cast("SeriesReader", self.reader).series_key(self.source)

    def read(self) -> tuple[Reading, ...]:
        """Return what the file says: of each container of a log, or the one reading of all of it."""
        if not isinstance(self.source, LogFile):
            return (cast("Reader", self.reader).read(self.source),)
        readings: list[Reading] = []
        refused: list[FormatError] = []
        for container in self.containers or ("",):
            try:
                log = replace(self.source, container=container)
                reading = cast("LogReader", self.reader).read_log(log)
                if len(self.containers) > 1:
                    rows = (
                        replace(r, details={**r.details, "container": container})
                        for r in reading.rows
                    )
                    reading = replace(reading, rows=tuple(rows))
                readings.append(reading)
            except FormatError as error:
                refused.append(error)
        if not readings:
            raise refused[0]
        return tuple(readings)


def recognise_file(
    path: Path | str, *, progress: Callable[[int], None] | None = None
) -> Recognised:
    """Return the reader of a file, found by its content."""
    path = Path(path)
    if path.is_fifo():
        source = read_text(path)  # a pipe can be read only once
        head = source.text[:HEAD_CHARACTERS]
        if any(log_reader.recognise(head) for log_reader in LOG_READERS):
            raise FormatError(
                path, "a log in a pipe; save it to a file and name that", code="not_a_file"
            )
    else:
        head = read_head(path, HEAD_CHARACTERS)
        found = _recognised_log(head, LogFile(path=path, progress=progress))
        if found is not None:
            return found
        source = read_text(path)
        head = source.text[:HEAD_CHARACTERS]
    for reader in READERS:
        if reader.recognise(head):
            return Recognised(reader=reader, source=source)
    raise _unknown(source, head)


def _recognised_log(head: str, log: LogFile) -> Recognised | None:
    """Return the reader of a log, whose lines may be wrapped or of several containers."""
    begin = head.encode("utf-8", "replace")
    if head.lstrip().startswith("{") and is_wrapped(begin):
        begin, log = unwrapped(begin), replace(log, wrapped=True)
        head = begin.decode("utf-8", "replace")
    names: tuple[str, ...] = ()
    if log.wrapped or NAMED_LINE.search(begin, 0, _HINTED):
        names = container_names(begin, least=1 if log.wrapped else 2)
    heads = {name: only(begin, name).decode("utf-8", "replace") for name in names} or {"": head}
    for reader in LOG_READERS:
        containers = tuple(name for name, of in heads.items() if reader.recognise(of))
        if containers:
            return Recognised(reader=reader, source=log, containers=containers if names else ())
    return None


def _unknown(source: SourceText, head: str) -> FormatError:
    """Return the error of a file that no reader takes."""
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("#")), None)
    if first is None:
        return FormatError(source.path, "nothing but comments", code="empty_file")
    hint = "a table needs a header with accept_length (or acc_length, tau, full_accuracy, ...) and "
    hint += (
        "a throughput, separated by commas, semicolons or tabs; `specmodel ingest --help` names "
    )
    hint += "the other formats"
    commented = (line.lstrip("# ") for line in lines if line.startswith("#"))
    if any(points_csv.recognise(line) for line in commented):
        hint = "its header stands behind a #, which makes it a comment; take the # off"
    else:
        hint = pasted_tables.understood(head[:_HINTED]) or hint
    if _JSON.match(source.text):
        ours = _SGLANG_KEYS & json_keys(head)
        json_records_or_refuse(source, code="bad_json" if ours else "malformed_json")
        hint = "JSON without the fields of a known format; see `specmodel ingest --help`"
    shown = redacted(first if len(first) <= 60 else first[:57] + "...")
    return FormatError(
        source.path, f"unknown format: it begins with {shown!r}; {hint}", code="unknown_format"
    )
