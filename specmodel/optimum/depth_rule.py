"""The best depth when costs and accept lengths are known."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError
from specmodel.speedup import speedup

Array = NDArray[np.float64]


def depth_speedups(
    num_steps: ArrayLike,
    accept_length: ArrayLike,
    round_cost: ArrayLike,
    non_decode_share: ArrayLike = 0.0,
) -> Array:
    r"""Speed-up at each depth, exactly 1 at depth 0, which is no speculation.

    .. math:: S_k = \left(f + (1-f)\frac{R_k}{\tau_k}\right)^{-1},\quad S_0 = 1

    Parameters
    ----------
    num_steps : array-like, shape (..., n)
        :math:`k`, draft depth, not negative, [tokens].
    accept_length, round_cost : array-like, shape (..., n)
        :math:`\tau_k, R_k` at each depth; what stands at depth 0 does not count, [-].
    non_decode_share : array-like
        :math:`f`, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`S_k`, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    A server that runs its speculation at depth 0 still pays its fixed cost; switched off, it does not.

    Examples
    --------
    >>> depth_speedups([0, 1, 2], [1, 1.7, 2.1], [1, 1.2, 1.4]).round(3).tolist()
    [1.0, 1.417, 1.5]
    """
    steps = np.asarray(num_steps, dtype=np.float64)
    if not np.all(steps >= 0):
        raise ParameterError("num_steps", f"{np.min(steps):g}", "at least 0")
    return np.where(steps == 0, 1.0, speedup(accept_length, round_cost, non_decode_share))


def marginal_gain(
    num_steps: ArrayLike,
    accept_length: ArrayLike,
    round_cost: ArrayLike,
    non_decode_share: ArrayLike = 0.0,
) -> Array:
    r"""Relative gain in throughput of each depth over the one before it.

    .. math:: \frac{S_{j+1}}{S_j} - 1 > 0 \iff
              \frac{\tau_{j+1} - \tau_j}{R_{j+1} - R_j} > \frac{\tau_j}{R_j}

    Parameters
    ----------
    num_steps : array-like, shape (..., n)
        Depths in rising order, [tokens].
    accept_length, round_cost : array-like, shape (..., n)
        :math:`\tau, R` at each depth, [-].
    non_decode_share : array-like
        :math:`f`, in [0, 1); it makes gains smaller, never changes their sign, [-].

    Returns
    -------
    numpy.ndarray, shape (..., n - 1)
        Positive where going from depth j to j + 1 pays, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    The marginal rule of theory.md B2: deepen while the tokens that a step adds per cost it adds are
    above the running average. The equivalence holds where cost rises with depth. With equal costs per
    step and a full accuracy that does not rise, the first gain that is not positive ends at the optimum.

    Examples
    --------
    >>> marginal_gain([1, 2, 3], [1.70, 2.10, 2.30], [1.2, 1.4, 1.6]).round(3).tolist()
    [0.059, -0.042]
    """
    value = depth_speedups(num_steps, accept_length, round_cost, non_decode_share)
    return np.asarray(value[..., 1:] / value[..., :-1] - 1.0)


def best_num_steps(
    num_steps: ArrayLike,
    accept_length: ArrayLike,
    round_cost: ArrayLike,
    non_decode_share: ArrayLike = 0.0,
) -> Array:
    r"""Depth with the highest speed-up; the smaller of equals.

    .. math:: k^* = \min \arg\max_k S_k

    Parameters
    ----------
    num_steps : array-like, shape (..., n)
        Candidate depths in any order; 0 stands for no speculation, [tokens].
    accept_length, round_cost : array-like, shape (..., n)
        :math:`\tau, R` at each depth, [-].
    non_decode_share : array-like
        :math:`f`, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, shape (...)
        One of the candidate depths, [tokens].

    Raises
    ------
    ParameterError
        If an argument is outside its range or there is no candidate.

    Notes
    -----
    A scan of all candidates: measured costs have steps (graph sizes, collectives), so that the first
    local optimum may not be the best depth.

    Examples
    --------
    >>> float(best_num_steps([1, 2, 3], [1.70, 2.10, 2.30], [1.2, 1.4, 1.6]))
    2.0
    """
    value = depth_speedups(num_steps, accept_length, round_cost, non_decode_share)
    if value.ndim == 0 or value.shape[-1] == 0:
        raise ParameterError("num_steps", "none", "an array with at least one depth")
    steps = np.broadcast_to(np.asarray(num_steps, dtype=np.float64), value.shape)
    is_best = value == value.max(axis=-1, keepdims=True)
    return np.asarray(np.where(is_best, steps, np.inf).min(axis=-1))
