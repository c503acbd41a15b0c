"""Rounds counted by how many drafts they accepted: the best acceptance input there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import Final

from specmodel.errors import ParameterError

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
