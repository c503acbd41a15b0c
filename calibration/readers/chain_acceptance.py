"""Acceptance of a chain from what a file has of it: counts, a printed length, rates by position."""

from collections.abc import Sequence
from dataclasses import dataclass

from calibration.readers.draft_counts import DraftCounts, accuracy_notes, draft_counts
from calibration.readers.reading import Cell
from calibration.readers.row_checks import Refusal
from specmodel.units import PERCENT

_PERCENT_TOLERANCE = 0.02  # of 1 + sum of the rates against the accept length
_MISMATCH = 0.01
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAcceptance:
    """What a file says about acceptance."""

    # tokens of a round, bonus included; None where it is not known whether it speculated
    accept_length: float | None = None
    num_steps: int | None = None  # depth, 0 of a baseline
    full_accuracy: tuple[float, ...] = ()  # of each position; empty where the file does not say it
    rounds: float | None = None  # rounds that it was counted over; None where nothing was counted
    notes: tuple[str, ...] = ()  # codes of what is to be said

    @property
    def cells(self) -> dict[str, Cell | None]:
        """The canonical columns about acceptance."""
        speculated = self.accept_length is not None and self.num_steps != 0
        return {
            "accept_length": self.accept_length,
            "num_steps": self.num_steps,
            "topk": 1.0 if speculated else None,
            "num_draft_tokens": self.num_steps + 1 if self.num_steps else None,
            "full_accuracy": self.full_accuracy or None,
            "verify_rounds": self.rounds,
        }


def chain_acceptance(
    *,
    rounds: float | None,
    drafted: float | None,
    accepted: float | None,
    printed_length: float | None,
    rates: Sequence[float],
) -> ChainAcceptance | Refusal | None:
    """Return the acceptance, why it cannot be, or None where the file has none."""
    counts = draft_counts(rounds, drafted, accepted)
    if isinstance(counts, Refusal):
        return counts
    if any(rate < 0 for rate in rates):
        rates = ()
    if counts is not None:
        accept_length = counts.accept_length
    elif printed_length is not None:
        accept_length = printed_length
    elif rates and max(rates) <= 1:
        accept_length = 1 + sum(rates)
    else:
        return None
    accuracy, notes = _as_fractions(rates, accept_length)
    num_steps = counts.depth(len(rates)) if counts else len(rates) or None
    return ChainAcceptance(
        accept_length=accept_length,
        num_steps=num_steps,
        full_accuracy=accuracy,
        rounds=counts.rounds if counts else None,
        notes=(
            *notes,
            *_count_notes(counts, printed_length, num_steps),
            *accuracy_notes(accuracy, accept_length),
        ),
    )


def _as_fractions(
    rates: Sequence[float], accept_length: float
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return rates as fractions: a percentage only where the accept length proves it."""
    if max(rates, default=0.0) <= 1 + _ROUNDING:
        return tuple(min(rate, 1.0) for rate in rates), ()
    fractions = tuple(rate * PERCENT for rate in rates)
    fits = abs(1 + sum(fractions) - accept_length) <= _PERCENT_TOLERANCE * accept_length
    if fits and max(fractions) <= 1 + _ROUNDING:
        return tuple(min(rate, 1.0) for rate in fractions), ("percent_converted",)
    return (), ("accuracy_above_one",)


def _count_notes(
    counts: DraftCounts | None, printed_length: float | None, num_steps: int | None
) -> tuple[str, ...]:
    """Return what is to be said about the counts and the depth."""
    differs = (
        counts is not None
        and printed_length is not None
        and abs(printed_length / counts.accept_length - 1) > _MISMATCH
    )
    return (
        *(("accept_length_mismatch",) if differs else ()),
        *(("no_speculation_flags",) if num_steps is None else ()),
        *(("variable_draft_length",) if counts and counts.varies(num_steps) else ()),
    )
