"""The capped geometric chain: every depth has the same acceptance rate."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, at_least, finite, unit_interval, whole
from specmodel.errors import ParameterError

_MAX_NEWTON_STEPS = 100


def geometric_accept_length(acceptance_rate: ArrayLike, num_steps: ArrayLike) -> FloatArray:
    r"""Tokens emitted per round when every depth has the same acceptance rate.

    .. math:: \tau = \frac{1-\alpha^{k+1}}{1-\alpha}, \qquad \tau(\alpha = 1) = k + 1

    Parameters
    ----------
    acceptance_rate : array-like, any shape
        :math:`\alpha`, chance that a draft token is accepted given all before it were, [-].
    num_steps : array-like of int, broadcast with `acceptance_rate`
        :math:`k`, draft depth of the chain, [tokens]. Zero means no speculation.

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\tau`, bonus token included, between 1 and k + 1, [tokens].

    Raises
    ------
    ParameterError
        If `acceptance_rate` is outside [0, 1] or `num_steps` is negative or not whole.

    Notes
    -----
    Eq. 1 of [leviathan2023]_. Holds when acceptance does not depend on depth; measured rates
    fall with depth, so a rate fitted at one depth overstates deeper ones; see `tail_spread`.

    Examples
    --------
    >>> float(geometric_accept_length(0.8, 4))
    3.3616
    >>> geometric_accept_length([0.0, 0.5, 1.0], 3).tolist()
    [1.0, 1.875, 4.0]
    """
    rate = unit_interval("acceptance_rate", acceptance_rate)
    depth = whole("num_steps", num_steps)
    return _capped_sum(rate, depth.astype(np.float64))


def geometric_acceptance_rate(accept_length: ArrayLike, num_steps: ArrayLike) -> FloatArray:
    r"""Acceptance rate at which a chain of equal depths has a given accept length.

    .. math:: \alpha : \quad \frac{1-\alpha^{k+1}}{1-\alpha} = \tau

    Parameters
    ----------
    accept_length : array-like, any shape
        :math:`\tau`, bonus token included, between 1 and k + 1, [tokens].
    num_steps : array-like of int, broadcast with `accept_length`
        :math:`k`, draft depth, at least 1, [tokens].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\alpha`, exactly 0 at :math:`\tau` = 1 and exactly 1 at k + 1, [-].

    Raises
    ------
    ParameterError
        If `accept_length` is below 1 or above k + 1, or `num_steps` is below 1.

    Notes
    -----
    Inverse of Eq. 1 of [leviathan2023]_. The polynomial is convex and rising, so Newton's method
    from above cannot overshoot.

    Examples
    --------
    >>> float(geometric_acceptance_rate(3.3616, 4))
    0.8
    """
    depth = whole("num_steps", num_steps, 1)
    length, depth = np.broadcast_arrays(at_least("accept_length", accept_length, 1.0), depth)
    if np.any(length > depth + 1):
        worst = np.flatnonzero(length.ravel() > depth.ravel() + 1)[0]
        raise ParameterError(
            "accept_length",
            f"{length.ravel()[worst]:g}",
            f"at most num_steps + 1 = {depth.ravel()[worst] + 1}",
            "a chain emits at most every draft token and the bonus token",
        )
    rate = np.ones(length.shape)
    steps = depth.astype(np.float64)
    for _ in range(_MAX_NEWTON_STEPS):
        step = (_capped_sum(rate, steps) - length) / _capped_slope(rate, steps)
        rate = np.clip(rate - step, 0.0, 1.0)
        if np.all(np.abs(step) < 4.0 * np.finfo(np.float64).eps):
            break
    rate = np.where(length <= 1.0, 0.0, rate)
    return np.where(length >= steps + 1.0, 1.0, rate)


def geometric_accept_length_limit(acceptance_rate: ArrayLike) -> FloatArray:
    r"""Accept length of an endless chain with the same acceptance rate at every depth.

    .. math:: \tau_\infty = \frac{1}{1-\alpha}

    Parameters
    ----------
    acceptance_rate : array-like, any shape
        :math:`\alpha`, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, shape of `acceptance_rate`
        :math:`\tau_\infty`, the bound that no depth reaches, [tokens].

    Raises
    ------
    ParameterError
        If `acceptance_rate` is outside [0, 1): at 1 there is no limit.

    Notes
    -----
    Eq. 1 of [leviathan2023]_ for :math:`k \to \infty`. A finite draft is always below it.

    Examples
    --------
    >>> float(geometric_accept_length_limit(0.742))
    3.876
    """
    rate = unit_interval("acceptance_rate", acceptance_rate)
    if np.any(rate == 1.0):
        raise ParameterError("acceptance_rate", 1, "below 1", "an endless chain never stops at 1")
    return np.asarray(1.0 / (1.0 - rate))


def operations_factor(
    acceptance_rate: ArrayLike, num_steps: ArrayLike, draft_flop_ratio: ArrayLike
) -> FloatArray:
    r"""Arithmetic per emitted token, relative to decoding without speculation.

    .. math:: \frac{(1-\alpha)(k\hat c + k + 1)}{1-\alpha^{k+1}}

    Parameters
    ----------
    acceptance_rate : array-like
        :math:`\alpha`, in [0, 1], [-].
    num_steps : array-like of int
        :math:`k`, draft depth, [tokens].
    draft_flop_ratio : array-like
        :math:`\hat c`, arithmetic of one draft step over one target step, not negative, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        Factor on the arithmetic, at least 1 at depth 0 and rising with rejected tokens, [-].

    Raises
    ------
    ParameterError
        If a rate is outside [0, 1], a depth or a ratio is negative.

    Notes
    -----
    Theorem 3.11 of [leviathan2023]_; counts operations, not time.

    Examples
    --------
    >>> float(operations_factor(0.8, 5, 0.0))
    1.626
    """
    length = geometric_accept_length(acceptance_rate, num_steps)
    ratio = at_least("draft_flop_ratio", draft_flop_ratio, 0.0)
    depth = finite("num_steps", num_steps)
    return np.asarray((depth * ratio + depth + 1.0) / length)


def _capped_sum(rate: FloatArray, steps: FloatArray) -> FloatArray:
    """Return 1 + rate + ... + rate**steps without cancellation near rate 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        total = -np.expm1((steps + 1.0) * np.log(rate)) / (1.0 - rate)
    return np.where(rate == 1.0, steps + 1.0, total)


def _capped_slope(rate: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the derivative of the capped sum: the sum of i * rate**(i-1)."""
    deepest = int(steps.max(initial=1.0))
    powers = np.arange(1, deepest + 1, dtype=np.float64)
    terms = powers * rate[..., None] ** (powers - 1.0)
    return np.asarray((terms * (powers <= steps[..., None])).sum(axis=-1))
