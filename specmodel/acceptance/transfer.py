"""From the accept length a training log implies to the one a server reaches."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import at_least
from specmodel.errors import ParameterError
from specmodel.statistics import NORMAL_95

SCATTER_PRIOR_WEIGHT = 4.0
"""How many pairs the prior scatter counts for when pairs teach it."""


@dataclass(frozen=True)
class TransferFactor:
    r"""Log-normal factor on (accept_length - 1) between training log and server.

    .. math:: \tau_{served} - 1 = F\,(\tau_{offline} - 1), \qquad
        \ln F \sim N(\ln \tilde F,\; s^2 + e^2)

    `sd` is s, what is not known of the factor of this drafter and stack; `scatter` is e, the spread of single
    pairs around it, which no number of pairs removes; both on the log scale. A training log feeds true tokens
    or its own data, a server does neither: the factor is learned from pairs [specmodel-paired-runs]_.
    """

    median: float
    sd: float
    scatter: float

    def __post_init__(self) -> None:
        at_least("median", self.median, 0.0)
        at_least("sd", self.sd, 0.0)
        at_least("scatter", self.scatter, 0.0)
        if self.median == 0.0:
            raise ParameterError("median", 0, "positive")

    @property
    def total_sd(self) -> float:
        """Log-scale standard deviation of the factor of one new pair."""
        return math.hypot(self.sd, self.scatter)

    def update(self, offline: ArrayLike, served: ArrayLike) -> "TransferFactor":
        r"""The posterior after pairs of accept lengths above 1: a conjugate normal update of the mean of ln F.

        .. math:: y_j = \ln\frac{\tau_{served,j}-1}{\tau_{offline,j}-1}, \qquad
            \frac{1}{s'^2} = \frac{1}{s^2} + \frac{n}{e'^2}

        The scatter is learned too, with a prior worth `SCATTER_PRIOR_WEIGHT` pairs, so pairs that disagree
        widen it.

        >>> learned = TRANSFER_PRIOR.update([2.561, 2.899], [2.315, 2.637])
        >>> learned.sd < TRANSFER_PRIOR.sd
        True
        """
        before = np.atleast_1d(at_least("offline", offline, 1.0))
        after = np.atleast_1d(at_least("served", served, 1.0))
        if before.shape != after.shape or before.size == 0:
            raise ParameterError("served", after.size, f"as many as offline, {before.size}, not 0")
        if np.any(before == 1.0) or np.any(after == 1.0):
            raise ParameterError(
                "accept_length", 1, "above 1", "a drafter that is never right has no factor"
            )
        ratio = np.log((after - 1.0) / (before - 1.0))
        count = ratio.size
        squares = float(((ratio - ratio.mean()) ** 2).sum())
        freedom = SCATTER_PRIOR_WEIGHT + count - 1.0
        scatter2 = (SCATTER_PRIOR_WEIGHT * self.scatter**2 + squares) / freedom
        if self.sd == 0.0 or scatter2 == 0.0:
            known = math.log(self.median) if self.sd == 0.0 else float(ratio.mean())
            return TransferFactor(math.exp(known), sd=0.0, scatter=math.sqrt(scatter2))
        prior_weight, data_weight = 1.0 / self.sd**2, count / scatter2
        total = prior_weight + data_weight
        mean = (prior_weight * math.log(self.median) + data_weight * float(ratio.mean())) / total
        return TransferFactor(
            math.exp(mean), sd=1.0 / math.sqrt(total), scatter=math.sqrt(scatter2)
        )

    @property
    def interval(self) -> tuple[float, float]:
        """Central 90 % of the factor of one new pair."""
        width = math.exp(NORMAL_95 * self.total_sd)
        return self.median / width, self.median * width


TRANSFER_PRIOR: Final = TransferFactor(median=0.85, sd=0.17, scatter=0.1)
"""Prior when the served prompts and stack match the training data: log-scale sd 0.2 in all,
a judgement; three runs read as matching in [specmodel-paired-runs]_ have ratios 0.70 to 0.94."""

TRANSFER_UNMATCHED: Final = TransferFactor(median=0.65, sd=0.46, scatter=0.1)
"""Prior where they do not match: runs read so in [specmodel-paired-runs]_ have ratios 0.36 to 1.37."""

TRANSFER_UNKNOWN: Final = TransferFactor(median=0.85, sd=0.387, scatter=0.1)
"""Prior where nothing says whether they match: about the middle of those that do, with five of all six runs
inside, .44 to 1.64. A judgement."""

_WORDS: Final = {
    TRANSFER_PRIOR: "a prior for served prompts like the training data",
    TRANSFER_UNMATCHED: "a prior for other served prompts than the training data",
    TRANSFER_UNKNOWN: "a prior where nothing says whether the served prompts are like the training data: "
    "--accuracy-from training-matched or training-unmatched does",
}


def transfer_prior(*, matched: bool | None) -> TransferFactor:
    """The prior for served prompts that are like the training data, or not; None where that is not known."""
    return {None: TRANSFER_UNKNOWN, True: TRANSFER_PRIOR, False: TRANSFER_UNMATCHED}[matched]


def transfer_words(transfer: TransferFactor) -> str:
    """What a transfer factor does and what it rests on."""
    low, high = transfer.interval
    return (
        f"from training log to server, accept length - 1 is taken times {transfer.median:.2f} "
        f"(90 %: {low:.2f} to {high:.2f}), {_WORDS.get(transfer, 'learned, or given')}"
    )
