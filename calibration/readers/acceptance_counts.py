"""Acceptance of a run from what engines count: rounds and tokens, histograms, rates by position, chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import Final

from calibration.readers.check import SUM_TOLERANCE
from calibration.readers.formats import messages
from calibration.readers.reading import Cell
from specmodel.errors import LeftOut, ParameterError
from specmodel.units import PERCENT

# What the codes of warnings about acceptance say to a user.
ACCEPTANCE_MESSAGES: Final = messages("acceptance_counts")

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
) -> DraftCounts | LeftOut | None:
    """Return counts that can be, why they cannot, or None where the file has none."""
    if rounds is None or accepted is None:
        return None
    if not all(0 <= count <= _MOST for count in (rounds, accepted, drafted or 0.0)):
        return _impossible("a count is negative or beyond anything that can be counted")
    if drafted is not None and accepted > drafted:
        return _impossible(f"{accepted:g} drafts accepted of {drafted:g}")
    if not rounds:
        return LeftOut(
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


def _impossible(message: str) -> LeftOut:
    """Return the refusal of counts that cannot be."""
    return LeftOut(code="impossible_counts", column="accept_length", message=message)


# Deepest draft a histogram can have.
MOST_STEPS: Final = 1024

_MOST_ROUNDS = 1e15  # no server lives that long; beyond it a float counts no rounds any more


@dataclass(frozen=True, slots=True)
class AcceptHistogram:
    r"""How many rounds accepted no draft, one draft, and so on.

    Histograms are added before anything is divided, since a mean over requests is none over rounds:

    .. math:: \mathrm{AL} = 1 + \frac{\sum_j j h_j}{\sum_j h_j}, \qquad
        p_i = \frac{\sum_{j \ge i} h_j}{\sum_j h_j}, \qquad c_i = \frac{p_i}{p_{i-1}}
    """

    # rounds :math:`h_j` with exactly :math:`j` accepted drafts, from none on: whole, not negative,
    # at most `MOST_STEPS` + 1 of them. Kept as a tuple of int
    counts: tuple[int, ...]

    def __init__(self, counts: Sequence[float]) -> None:
        if not 1 <= len(counts) <= MOST_STEPS + 1:
            raise ParameterError(
                "histogram of accepted drafts", f"{len(counts)}", f"1 to {MOST_STEPS + 1} counts"
            )
        for count in counts:
            number = isinstance(count, int | float) and not isinstance(count, bool)
            if not number or not 0 <= count <= _MOST_ROUNDS or count != int(count):
                raise ParameterError(
                    "rounds in a histogram of accepted drafts",
                    str(count)[:40],
                    "a whole number that is not negative",
                )
        object.__setattr__(self, "counts", tuple(int(count) for count in counts))

    def __add__(self, other: "AcceptHistogram") -> "AcceptHistogram":
        """Return both together; the shorter one is filled with zeros."""
        return AcceptHistogram(
            [a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0)]
        )

    @property
    def num_steps(self) -> int:
        """How many drafts a round can accept."""
        return len(self.counts) - 1

    @property
    def num_rounds(self) -> int:
        """How many rounds were counted; what is below needs at least one."""
        return sum(self.counts)

    @property
    def num_accepted(self) -> int:
        """How many drafts were accepted in all rounds, [tokens]."""
        return sum(accepted * rounds for accepted, rounds in enumerate(self.counts))

    @property
    def accept_length(self) -> float:
        """Tokens of a round, the bonus token included."""
        return 1 + self.num_accepted / self._rounds()

    @property
    def full_accuracy(self) -> tuple[float, ...]:
        """Share of rounds that accepted all of the first 1, 2, ... drafts."""
        rounds = self._rounds()
        return tuple(reached / rounds for reached in self._reached()[1:])

    @property
    def conditional_accuracy(self) -> tuple[float, ...]:
        """Share of the rounds that reached a depth and went beyond it, up to the last one reached."""
        self._rounds()
        reached = self._reached()
        return tuple(deep / shallow for shallow, deep in pairwise(reached) if shallow)

    def _reached(self) -> list[int]:
        """Return how many rounds accepted at least 0, 1, 2, ... drafts."""
        return list(accumulate(reversed(self.counts)))[::-1]

    def _rounds(self) -> int:
        """Return how many rounds there are, where there is one."""
        rounds = self.num_rounds
        if not rounds:
            raise ParameterError("rounds in a histogram of accepted drafts", "0", "1 or more")
        return rounds


def pooled(histograms: Sequence[AcceptHistogram]) -> AcceptHistogram | None:
    """Return several histograms as one, None where there is none."""
    if not histograms:
        return None
    columns = zip_longest(*(histogram.counts for histogram in histograms), fillvalue=0)
    return AcceptHistogram([sum(column) for column in columns])


_PERCENT_TOLERANCE = 0.02  # of 1 + sum of the rates against the accept length
_MISMATCH = 0.01
_RATE_ROUNDING = 1e-6


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
) -> ChainAcceptance | LeftOut | None:
    """Return the acceptance, why it cannot be, or None where the file has none."""
    counts = draft_counts(rounds, drafted, accepted)
    if isinstance(counts, LeftOut):
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
    if max(rates, default=0.0) <= 1 + _RATE_ROUNDING:
        return tuple(min(rate, 1.0) for rate in rates), ()
    fractions = tuple(rate * PERCENT for rate in rates)
    fits = abs(1 + sum(fractions) - accept_length) <= _PERCENT_TOLERANCE * accept_length
    if fits and max(fractions) <= 1 + _RATE_ROUNDING:
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


# Mean from which on a server must have speculated; a judgement, below it chunks are tokens.
SEVERAL_TOKENS: Final = 1.2


def tokens_per_chunk(chunk_ms: float | None, token_ms: float | None) -> float | None:
    """Return the mean number of tokens in a chunk, None where a time is missing or not positive."""
    if chunk_ms is None or token_ms is None or chunk_ms <= 0 or token_ms <= 0:
        return None
    return chunk_ms / token_ms
