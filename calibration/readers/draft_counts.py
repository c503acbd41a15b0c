"""Rounds, drafted and accepted tokens as engines count them: what they say about acceptance."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from calibration.readers.row_checks import SUM_TOLERANCE, Refusal

# What the codes of warnings about acceptance say to a user.
ACCEPTANCE_MESSAGES: Final = {
    "accept_length_mismatch": "the printed accept length differs from 1 + accepted / drafts by "
    "more than 1 %; the counts were used",
    "accuracy_above_one": "acceptance by position above 1 that is no percentage of this accept "
    "length either; it was not used",
    "accuracy_increasing": "the acceptance of a later position is above that of an earlier one, "
    "which cannot be where all drafts before it must be accepted too; it may be conditional",
    "accuracy_sum_mismatch": "1 + the sum of the acceptance by position differs from the accept "
    "length by more than 5 %: they may not belong to the same rounds",
    "no_speculation_flags": "the depth is not in the file and cannot be derived: num_steps is empty",
    "percent_converted": "acceptance by position was written in percent, as the accept length "
    "proves; divided by 100",
    "synthetic_acceptance": "the acceptance was set by configuration and not measured: it says "
    "nothing about a draft model",
    "variable_draft_length": "rounds drafted fewer tokens than the depth, or the depth varied: the "
    "acceptance of late positions counts rounds that never drafted so far",
}

_ROUNDING = 1e-9
_DEPTH_TOLERANCE: Final = 0.005  # relative; counters are read a moment apart
_MOST = 1e15  # no server lives that long


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """What was counted over some rounds of a chain."""

    rounds: float  # rounds with at least one draft token; above zero
    accepted: float  # draft tokens that were accepted, [tokens]
    # draft tokens that were proposed, [tokens]; None where the file does not say
    drafted: float | None = None

    @property
    def accept_length(self) -> float:
        """Tokens of a round, the bonus token included."""
        return 1 + self.accepted / self.rounds

    def depth(self, num_positions: int = 0) -> int | None:
        """Return how many tokens a round drafts."""
        drafts = self._drafts_per_round
        if drafts is None or (num_positions and drafts <= num_positions * (1 + _DEPTH_TOLERANCE)):
            return num_positions or None
        whole = round(drafts)
        return whole if whole and abs(drafts / whole - 1) <= _DEPTH_TOLERANCE else None

    def varies(self, depth: int | None) -> bool:
        """Return whether not every round drafted as many tokens as the depth says."""
        drafts = self._drafts_per_round
        if drafts is None:
            return False
        return depth is None or abs(drafts / depth - 1) > _DEPTH_TOLERANCE

    @property
    def _drafts_per_round(self) -> float | None:
        """How many tokens a round drafted in the mean."""
        return self.drafted / self.rounds if self.drafted else None


def draft_counts(
    rounds: float | None, drafted: float | None, accepted: float | None
) -> DraftCounts | Refusal | None:
    """Return counts that can be, why they cannot, or None where the file has none."""
    if rounds is None or accepted is None:
        return None
    if not all(0 <= count <= _MOST for count in (rounds, accepted, drafted or 0.0)):
        return _impossible("a count is negative or beyond anything that can be counted")
    if drafted is not None and accepted > drafted:
        return _impossible(f"{accepted:g} drafts accepted of {drafted:g}")
    if not rounds:
        return Refusal(
            code="no_verify_rounds",
            column="accept_length",
            message="no round with a draft in it, so nothing about acceptance",
        )
    return DraftCounts(rounds=rounds, accepted=accepted, drafted=drafted or None)


def accuracy_notes(accuracy: Sequence[float], accept_length: float) -> tuple[str, ...]:
    """Return what is to be said about the full accuracies of every position of a chain."""
    rises = any(deep > shallow + _ROUNDING for shallow, deep in pairwise(accuracy))
    differs = accuracy and abs(1 + sum(accuracy) - accept_length) > SUM_TOLERANCE * accept_length
    return (
        *(("accuracy_increasing",) if rises else ()),
        *(("accuracy_sum_mismatch",) if differs else ()),
    )


def _impossible(message: str) -> Refusal:
    """Return the refusal of counts that cannot be."""
    return Refusal(code="impossible_counts", column="accept_length", message=message)
