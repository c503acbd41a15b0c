"""Rounds, drafted and accepted tokens as engines count them: what they say about acceptance."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from calibration.readers.row_checks import SUM_TOLERANCE, Refusal

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
"""What the codes of warnings about acceptance say to a user."""

_ROUNDING = 1e-9
_DEPTH_TOLERANCE: Final = 0.005  # relative; counters are read a moment apart
_MOST = 1e15  # no server lives that long


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """What was counted over some rounds of a chain.

    Parameters
    ----------
    rounds : float
        Rounds with at least one draft token; above zero.
    accepted : float
        Draft tokens that were accepted, [tokens].
    drafted : float or None
        Draft tokens that were proposed, [tokens]; None where the file does not say.
    """

    rounds: float
    accepted: float
    drafted: float | None = None

    @property
    def accept_length(self) -> float:
        """Tokens of a round, the bonus token included."""
        return 1 + self.accepted / self.rounds

    def depth(self, num_positions: int = 0) -> int | None:
        """Return how many tokens a round drafts.

        Parameters
        ----------
        num_positions : int
            How many positions the file gives an acceptance for; 0 where it gives none.

        Returns
        -------
        int or None
            The number of positions; without them, or where more was drafted, the drafts of a round
            if they are a whole number.

        Examples
        --------
        >>> DraftCounts(rounds=10, accepted=12, drafted=30).depth()
        3
        """
        drafts = self._drafts_per_round
        if drafts is None or (num_positions and drafts <= num_positions * (1 + _DEPTH_TOLERANCE)):
            return num_positions or None
        whole = round(drafts)
        return whole if whole and abs(drafts / whole - 1) <= _DEPTH_TOLERANCE else None

    def varies(self, depth: int | None) -> bool:
        """Return whether not every round drafted as many tokens as the depth says.

        Examples
        --------
        >>> DraftCounts(rounds=10, accepted=12, drafted=27).varies(3)
        True
        """
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
    """Return counts that can be, why they cannot, or None where the file has none.

    Parameters
    ----------
    rounds, drafted, accepted : float or None
        As in `DraftCounts`, as the file has them.

    Returns
    -------
    DraftCounts, Refusal or None
        The refusal has code ``no_verify_rounds`` or ``impossible_counts``.

    Examples
    --------
    >>> draft_counts(100, 300, 150).accept_length, draft_counts(0, 0, 0).code
    (2.5, 'no_verify_rounds')
    """
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
    """Return what is to be said about the full accuracies of every position of a chain.

    Parameters
    ----------
    accuracy : sequence of float
        Share of rounds that accepted all of the first 1, 2, ... drafts.
    accept_length : float
        Tokens of a round, bonus included.

    Returns
    -------
    tuple of str
        Codes of `ACCEPTANCE_MESSAGES`.

    Examples
    --------
    >>> accuracy_notes((0.8, 0.5), 2.3), accuracy_notes((0.5, 0.8), 3.0)
    ((), ('accuracy_increasing', 'accuracy_sum_mismatch'))
    """
    rises = any(deep > shallow + _ROUNDING for shallow, deep in pairwise(accuracy))
    differs = accuracy and abs(1 + sum(accuracy) - accept_length) > SUM_TOLERANCE * accept_length
    return (
        *(("accuracy_increasing",) if rises else ()),
        *(("accuracy_sum_mismatch",) if differs else ()),
    )


def _impossible(message: str) -> Refusal:
    """Return the refusal of counts that cannot be."""
    return Refusal(code="impossible_counts", column="accept_length", message=message)
