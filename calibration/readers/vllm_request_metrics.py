"""Responses of a vLLM server with its metrics of speculation: one, or one a line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calibration.readers.acceptance_counts import (
    ACCEPTANCE_MESSAGES,
    MOST_STEPS,
    AcceptHistogram,
    accuracy_notes,
    pooled,
)
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    at,
    json_keys,
    json_objects,
    number_at,
    numbers_at,
    text_at,
)
from calibration.readers.model_names import model_name
from calibration.readers.reading import Cell, Reading, Row, SourceText
from specmodel.errors import LeftOut, ParameterError

FORMAT: Final = "vllm_request_metrics"

_FIELDS = frozenset(
    {"acceptance_histogram", "num_spec_steps", "mean_acceptance_length", "per_step_accepted"}
)
_WRAPPINGS: Final = ((), ("response", "body"), ("response",), ("body",))  # of batch files
_MOST_COUNT = 1e12
_CONVENTIONS: Final = conventions("vllm_request_metrics")
_MESSAGES = {
    **ACCEPTANCE_MESSAGES,
    "histogram_mismatch": "the histogram has another number of rounds or accepted drafts than the "
    "response says; the histogram was used",
}


def recognise(head: str) -> bool:
    """Return whether a text holds responses with metrics of speculation."""
    keys = json_keys(head)
    return "speculative_decoding" in keys and bool(keys & _FIELDS)


def read(source: SourceText) -> Reading:
    r"""Return a row for each model and depth.

    With :math:`h_j` rounds that accepted :math:`j` drafts, summed over the requests,

    .. math:: \mathrm{AL} = 1 + \frac{\sum_j j h_j}{\sum_j h_j}
    """
    findings = Findings(source.path, _MESSAGES)
    pools: dict[tuple[str | None, int | None], _Pool] = {}
    for record in json_objects(source, findings):
        request = _request(record.fields)
        if isinstance(request, LeftOut):
            findings.refuse(record.line, request)
            continue
        key = (request.model, request.num_steps)
        pools.setdefault(key, _Pool(line=record.line, first=request)).requests.append(request)
        if request.mismatch:
            findings.warn("histogram_mismatch", record.line)
    for pool in pools.values():
        findings.keep(pool.line, pool.row(), pool.notes())
    return findings.reading(
        FORMAT,
        "no response with metrics of speculation",
        advice="start the server with --per-request-spec-decode-metrics",
        conventions=_CONVENTIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What one response says."""

    model: str | None
    num_steps: int | None
    histogram: AcceptHistogram | None
    rounds: float
    accepted: float
    proposed: float | None
    output_tokens: float | None
    mismatch: bool


@dataclass(slots=True, kw_only=True)
class _Pool:
    """The requests of a model and depth."""

    line: int
    first: _Request
    requests: list[_Request] = field(default_factory=list)

    @property
    def histogram(self) -> AcceptHistogram | None:
        """Rounds of all requests; None where one of them has no histogram."""
        histograms = [r.histogram for r in self.requests if r.histogram is not None]
        return pooled(histograms) if len(histograms) == len(self.requests) else None

    @property
    def rounds(self) -> float:
        """Rounds of all requests."""
        return sum(request.rounds for request in self.requests)

    @property
    def accept_length(self) -> float:
        """Tokens of a round, bonus included."""
        return 1 + sum(request.accepted for request in self.requests) / self.rounds

    def row(self) -> Row | LeftOut:
        """Return the row of the pool."""
        histogram, num_steps = self.histogram, self.first.num_steps
        accuracy = histogram.full_accuracy if histogram else ()
        lengths = [r.output_tokens for r in self.requests if r.output_tokens is not None]
        complete = len(lengths) == len(self.requests)
        cells: dict[str, Cell | None] = {
            "num_steps": num_steps,
            "topk": 1.0,
            "num_draft_tokens": num_steps + 1 if num_steps else None,
            "accept_length": self.accept_length,
            "full_accuracy": accuracy or None,
            "verify_rounds": self.rounds,
            "output_tokens": sum(lengths) / len(lengths) if complete else None,
            "engine": "vllm",
            "target_model": self.first.model,
        }
        details: dict[str, Cell | None] = {
            "requests": float(len(self.requests)),
            "rounds": self.rounds,
            "conditional_accuracy": histogram.conditional_accuracy if histogram else None,
        }
        return measured_row(self.line, cells, details=details)

    def notes(self) -> tuple[str, ...]:
        """Return the codes of what is to be said about the row."""
        histogram, num_steps = self.histogram, self.first.num_steps
        short = num_steps is not None and any(
            request.proposed not in {None, request.rounds * num_steps} for request in self.requests
        )
        accuracy = histogram.full_accuracy if histogram else ()
        return (
            *(("variable_draft_length",) if short else ()),
            *(("no_speculation_flags",) if num_steps is None else ()),
            *accuracy_notes(accuracy, self.accept_length),
        )


def _request(response: Mapping[str, Any]) -> _Request | LeftOut:
    """Return what a response says, or why it says nothing."""
    wrapped = (at(response, *keys) for keys in _WRAPPINGS)
    bodies = [w for w in wrapped if isinstance(at(w, "metrics", "speculative_decoding"), dict)]
    if not bodies:
        return _refusal("no_speculation", "a response without metrics of speculation")
    metrics: Mapping[str, Any] = at(bodies[0], "metrics", "speculative_decoding")
    try:
        histogram = _histogram(metrics)
    except ParameterError as error:
        return _refusal("malformed", str(error))
    said = (number_at(metrics, "num_spec_steps"), number_at(metrics, "num_accepted_draft_tokens"))
    rounds, accepted = said
    if histogram is not None:
        rounds, accepted = float(histogram.num_rounds), float(histogram.num_accepted)
    refusal = _refused_counts(rounds, accepted)
    if refusal is not None or rounds is None or accepted is None:
        return refusal or _refusal("malformed", "no counts")
    num_steps = _depth(metrics, histogram)
    if num_steps is not None and histogram is not None:
        histogram = _fitted(histogram, num_steps)
        if histogram is None:
            return _refusal("accept_length_above_depth", "rounds that accepted more than the depth")
    tokens = number_at(bodies[0], "usage", "completion_tokens")
    return _Request(
        model=model_name(text_at(bodies[0], "model")),
        num_steps=num_steps,
        histogram=histogram,
        rounds=rounds,
        accepted=accepted,
        proposed=number_at(metrics, "num_draft_tokens"),
        output_tokens=tokens if tokens is not None and 0 < tokens <= _MOST_COUNT else None,
        mismatch=said[0] not in {None, rounds} or said[1] not in {None, accepted},
    )


def _refused_counts(rounds: float | None, accepted: float | None) -> LeftOut | None:
    """Return why counts say nothing about acceptance."""
    if rounds is None or accepted is None:
        return _refusal("malformed", "neither a histogram nor counts of rounds and accepted drafts")
    if not 0 <= rounds <= _MOST_COUNT or not 0 <= accepted <= _MOST_COUNT:
        return _refusal("malformed", "a count is negative or beyond anything that can be counted")
    if not rounds:
        return _refusal("no_verify_rounds", "no round with a draft in it")
    return None


def _histogram(metrics: Mapping[str, Any]) -> AcceptHistogram | None:
    """Return the rounds of a response by accepted drafts, None where it does not have them."""
    counts = numbers_at(metrics, "acceptance_histogram")
    if counts:
        return AcceptHistogram(counts)
    accepted = numbers_at(metrics, "per_step_accepted")
    if not accepted:
        return None
    if not all(0 <= one <= MOST_STEPS and one.is_integer() for one in accepted):
        raise ParameterError("accepted drafts of a round", "another", f"0 to {MOST_STEPS}")
    by_accepted = [0] * (int(max(accepted)) + 1)
    for one in accepted:
        by_accepted[int(one)] += 1
    return AcceptHistogram(by_accepted)


def _fitted(histogram: AcceptHistogram, num_steps: int) -> AcceptHistogram | None:
    """Return a histogram of a depth, None where rounds accepted more."""
    if any(histogram.counts[num_steps + 1 :]):
        return None
    filled = [*histogram.counts[: num_steps + 1], *[0] * (num_steps - histogram.num_steps)]
    return AcceptHistogram(filled)


def _depth(metrics: Mapping[str, Any], histogram: AcceptHistogram | None) -> int | None:
    """Return the depth as the response has it, else as its own list of counts shows it."""
    said = number_at(metrics, "num_spec_tokens")
    if said is not None and said.is_integer() and 0 < said <= MOST_STEPS:
        return int(said)
    listed = numbers_at(metrics, "acceptance_histogram")
    return histogram.num_steps or None if listed and histogram else None


def _refusal(code: str, message: str) -> LeftOut:
    """Return why a response is left out."""
    return LeftOut(code=code, column="", message=message)
