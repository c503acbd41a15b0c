"""Fit a tail family to what was measured: a list of accuracies, or accept lengths by depth."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, at_least, whole
from specmodel.acceptance.feasibility import check_accept_length
from specmodel.acceptance.least_squares import jacobian, minimise
from specmodel.acceptance.nodes import normal_nodes
from specmodel.acceptance.tail import AbstractTail, FittedTail, logit
from specmodel.errors import ParameterError

CONDITIONAL_NOISE = 0.05
"""Standard deviation of a measured conditional accuracy about a smooth curve at depth 1; it grows
with the inverse square root of the share of rounds that reach a depth. A judgement, set on few
served lists that were cut short; rounding, prompts and workload noise are all in it."""

ACCEPT_LENGTH_NOISE = 0.005
"""Relative standard deviation of a measured (accept_length - 1) about a smooth curve."""

DRAW_PAIRS = 64
"""Half the number of posterior draws of a fitted tail."""

_SMALLEST_ACCEPTED = 0.02


def fit_tail(full_accuracy: FullAccuracy, family: AbstractTail) -> FittedTail:
    r"""Most probable tail of a family given a list of full accuracies.

    .. math:: \min_\theta \sum_i \frac{S_{i-1}\,(a_i - a_i(\theta))^2}{\sigma^2}
        + \sum_j \frac{(\theta_j - \mu_j)^2}{s_j^2}

    Parameters
    ----------
    full_accuracy : FullAccuracy
        Measured list, [-].
    family : AbstractTail
        The family to fit.

    Returns
    -------
    FittedTail
        Parameters, covariance and evidence.

    Notes
    -----
    Weighted by the rounds that reach each depth; :math:`\sigma` is `CONDITIONAL_NOISE`. The prior
    decides what the list does not: no form changes with the number of depths.

    Examples
    --------
    >>> from specmodel.acceptance import ExponentialTail
    >>> tail = fit_tail(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]), ExponentialTail())
    >>> tail.conditional_accuracy([6, 10]).tolist()
    [0.56, 0.56]
    """
    measured = full_accuracy.to_conditional().values
    depth = np.arange(1.0, measured.size + 1.0)
    reached = np.concatenate([[1.0], full_accuracy.values[: measured.size - 1]])
    scale = np.sqrt(reached) / CONDITIONAL_NOISE

    def predict(parameters: FloatArray) -> FloatArray:
        return np.clip(family.hazard(parameters, depth), 0.0, 1.0)

    return _fit(predict, measured, scale, family, float(measured[0]))


def fit_tail_to_accept_lengths(
    num_steps: ArrayLike,
    accept_lengths: ArrayLike,
    family: AbstractTail,
    relative_noise: float = ACCEPT_LENGTH_NOISE,
) -> FittedTail:
    r"""Most probable tail of a family given accept lengths measured at several depths.

    .. math:: \tau(k) = 1 + \sum_{i \le k} S_i, \qquad \tau(k) - \tau(k-1) = S_k

    Parameters
    ----------
    num_steps : array-like of int, shape (runs,)
        Depths, each at least 1, [tokens].
    accept_lengths : array-like, shape (runs,)
        Accept lengths of chains at those depths, bonus token included, [tokens].
    family : AbstractTail
        The family to fit.
    relative_noise : float
        Relative standard deviation of (accept_length - 1), positive, [-].

    Returns
    -------
    FittedTail
        Parameters, covariance and evidence.

    Raises
    ------
    ParameterError
        If the lists differ in length or are empty, or an accept length is impossible.

    Notes
    -----
    A depth sweep with topk 1 measures the survival curve without any engine instrumentation: it
    is the finite difference of accept length. Depths 3 and 5 predict depth 7 to 0.7 % on the
    chains of [sgl-project-specforge-specbundle]_.

    Examples
    --------
    >>> from specmodel.acceptance import ExponentialTail
    >>> tail = fit_tail_to_accept_lengths([3, 5], [2.6401, 3.0113], ExponentialTail())
    >>> tail.accept_length(7)
    3.16
    """
    depths = np.atleast_1d(whole("num_steps", num_steps, 1))
    lengths = np.atleast_1d(np.asarray(accept_lengths, dtype=np.float64))
    if depths.ndim != 1 or depths.shape != lengths.shape or depths.size == 0:
        raise ParameterError(
            "accept_lengths", f"{lengths.size} values", f"one per depth ({depths.size}), not none"
        )
    lengths = check_accept_length(lengths, depths)
    noise = float(at_least("relative_noise", relative_noise, 1e-6))
    every = np.arange(1.0, depths.max() + 1.0)
    accepted = lengths - 1.0
    scale = 1.0 / (noise * np.maximum(accepted, _SMALLEST_ACCEPTED))

    def predict(parameters: FloatArray) -> FloatArray:
        survival = np.cumprod(np.clip(family.hazard(parameters, every), 0.0, 1.0), axis=-1)
        return np.asarray(np.cumsum(survival, axis=-1)[..., depths - 1])

    return _fit(predict, accepted, scale, family, float(accepted[0] / lengths[0]))


def _fit(
    predict: Callable[[FloatArray], FloatArray],
    measured: FloatArray,
    scale: FloatArray,
    family: AbstractTail,
    first: float,
) -> FittedTail:
    """Return the most probable parameters, and draws by the randomised maximum likelihood.

    A draw fits data and prior that are each moved by their own noise; unlike a normal
    approximation it follows the curved valley of level against shape.
    """
    mean, sd = family.prior.full_mean(), family.prior.full_sd()

    def residual(noise: FloatArray) -> Callable[[FloatArray], FloatArray]:
        def moved(parameters: FloatArray) -> FloatArray:
            data = scale * (predict(parameters) - measured)
            return np.concatenate([data, (parameters - mean) / sd], axis=-1) - noise

        return moved

    start = mean[None].copy()
    start[0, 0] = logit(min(max(first, 0.02), 0.98))
    still = np.zeros(measured.size + mean.size)
    best = minimise(residual(still), start, sd)
    value = residual(still)(best)
    slope = jacobian(residual(still), best, value)[0]
    covariance = np.linalg.inv(slope.T @ slope)
    nodes = normal_nodes(DRAW_PAIRS, still.size)
    draws = minimise(
        residual(nodes), np.repeat(best, len(nodes), axis=0), sd, tolerance=1e-3, iterations=12
    )
    evidence = (
        -0.5 * float((value**2).sum()) + 0.5 * np.linalg.slogdet(covariance)[1] - np.log(sd).sum()
    )
    return FittedTail(family=family, parameters=best[0], draws=draws, log_evidence=float(evidence))
