"""Exports of AIPerf whose server reported its speculation: the summary, or a line per request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.acceptance_counts import (
    ACCEPTANCE_MESSAGES,
    MOST_STEPS,
    SEVERAL_TOKENS,
    AcceptHistogram,
    DraftCounts,
    draft_counts,
    pooled,
    tokens_per_chunk,
)
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    JsonRecord,
    at,
    json_keys,
    json_objects,
    number_at,
    text_at,
)
from calibration.readers.model_names import model_name
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.errors import LeftOut, ParameterError
from specmodel.units import MICRO, MILLI, PERCENT

POOLED_HISTOGRAM: Final = "pooled_spec_decode_acceptance_histogram"
STEPS: Final = "spec_decode_steps"
ACCEPTED: Final = "spec_decode_accepted_draft_tokens"
DRAFTED: Final = "spec_decode_draft_tokens"

_WEIGHTED_LENGTH = "spec_decode_token_weighted_acceptance_length"
_MEAN_LENGTH = "spec_decode_acceptance_length"
_OVERALL_RATE = "spec_decode_overall_draft_acceptance_rate"
_MEAN_RATE = "spec_decode_draft_acceptance_rate"
_LENGTH_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Acceptance of a run."""

    accept_length: float  # tokens of a round, bonus included
    # share of rounds that accepted all of the first 1, 2, ... drafts; empty without a histogram
    full_accuracy: tuple[float, ...] = ()
    depth: float | None = None  # drafts of a round; None where nothing says it
    rounds: float | None = None  # rounds behind it
    notes: tuple[str, ...] = ()  # codes of what is to be said


def mean_of(metrics: Mapping[str, Any], tag: str) -> float | None:
    """Return the mean of a metric over requests, or its one value."""
    for keys in ((tag, "avg"), (tag, "value"), (tag,)):
        found = number_at(metrics, *keys)
        if found is not None:
            return found
    return None


def acceptance_of(metrics: Mapping[str, Any]) -> Acceptance | LeftOut | None:
    """Return the acceptance of a run, why it cannot be, or None where nothing is said.

    The pooled histogram is preferred, then tokens over rounds, then the mean over requests.
    """
    histogram = histogram_of(metrics.get(POOLED_HISTOGRAM))
    if isinstance(histogram, LeftOut):
        return histogram
    counts = _counts(*(mean_of(metrics, tag) for tag in (STEPS, DRAFTED, ACCEPTED)))
    weighted = mean_of(metrics, _WEIGHTED_LENGTH)
    mean = mean_of(metrics, _MEAN_LENGTH)
    counted = None if isinstance(counts, LeftOut) else counts
    pooled_length = _first(
        histogram.accept_length if histogram else None,
        weighted,
        counted.accept_length if counted else None,
    )
    accept_length = _first(pooled_length, mean)
    if accept_length is None:
        return counts if isinstance(counts, LeftOut) else None
    rate_tag = _MEAN_RATE if pooled_length is None else _OVERALL_RATE
    drafted = (
        counted
        if counted and counted.drafted
        else _from_rate(accept_length, _share(metrics, rate_tag))
    )
    notes = ["mean_of_ratios"] if pooled_length is None else []
    if histogram and weighted and abs(histogram.accept_length / weighted - 1) > _LENGTH_TOLERANCE:
        notes.append("accept_length_mismatch")
    depth = _depth(histogram, drafted)
    if drafted is not None and drafted.varies(None if depth is None else int(depth)):
        notes.append("variable_draft_length")
    if depth is None:
        notes.append("no_speculation_flags")
    return Acceptance(
        accept_length=accept_length,
        full_accuracy=_accuracy(histogram, depth) if histogram and depth else (),
        depth=depth,
        rounds=_rounds(metrics, histogram),
        notes=tuple(notes),
    )


def histogram_of(value: object) -> AcceptHistogram | LeftOut | None:
    """Return rounds by accepted drafts from a list, or an object with the drafts as keys."""
    if isinstance(value, dict):
        inner = next((value[k] for k in ("value", "values", "avg", "counts") if k in value), value)
        value = _listed(inner) if isinstance(inner, dict) else inner
    if not isinstance(value, list) or not value:
        return None
    try:
        histogram = AcceptHistogram(value)
    except ParameterError as error:
        return LeftOut(code="impossible_counts", column="full_accuracy", message=str(error))
    if not histogram.num_rounds:
        return LeftOut(
            code="no_verify_rounds", column="accept_length", message="no round in the histogram"
        )
    return histogram


def _listed(table: Mapping[str, Any]) -> list[float]:
    """Return a table by accepted drafts as a list from 0 on; -1 where an entry is no number."""
    counts = {}
    for key in table:
        if key.isascii() and key.isdigit() and len(key) <= 4 and int(key) <= MOST_STEPS:
            count = number_at(table, key)
            counts[int(key)] = -1.0 if count is None else count
    return [counts.get(drafts, 0.0) for drafts in range(max(counts, default=-1) + 1)]


def _share(metrics: Mapping[str, Any], tag: str) -> float | None:
    """Return a rate as a fraction: AIPerf writes percent and says so."""
    rate = mean_of(metrics, tag)
    if rate is None or rate <= 0:
        return None
    percent = text_at(at(metrics, tag), "unit") == "%" or rate > 1
    return rate * PERCENT if percent else rate


def _counts(
    rounds: float | None, drafted: float | None, accepted: float | None
) -> DraftCounts | LeftOut | None:
    """Return mean counts of a request, why they cannot be, or None where there are none."""
    if rounds and drafted and drafted > rounds * MOST_STEPS:
        return LeftOut(
            code="impossible_counts",
            column="num_steps",
            message=f"more than {MOST_STEPS} drafts in a round",
        )
    return draft_counts(rounds, drafted, accepted)


def _from_rate(accept_length: float, rate: float | None) -> DraftCounts | None:
    """Return the counts of one round from a rate per draft."""
    if rate is None or not 0 < rate <= 1 or accept_length <= 1:
        return None
    accepted = accept_length - 1
    if accepted > rate * MOST_STEPS:
        return None
    return DraftCounts(rounds=1.0, accepted=accepted, drafted=accepted / rate)


def _depth(histogram: AcceptHistogram | None, drafted: DraftCounts | None) -> float | None:
    """Return the drafts of a round.

    Where every round drafted the same whole number, that is it: a histogram may end early, where
    no round accepted all drafts, or in zeros.
    """
    whole = drafted.depth() if drafted is not None else None
    if histogram is None:
        return None if whole is None else float(whole)
    reached = max(drafts for drafts, rounds in enumerate(histogram.counts) if rounds)
    depth = whole if whole is not None and whole >= reached else histogram.num_steps
    return float(depth) or None


def _accuracy(histogram: AcceptHistogram, depth: float) -> tuple[float, ...]:
    """Return the full accuracies of as many drafts as a round has."""
    missing = max(int(depth) - histogram.num_steps, 0)
    return (*histogram.full_accuracy, *([0.0] * missing))[: int(depth)]


def _rounds(metrics: Mapping[str, Any], histogram: AcceptHistogram | None) -> float | None:
    """Return the rounds of all requests together."""
    if histogram is not None:
        return float(histogram.num_rounds)
    steps, requests = mean_of(metrics, STEPS), mean_of(metrics, "request_count")
    return steps * requests if steps and requests and steps > 0 and requests > 0 else None


def _first(*lengths: float | None) -> float | None:
    """Return the first of some numbers that is there."""
    return next((length for length in lengths if length is not None), None)


FORMAT: Final = "aiperf_summary"

_TAGS = ("spec_decode_", "pooled_spec_decode_")
_SUMMARY = frozenset({"time_to_first_token", "output_token_throughput", "inter_token_latency"})
_RECORD = frozenset({"metadata", "metrics"})
_OTHER_CLIENTS = frozenset({"model_id", "mean_e2el_ms", "completed"})
_PER_REQUEST_HISTOGRAM = "spec_decode_acceptance_histogram"
_MS: Final = {"ms": 1.0, "s": 1 / MILLI, "sec": 1 / MILLI, "us": MICRO / MILLI}
_ITL_TOLERANCE = 0.1
_CONVENTIONS: Final = conventions("aiperf_summary")
_MESSAGES: Final[Mapping[str, str]] = {
    **ACCEPTANCE_MESSAGES,
    "accept_length_from_itl": "accept length inferred from the time of a chunk over that of a token",
    "accept_length_mismatch": "the histogram gives another accept length than the token-weighted one "
    "beside it; the histogram was used",
    "baseline_inferred": "chunks hold one token and nothing about speculation is reported: taken "
    "for a run without",
    "itl_identity": "the time of a chunk differs by more than 10 % from the time of a token times the "
    "accept length",
    "mean_of_ratios": "the accept length is a mean over requests, not tokens over rounds: short "
    "requests weigh as much as long ones",
    "run_cancelled": "the run was cancelled before its end",
}


def recognise(head: str) -> bool:
    """Return whether a text is an export of AIPerf."""
    keys = json_keys(head)
    if keys & _OTHER_CLIENTS:
        return False
    tagged = any(key.startswith(_TAGS) for key in keys)
    own = bool(keys & (_SUMMARY | {"input_config"})) or keys >= _RECORD
    return (tagged and own) or (keys >= _SUMMARY and "input_config" in keys)


def read(source: SourceText) -> Reading:
    """Return the row of a summary, or the acceptance of the requests of a run."""
    findings = Findings(source.path, _MESSAGES)
    requests = []
    for record in json_objects(source, findings):
        if isinstance(record.fields.get("metrics"), dict):
            requests.append(record)
        else:
            _keep_summary(findings, record.line, record.fields)
    if requests:
        _keep_requests(findings, requests)
    return findings.reading(
        FORMAT,
        "no summary of a run",
        advice="AIPerf knows the acceptance only where the server reports it with each response",
        conventions=_CONVENTIONS,
    )


def _keep_summary(findings: Findings, line: int, export: Mapping[str, Any]) -> None:
    """Keep the row of a summary."""
    nested = export.get("records")  # older exports keep the metrics one level down
    metrics = {**export, **nested} if isinstance(nested, dict) else export
    per_token_ms = _mean_ms(metrics, "inter_token_latency")
    per_chunk_ms = _mean_ms(metrics, "inter_chunk_latency")
    acceptance = acceptance_of(metrics) or _from_chunks(per_token_ms, per_chunk_ms)
    if isinstance(acceptance, LeftOut):
        findings.refuse(line, acceptance)
        return
    accept_length, notes = acceptance.accept_length, list(acceptance.notes)
    step_time_ms = None if per_token_ms is None else per_token_ms * accept_length
    if step_time_ms and per_chunk_ms and abs(per_chunk_ms / step_time_ms - 1) > _ITL_TOLERANCE:
        notes.append("itl_identity")
    if export.get("was_cancelled") is True:
        notes.append("run_cancelled")
    configuration = export.get("input_config") or export.get("cli_config")
    models = at(configuration, "endpoint", "model_names")
    alone = isinstance(models, list) and len(models) == 1 and isinstance(models[0], str)
    target = model_name(models[0]) if alone else None
    concurrency = number_at(configuration, "loadgen", "concurrency")
    cells: dict[str, Cell | None] = {
        **_acceptance_cells(acceptance),
        "output_tokens_per_s": mean_of(metrics, "output_token_throughput"),
        "step_time_ms": step_time_ms,
        "ttft_ms": _mean_ms(metrics, "time_to_first_token"),
        "batch_size": concurrency,
        "context_tokens": mean_of(metrics, "input_sequence_length"),
        "output_tokens": mean_of(metrics, "output_sequence_length"),
        "target_model": target,
    }
    requests = mean_of(metrics, "request_count")
    row = measured_row(
        line,
        cells,
        load=None if concurrency is None or target is None else (FORMAT, target, concurrency),
        details={"requests": requests, "rounds": acceptance.rounds},
    )
    findings.keep(line, row, notes)


def _keep_requests(findings: Findings, records: Sequence[JsonRecord]) -> None:
    """Keep the row of all requests of a run: histograms and counts are summed."""
    histograms: list[AcceptHistogram] = []
    totals = dict.fromkeys((STEPS, ACCEPTED, DRAFTED), 0.0)
    used: list[JsonRecord] = []
    for record in records:
        metrics = record.fields["metrics"]
        counts = [mean_of(metrics, tag) for tag in totals]
        histogram = histogram_of(metrics.get(_PER_REQUEST_HISTOGRAM))
        if not any(str(tag).startswith(_TAGS) for tag in metrics):
            findings.drop("no_speculation", record.line, "a request without speculative figures")
        elif isinstance(histogram, LeftOut):
            findings.refuse(record.line, histogram)
        elif histogram is None and not counts[0]:
            findings.drop("no_verify_rounds", record.line, "a request without a round with drafts")
        else:
            used.append(record)
            histograms += [histogram] if histogram else []
            for tag, count in zip(totals, counts, strict=True):
                totals[tag] += count if count is not None else float("nan")
    if not used:
        return
    summed: dict[str, Any] = {tag: {"avg": total} for tag, total in totals.items()}
    whole = pooled(histograms) if len(histograms) == len(used) else None
    summed[POOLED_HISTOGRAM] = None if whole is None else list(whole.counts)
    summed["request_count"] = {"avg": 1}  # the sums are those of all requests together
    line = used[0].line
    acceptance = acceptance_of(summed)
    if not isinstance(acceptance, Acceptance):
        reason = acceptance or _unknown()
        findings.refuse(line, reason)
        return
    details: dict[str, Cell | None] = {"requests": float(len(used)), "rounds": acceptance.rounds}
    findings.keep(
        line, measured_row(line, _acceptance_cells(acceptance), details=details), acceptance.notes
    )


def _acceptance_cells(acceptance: Acceptance) -> dict[str, Cell | None]:
    """Return the cells of an acceptance."""
    return {
        "accept_length": acceptance.accept_length,
        "full_accuracy": acceptance.full_accuracy,
        "num_steps": acceptance.depth,
        "topk": 1.0 if acceptance.depth else None,
        "verify_rounds": acceptance.rounds,
    }


def _from_chunks(per_token_ms: float | None, per_chunk_ms: float | None) -> Acceptance | LeftOut:
    """Return what the size of chunks says where the server reported nothing."""
    tokens = tokens_per_chunk(per_chunk_ms, per_token_ms)
    if tokens is None:
        return _unknown()
    if tokens < SEVERAL_TOKENS:
        return Acceptance(accept_length=1.0, depth=0.0, notes=("baseline_inferred",))
    return Acceptance(
        accept_length=tokens, notes=("accept_length_from_itl", "no_speculation_flags")
    )


def _unknown() -> LeftOut:
    """Return the refusal of a run of which nobody knows whether it speculated."""
    return LeftOut(
        code="speculation_unknown",
        column="accept_length",
        message="no spec_decode figures in it, and nothing else that tells whether it speculated",
    )


def _mean_ms(metrics: Mapping[str, Any], tag: str) -> float | None:
    """Return the mean of a time, [ms]."""
    value = mean_of(metrics, tag)
    factor = _MS.get(text_at(at(metrics, tag), "unit") or "ms")
    return None if value is None or factor is None or value <= 0 else value * factor
