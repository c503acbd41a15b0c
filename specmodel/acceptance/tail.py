"""How acceptance goes on with depth: the interface of a tail family, and a fitted tail."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, whole
from specmodel.errors import ParameterError

LEVEL_PRIOR_MEAN = 1.1
LEVEL_PRIOR_SD = 1.5
"""Logit of the first acceptance over all drafters: wide on purpose, the data decide it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TailPrior:
    """Normal prior of a family's shape parameters, learned from served curves.

    Parameters
    ----------
    mean, sd : tuple of float
        One per shape parameter, in the family's own unbounded coordinates, [-].
    weight : float
        Trust in the family before any data, relative to the others, [-].
    """

    mean: tuple[float, ...]
    sd: tuple[float, ...]
    weight: float

    def full_mean(self) -> FloatArray:
        """Return the prior mean of level and shape."""
        return np.array([LEVEL_PRIOR_MEAN, *self.mean])

    def full_sd(self) -> FloatArray:
        """Return the prior standard deviation of level and shape."""
        return np.array([LEVEL_PRIOR_SD, *self.sd])


class AbstractTail(abc.ABC):
    r"""A family of conditional-accuracy curves: one level, and shape parameters.

    Notes
    -----
    Parameter 0 is the level, :math:`\mathrm{logit}\,a_1` or the nearest thing to it; the others
    are the shape. All are unbounded, so a normal prior fits them.
    """

    name: ClassVar[str]
    prior: ClassVar[TailPrior]

    @abc.abstractmethod
    def hazard(self, parameters: FloatArray, depth: FloatArray) -> FloatArray:
        """Return the unclipped curve: parameters (..., n) and depths (d,) give (..., d)."""

    @final
    def conditional_accuracy(self, parameters: ArrayLike, depth: ArrayLike) -> FloatArray:
        """Conditional accuracy at any depth, clipped to [0, 1].

        Parameters
        ----------
        parameters : array-like, shape (..., n)
            Level and shape, in the family's coordinates, [-].
        depth : array-like of int, shape (d,)
            1-based depths, [tokens].

        Returns
        -------
        numpy.ndarray, shape (..., d)
            Conditional accuracies, [-].

        Raises
        ------
        ParameterError
            If a depth is below 1.

        Examples
        --------
        >>> from specmodel.acceptance.tail_families import ConstantTail
        >>> ConstantTail().conditional_accuracy([0.0], [1, 2]).tolist()
        [0.5, 0.5]
        """
        depths = np.atleast_1d(whole("depth", depth, 1)).astype(np.float64)
        curve = self.hazard(np.asarray(parameters, dtype=np.float64), depths)
        return np.clip(curve, 0.0, 1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedTail:
    """A tail family with the parameters that measured accuracies give, and their uncertainty.

    Parameters
    ----------
    family : AbstractTail
        The family.
    parameters : numpy.ndarray, shape (n,)
        Most probable level and shape, [-].
    draws : numpy.ndarray, shape (draws, n)
        Equally likely draws from their posterior, [-].
    log_evidence : float
        How well the family explains the data, complexity paid for; compare families on the same
        data only, [-].
    """

    family: AbstractTail
    parameters: FloatArray
    draws: FloatArray
    log_evidence: float

    def conditional_accuracy(self, depth: ArrayLike) -> FloatArray:
        """Return the conditional accuracy at 1-based depths, of any size.

        Parameters
        ----------
        depth : array-like of int, shape (d,)
            Depths, [tokens].

        Returns
        -------
        numpy.ndarray, shape (d,)
            In [0, 1], [-].

        Examples
        --------
        >>> from specmodel.acceptance import ConstantTail, FullAccuracy, fit_tail
        >>> tail = fit_tail(FullAccuracy([0.6, 0.36, 0.216]), ConstantTail())
        >>> tail.conditional_accuracy([1, 50]).tolist()
        [0.60, 0.60]
        """
        return self.family.conditional_accuracy(self.parameters, depth)

    def full_accuracy(self, num_steps: int) -> FullAccuracy:
        """Return the fitted curve itself, as deep as asked.

        Parameters
        ----------
        num_steps : int
            Depth, at least 1, [tokens].

        Returns
        -------
        FullAccuracy
            Smoothed: measured values are not kept; `extend` keeps them.

        Examples
        --------
        >>> from specmodel.acceptance import ConstantTail, FullAccuracy, fit_tail
        >>> fit_tail(FullAccuracy([0.6, 0.36, 0.216]), ConstantTail()).full_accuracy(2).num_steps
        2
        """
        depth = int(whole("num_steps", num_steps, 1))
        return FullAccuracy(np.cumprod(self.conditional_accuracy(np.arange(1, depth + 1))))

    def accept_length(self, num_steps: int) -> float:
        """Return the accept length of the fitted curve at a depth.

        Parameters
        ----------
        num_steps : int
            Draft depth, [tokens].

        Returns
        -------
        float
            Bonus token included, between 1 and num_steps + 1, [tokens].

        Examples
        --------
        >>> from specmodel.acceptance import FirstThenConstantTail, fit_tail_to_accept_lengths
        >>> tail = fit_tail_to_accept_lengths([3, 5], [2.64, 3.01], FirstThenConstantTail())
        >>> tail.accept_length(7)
        3.2
        """
        if int(whole("num_steps", num_steps)) == 0:
            return 1.0
        return self.full_accuracy(num_steps).accept_length()


def sigmoid(level: FloatArray) -> FloatArray:
    """Return the probability of a logit, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * level)))


def logit(probability: float) -> float:
    """Return the logit of a probability inside (0, 1)."""
    if not 0.0 < probability < 1.0:
        raise ParameterError("probability", probability, "inside (0, 1)")
    return math.log(probability / (1.0 - probability))
