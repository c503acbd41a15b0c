"""What AIPerf's metrics of a run say about acceptance, and where they agree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.accept_histogram import MOST_STEPS, AcceptHistogram
from calibration.readers.draft_counts import DraftCounts, draft_counts
from calibration.readers.json_text import at, number_at, text_at
from calibration.readers.row_checks import Refusal
from specmodel.errors import ParameterError
from specmodel.units import PERCENT

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


def acceptance_of(metrics: Mapping[str, Any]) -> Acceptance | Refusal | None:
    """Return the acceptance of a run, why it cannot be, or None where nothing is said.

    The pooled histogram is preferred, then tokens over rounds, then the mean over requests.
    """
    histogram = histogram_of(metrics.get(POOLED_HISTOGRAM))
    if isinstance(histogram, Refusal):
        return histogram
    counts = _counts(*(mean_of(metrics, tag) for tag in (STEPS, DRAFTED, ACCEPTED)))
    weighted = mean_of(metrics, _WEIGHTED_LENGTH)
    mean = mean_of(metrics, _MEAN_LENGTH)
    counted = None if isinstance(counts, Refusal) else counts
    pooled_length = _first(
        histogram.accept_length if histogram else None,
        weighted,
        counted.accept_length if counted else None,
    )
    accept_length = _first(pooled_length, mean)
    if accept_length is None:
        return counts if isinstance(counts, Refusal) else None
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


def histogram_of(value: object) -> AcceptHistogram | Refusal | None:
    """Return rounds by accepted drafts from a list, or an object with the drafts as keys."""
    if isinstance(value, dict):
        inner = next((value[k] for k in ("value", "values", "avg", "counts") if k in value), value)
        value = _listed(inner) if isinstance(inner, dict) else inner
    if not isinstance(value, list) or not value:
        return None
    try:
        histogram = AcceptHistogram(value)
    except ParameterError as error:
        return Refusal(code="impossible_counts", column="full_accuracy", message=str(error))
    if not histogram.num_rounds:
        return Refusal(
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
) -> DraftCounts | Refusal | None:
    """Return mean counts of a request, why they cannot be, or None where there are none."""
    if rounds and drafted and drafted > rounds * MOST_STEPS:
        return Refusal(
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
