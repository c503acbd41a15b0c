"""JSON lines of SGLang's ``bench_serving``: one line for each run of a client against a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.acceptance_counts import SEVERAL_TOKENS, tokens_per_chunk
from calibration.readers.check import measured_row
from calibration.readers.console_blocks import serving_labels, serving_records
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    JsonRecords,
    at,
    json_keys,
    json_records,
    number_at,
    text_at,
)
from calibration.readers.model_names import plain_name
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.sglang_flags import NOTE_MESSAGES, SglangFlags, sglang_cells

FORMAT: Final = "sglang_bench_serving"

_KEYS = frozenset({"backend", "completed", "duration", "output_throughput"})
_LABELS = frozenset({"backend", "accept length", "mean e2e latency (ms)"})  # vLLM prints others
_LATENCY = "mean_e2e_latency_ms"
_MESSAGES: Final[Mapping[str, str]] = {
    **NOTE_MESSAGES,
    "accept_length_from_itl": "no accept length in the line, but the client saw several tokens a "
    "chunk: the server speculated, and accept_length is mean ITL / mean TPOT",
    "accept_length_rank0_only": "several DP ranks: the accept length is that of rank 0 alone",
    "accept_length_unknown": "the server speculated and the line has no accept length",
    "batch_size_unknown": "several DP ranks, or no concurrency in the line: how many requests a "
    "scheduler decodes together is not in the file, batch_size is left empty",
    "depth_unknown": "the line does not say the number of draft steps: num_steps is left empty; "
    "give it as an option or take it from the server's log",
    "flags_disagree": "the line has an accept length above 1, its server arguments have no "
    "speculation: they are not of the server that was measured, num_steps is left empty",
    "itl_identity": "mean ITL is neither mean TPOT (one gap a token) nor TPOT x accept_length (one "
    "gap a round) within 20 %: the accept length may be of other runs",
    "lifetime_counters": "the accept length is the average since the server started or its cache "
    "was flushed (--flush-cache): earlier runs may be in it",
    "open_loop_load": "requests came at a fixed rate: the batch is a mean of a load that varied, "
    "not a fixed batch",
}
_CONVENTIONS: Final = conventions("sglang_bench_serving")
_ITL_TOLERANCE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acceptance:
    """What a line says of speculation."""

    cells: Mapping[str, Cell | None]
    notes: tuple[str, ...]


def recognise(head: str) -> bool:
    """Return whether a text is JSON lines of ``bench_serving``, or what it prints."""
    keys = json_keys(head)
    as_json = keys >= _KEYS and any(key.endswith("_e2e_latency_ms") for key in keys)
    return as_json or bool(serving_labels(head) & _LABELS)


def read(source: SourceText) -> Reading:
    """Return a row for each line."""
    printed = serving_records(source.text, FORMAT)
    found = JsonRecords(records=printed) if printed else json_records(source)
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    findings.drop_cut_off(found.broken, CUT_OFF)
    eras: dict[str, None] = {}
    for record in found.records:
        if _LATENCY not in record.fields and "output_throughput" not in record.fields:
            findings.drop("other_record", record.line, "no line of this benchmark; left out")
            continue
        if not printed:
            eras.setdefault(_era(record.fields))
        _read_record(record, findings)
    return findings.reading(FORMAT, era=tuple(eras), conventions=_CONVENTIONS)


def _era(fields: Mapping[str, Any]) -> str:
    """Return the oldest release that writes a layout."""
    if "p95_e2e_latency_ms" in fields or "p95_ttft_ms" in fields:
        return "0.5.23"
    return "0.5.6" if "server_info" in fields or "tag" in fields else "0.4.6"


def _read_record(record: JsonRecord, findings: Findings) -> None:
    """Add the row of one line, or why there is none."""
    fields = record.fields
    completed = number_at(fields, "completed")
    throughput = number_at(fields, "output_throughput")
    if completed is not None and completed <= 0:
        findings.drop("no_completed_requests", record.line, "no request was completed")
        return
    if throughput is None or throughput <= 0:
        findings.drop(
            "missing_throughput", record.line, "no output throughput", column="output_throughput"
        )
        return
    arguments, disaggregated = _server_arguments(fields)
    flags = sglang_cells(arguments)
    batch_size, notes = _batch_size(fields, flags)
    acceptance = _acceptance(fields, flags)
    backend = plain_name(text_at(fields, "backend"))
    engine = "sglang" if (backend or "").casefold().startswith("sglang") else backend
    value = number_at(fields, "mean_ttft_ms")
    cells: dict[str, Cell | None] = {
        **flags.cells,
        **acceptance.cells,
        "batch_size": batch_size,
        "output_tokens_per_s": throughput,
        "ttft_ms": (value if value is not None and value >= 0 else None),
        "context_tokens": _mean(fields, "total_input_tokens", completed),
        "output_tokens": _mean(fields, "total_output_tokens", completed),
        "workload": plain_name(text_at(fields, "dataset_name")),
        "engine": engine,
    }
    accept_length = cells.get("accept_length")
    tpot_ms = number_at(fields, "mean_tpot_ms")
    if isinstance(accept_length, float) and tpot_ms is not None and tpot_ms > 0:
        cells["step_time_ms"] = tpot_ms * accept_length
    if number_at(fields, "request_rate") is not None:  # Infinity: all requests at once
        notes.append("open_loop_load")
    row = measured_row(
        record.line,
        cells,
        load=_load(fields, cells, (flags.dp_size or 1.0, disaggregated)),
        details={"requests": completed},
    )
    findings.keep(record.line, row, (*notes, *acceptance.notes, *flags.notes))


def _server_arguments(fields: Mapping[str, Any]) -> tuple[Mapping[str, object], bool]:
    """Return the arguments of the server that decoded, and whether another one did prefill."""
    info = at(fields, "server_info")
    if not isinstance(info, dict):
        return {}, False
    decode = info.get("decode")
    if isinstance(decode, list):
        first = decode[0] if decode else None
        return (first if isinstance(first, dict) else {}), True
    return info, False


def _acceptance(fields: Mapping[str, Any], flags: SglangFlags) -> _Acceptance:
    """Return accept length and depth of a line, and what is to be said of them."""
    accept_length = number_at(fields, "accept_length")
    ratio = tokens_per_chunk(number_at(fields, "mean_itl_ms"), number_at(fields, "mean_tpot_ms"))
    if accept_length is not None and accept_length > 0:
        return _own_accept_length(accept_length, ratio, flags)
    if flags.speculates is not False and ratio is not None and ratio >= SEVERAL_TOKENS:
        return _Acceptance(
            cells={"accept_length": ratio}, notes=("accept_length_from_itl", *_depth_notes(flags))
        )
    if flags.speculates:
        return _Acceptance(cells={}, notes=("accept_length_unknown", *_depth_notes(flags)))
    return _Acceptance(cells={"accept_length": 1.0, "num_steps": 0.0}, notes=())


def _own_accept_length(
    accept_length: float, ratio: float | None, flags: SglangFlags
) -> _Acceptance:
    """Return what is known where the line has an accept length."""
    if flags.speculates is False:
        if accept_length == 1:
            return _Acceptance(cells={"accept_length": 1.0}, notes=())
        return _Acceptance(
            cells={"accept_length": accept_length, "num_steps": None},
            notes=("flags_disagree", "depth_unknown", "lifetime_counters"),
        )
    notes = ["lifetime_counters", *_depth_notes(flags)]
    if (flags.dp_size or 1) > 1:
        notes.append("accept_length_rank0_only")
    of_token_or_round = ratio is None or any(
        abs(ratio / expected - 1) <= _ITL_TOLERANCE for expected in (1.0, accept_length)
    )
    if not of_token_or_round:
        notes.append("itl_identity")
    return _Acceptance(cells={"accept_length": accept_length}, notes=tuple(notes))


def _depth_notes(flags: SglangFlags) -> tuple[str, ...]:
    """Return what is said where the depth is missing; adaptive depth has its own note."""
    return () if flags.adaptive or "num_steps" in flags.cells else ("depth_unknown",)


def _batch_size(fields: Mapping[str, Any], flags: SglangFlags) -> tuple[float | None, list[str]]:
    """Return the mean number of requests that one scheduler decodes together."""
    concurrency = number_at(fields, "concurrency")
    if concurrency is None or concurrency <= 0 or (flags.dp_size or 1) > 1:
        return None, ["batch_size_unknown"]
    return concurrency, []


def _load(
    fields: Mapping[str, Any], cells: Mapping[str, Cell | None], system: tuple[object, ...]
) -> tuple[object, ...]:
    """Return what was asked for: the same for a run with speculation and its baseline."""
    workload = str(cells.get("workload") or "")
    lengths = ["sharegpt_output_len"]
    if workload.startswith("random"):  # the other datasets have lengths of their own
        lengths = ["random_input_len", "random_output_len", "random_range_ratio"]
    return (
        *system,
        *(cells.get(name) for name in ("engine", "target_model", "tp_size", "variant")),
        workload,
        *(number_at(fields, name) for name in ("max_concurrency", "request_rate", *lengths)),
    )


def _mean(fields: Mapping[str, Any], name: str, completed: float | None) -> float | None:
    """Return tokens per completed request."""
    total = number_at(fields, name)
    return None if total is None or total <= 0 or completed is None else total / completed
