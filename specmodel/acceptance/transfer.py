"""From the accept length a training log implies to the one a server reaches."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, IntArray, at_least, unit_interval, whole
from specmodel.errors import ParameterError

SCATTER_PRIOR_WEIGHT = 4.0
"""How many pairs the prior scatter counts for when pairs teach it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFactor:
    r"""Log-normal factor on (accept_length - 1) between training log and server.

    .. math:: \tau_{served} - 1 = F\,(\tau_{offline} - 1), \qquad
        \ln F \sim N(\ln \tilde F,\; s^2 + e^2)

    Parameters
    ----------
    median : float
        :math:`\tilde F`, positive, [-].
    sd : float
        :math:`s`, uncertainty of the factor of this drafter and stack, on the log scale, [-].
    scatter : float
        :math:`e`, spread of single pairs around it, which no number of pairs removes, on the log
        scale, [-].

    Raises
    ------
    ParameterError
        If the median is not positive or a spread is negative.

    Notes
    -----
    A training log feeds true tokens or its own data; a server does neither. The factor is a
    calibrated parameter of drafter and workload, learned from pairs [specmodel-paired-runs]_.
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

    def apply(self, accept_length: ArrayLike, num_steps: ArrayLike | None = None) -> FloatArray:
        """Return the served accept length to expect (median).

        Parameters
        ----------
        accept_length : array-like, any shape
            Accept length that the training log implies, bonus token included, [tokens].
        num_steps : array-like of int, optional
            Draft depth; the result is capped at num_steps + 1, [tokens].

        Returns
        -------
        numpy.ndarray, broadcast shape
            Median of the served accept length, at least 1, [tokens].

        Raises
        ------
        ParameterError
            If an accept length is below 1.

        Examples
        --------
        >>> float(TRANSFER_PRIOR.apply(2.749))
        2.487
        """
        return self._quantile(accept_length, 0.0, num_steps)

    def interval(
        self, accept_length: ArrayLike, num_steps: ArrayLike | None = None, *, coverage: float = 0.9
    ) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of the served accept length.

        Parameters
        ----------
        accept_length : array-like, any shape
            Accept length that the training log implies, bonus token included, [tokens].
        num_steps : array-like of int, optional
            Draft depth; both bounds are capped at num_steps + 1, [tokens].
        coverage : float
            Probability inside, in (0, 1), [-].

        Returns
        -------
        low, high : numpy.ndarray, broadcast shape
            Bounds, at least 1, [tokens].

        Raises
        ------
        ParameterError
            If an accept length is below 1 or the coverage is not inside (0, 1).

        Examples
        --------
        >>> low, high = TRANSFER_PRIOR.interval(2.749)
        >>> float(low), float(high)
        (2.07, 3.06)
        """
        inside = float(unit_interval("coverage", coverage))
        if inside in (0.0, 1.0):
            raise ParameterError("coverage", coverage, "inside (0, 1)", "0.9 is usual")
        width = NormalDist().inv_cdf(0.5 + inside / 2.0) * self.total_sd
        return (
            self._quantile(accept_length, -width, num_steps),
            self._quantile(accept_length, width, num_steps),
        )

    def update(self, offline: ArrayLike, served: ArrayLike) -> "TransferFactor":
        r"""Return the factor after pairs of offline and served accept lengths.

        .. math:: y_j = \ln\frac{\tau_{served,j}-1}{\tau_{offline,j}-1}, \qquad
            \frac{1}{s'^2} = \frac{1}{s^2} + \frac{n}{e'^2}

        Parameters
        ----------
        offline : array-like, shape (pairs,)
            Accept lengths that training logs imply, cut at the served depth, above 1, [tokens].
        served : array-like, shape (pairs,)
            Accept lengths measured with the same checkpoints, above 1, [tokens].

        Returns
        -------
        TransferFactor
            Posterior. The scatter is learned too, with a prior worth `SCATTER_PRIOR_WEIGHT`
            pairs, so pairs that disagree widen it.

        Raises
        ------
        ParameterError
            If there is no pair or a value is not above 1.

        Notes
        -----
        Conjugate normal update of the mean of ln F at the posterior scatter.

        Examples
        --------
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
            return TransferFactor(median=math.exp(known), sd=0.0, scatter=math.sqrt(scatter2))
        prior_weight, data_weight = 1.0 / self.sd**2, count / scatter2
        total = prior_weight + data_weight
        mean = (prior_weight * math.log(self.median) + data_weight * float(ratio.mean())) / total
        return TransferFactor(
            median=math.exp(mean), sd=1.0 / math.sqrt(total), scatter=math.sqrt(scatter2)
        )

    def _quantile(
        self, accept_length: ArrayLike, log_shift: float, num_steps: ArrayLike | None
    ) -> FloatArray:
        """Return the served accept length at a shift of ln F from its median."""
        offline = at_least("accept_length", accept_length, 1.0)
        served = 1.0 + self.median * math.exp(log_shift) * (offline - 1.0)
        if num_steps is None:
            return np.asarray(served)
        deepest: IntArray = whole("num_steps", num_steps)
        return np.asarray(np.minimum(served, deepest + 1.0))


TRANSFER_PRIOR: Final = TransferFactor(median=0.85, sd=0.17, scatter=0.1)
"""Prior when the served prompts and stack match the training data: log-scale sd 0.2 in all,
a judgement; three runs read as matching in [specmodel-paired-runs]_ have ratios 0.70 to 0.94."""

TRANSFER_PRIOR_UNMATCHED: Final = TransferFactor(median=0.75, sd=0.45, scatter=0.2)
"""Prior when prompts differ or the training text was not written by the target model: all six
runs of [specmodel-paired-runs]_ have ratios 0.36 to 1.37, log-scale sd near 0.5."""
