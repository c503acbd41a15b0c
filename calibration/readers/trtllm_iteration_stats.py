"""Statistics of every iteration as ``trtllm-serve`` gives them: the time of each round."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any, Final

from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.json_text import JsonRecord, json_keys, json_objects, number_at
from calibration.readers.reading import Cell, Reading, Row, SourceText
from specmodel.errors import LeftOut
from specmodel.units import MILLI

FORMAT: Final = "trtllm_iteration_stats"

_BATCHING = frozenset({"inflightBatchingStats", "staticBatchingStats"})
_DRAFTING = ("specDecodingStats", "specDecStats")
_FEWEST = 5  # iterations of a row; below it, they are the ramp between two loads
_ENGINE = "tensorrt-llm"
_MOST = 1e12  # of a count in one iteration
_CONVENTIONS: Final = conventions("trtllm_iteration_stats")
_MESSAGES: Final = messages("trtllm_iteration_stats")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Iteration:
    """One iteration that can be used."""

    line: int
    requests: float
    drafts: float | None  # of one request
    accepted: float
    latency_ms: float
    draft_share: float | None


def recognise(head: str) -> bool:
    """Return whether a text has the statistics of iterations."""
    keys = json_keys(head)
    drafts = "numRequestsWithDraftTokens" in keys
    return "iterLatencyMS" in keys and (drafts or bool(keys & {*_BATCHING, *_DRAFTING}))


def read(source: SourceText) -> Reading:
    r"""Return a row for each batch size, and for each depth where that was changed.

    .. math:: \mathrm{AL} = 1 + \frac{\sum A}{\sum b}, \qquad T = \mathrm{median}(T_i)

    with the accepted drafts :math:`A` and the requests with drafts :math:`b` of an iteration.
    """
    findings = Findings(source.path, _MESSAGES)
    records = json_objects(source, findings)
    speculated = any(_drafting(record.fields) is not None for record in records)
    groups: dict[float, list[_Iteration]] = defaultdict(list)
    for record in records:
        iteration = _iteration(record, speculated=speculated)
        if isinstance(iteration, LeftOut):
            findings.refuse(record.line, iteration)
        else:
            groups[iteration.requests].append(iteration)
    for group in groups.values():
        for stretch in _stretches(group):
            _keep(findings, stretch, speculated=speculated)
    return findings.reading(FORMAT, "no iteration", conventions=_CONVENTIONS)


def _drafting(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the draft statistics of an iteration, None where it has none."""
    for name in _DRAFTING:
        if isinstance(fields.get(name), dict) and fields[name]:
            return dict(fields[name])
    return None


def _iteration(record: JsonRecord, *, speculated: bool) -> _Iteration | LeftOut:
    """Return an iteration, or why it cannot be used."""
    fields, drafting = record.fields, _drafting(record.fields) or {}
    batching = {name: fields.get(name) for name in sorted(_BATCHING)}
    requests = (
        number_at(drafting, "numRequestsWithDraftTokens")
        if speculated
        else _first(batching, "numGenRequests", "numScheduledRequests")
    )
    if not requests:
        return _refused("no_verify_rounds", "no request with drafts in it")
    if (_first(batching, "numContextRequests") or 0) > 0 or (
        _first(batching, "numCtxTokens") or 0
    ) > 0:
        return _refused("prefill_mixed", "a prefill ran in the same iteration")
    latency_ms = number_at(drafting, "iterLatencyMS") or number_at(fields, "iterLatencyMS")
    accepted = number_at(drafting, "numAcceptedTokens") if speculated else 0.0
    drafted = number_at(drafting, "numDraftTokens")
    if latency_ms is None or accepted is None:
        return _refused("malformed", "no latency or no accepted tokens")
    if not (0 < latency_ms < _MOST and 0 < requests < _MOST and 0 <= accepted < _MOST):
        return _refused("impossible_counts", "a count or a latency that cannot be")
    if drafted is not None and accepted > drafted:
        return _refused("impossible_counts", f"{accepted:g} drafts accepted of {drafted:g}")
    return _Iteration(
        line=record.line,
        requests=requests,
        drafts=None if drafted is None else drafted / requests,
        accepted=accepted,
        latency_ms=latency_ms,
        draft_share=number_at(drafting, "draftOverhead"),
    )


def _first(batching: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of some numbers that the scheduler gives."""
    found = (number_at(block, name) for name in names for block in batching.values())
    return next((value for value in found if value is not None), None)


def _refused(code: str, message: str) -> LeftOut:
    """Return why an iteration cannot be used."""
    return LeftOut(code=code, column="", message=f"iterations left out: {message}")


def _stretches(group: list[_Iteration]) -> list[list[_Iteration]]:
    """Return the iterations of one batch size by depth, where that was changed in between.

    Where it comes and goes, every round chose its own, and they stay together.
    """
    by_depth = [list(same) for _, same in groupby(group, key=lambda one: one.drafts)]
    depths = {stretch[0].drafts for stretch in by_depth}
    changed = (
        len(depths) == len(by_depth)
        and all(len(stretch) >= _FEWEST for stretch in by_depth)
        and all(depth is not None and depth.is_integer() for depth in depths)
    )
    return by_depth if changed else [group]


def _keep(findings: Findings, group: list[_Iteration], *, speculated: bool) -> None:
    """Keep the row of a group, or leave it out where it is too short."""
    line = group[0].line
    if len(group) < _FEWEST:
        for one in group:
            findings.drop(
                "short_run", one.line, f"fewer than {_FEWEST} iterations at this batch size"
            )
        return
    notes = [] if speculated else ["baseline_inferred"]
    depths = {one.drafts for one in group}
    depth = next(iter(depths)) if len(depths) == 1 else None
    if speculated and (len(depths) > 1 or not (depth is None or depth.is_integer())):
        notes.append("variable_draft_length")
    if speculated and (depth is None or not depth.is_integer()):
        notes.append("no_speculation_flags")
        depth = None
    findings.keep(line, _row(group, depth if speculated else 0.0, speculated=speculated), notes)


def _row(group: list[_Iteration], depth: float | None, *, speculated: bool) -> Row | LeftOut:
    """Return the row of a group."""
    batch_size = group[0].requests
    rounds = sum(one.requests for one in group)
    accept_length = 1 + sum(one.accepted for one in group) / rounds
    step_time_ms = median(one.latency_ms for one in group)
    shares = [one.draft_share for one in group if one.draft_share is not None]
    cells: dict[str, Cell | None] = {
        "num_steps": depth,
        "topk": 1.0 if depth else None,
        "accept_length": accept_length,
        "batch_size": batch_size,
        "step_time_ms": step_time_ms,
        "output_tokens_per_s": batch_size * accept_length / (step_time_ms * MILLI),
        "throughput_origin": "step_time",
        "verify_rounds": rounds if speculated else None,
        "engine": _ENGINE,
    }
    return measured_row(
        group[0].line,
        cells,
        load=(_ENGINE, "iterations", batch_size),
        details={
            "samples": float(len(group)),
            "draft_share": median(shares) if shares and speculated else None,
        },
    )
