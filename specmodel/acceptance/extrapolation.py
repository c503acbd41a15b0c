"""Accept length beyond the measured depth, with the spread over tail families."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, IntArray, whole
from specmodel.acceptance.nodes import normal_nodes, weighted_quantiles
from specmodel.acceptance.tail import AbstractTail, FittedTail
from specmodel.acceptance.tail_families import DEFAULT_TAIL, TAILS
from specmodel.acceptance.tail_fit import (
    ACCEPT_LENGTH_NOISE,
    DRAW_PAIRS,
    fit_tail,
    fit_tail_to_accept_lengths,
)
from specmodel.errors import ParameterError

ROUGHNESS = 0.15
"""Log-scale standard deviation of what lies between two depths about a smooth family's value:
served lists are not smooth. A judgement, set together with `CONDITIONAL_NOISE` on few served lists
cut at one depth and asked for a deeper one."""

DEPTH_INCREMENT_RATIO = (0.23, 0.49, 0.69)
"""10 %, 50 % and 90 % quantile of (accept length at 7 - at 5) / (at 5 - at 3) over chains of
[sgl-project-specforge-specbundle]_: what a deeper draft adds, for a check by eye."""

_CENTRAL = (0.05, 0.95)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TailSpread:
    """Accept lengths at depths, and how far tail families disagree about them.

    Parameters
    ----------
    num_steps : numpy.ndarray of int, shape (depths,)
        Depths asked for, [tokens].
    value : numpy.ndarray, shape (depths,)
        Accept length of the default family, [tokens].
    low, high : numpy.ndarray, shape (depths,)
        Central 90 % over families, their parameters and roughness, [tokens].
    sd : numpy.ndarray, shape (depths,)
        Standard deviation of the same mixture, [tokens].
    by_family : mapping of str to numpy.ndarray
        Most probable accept length of each family, [tokens].
    weights : mapping of str to float
        Share of each family in the mixture; they add to 1, [-].
    """

    num_steps: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    sd: FloatArray
    by_family: Mapping[str, FloatArray]
    weights: Mapping[str, float]


def extend(
    full_accuracy: FullAccuracy, num_steps: int, family: AbstractTail = DEFAULT_TAIL
) -> FullAccuracy:
    r"""Full accuracy carried to a depth by a fitted tail; measured values stay as they are.

    .. math:: S_{m+j} = S_m \prod_{l \le j} a_{m+l}

    Parameters
    ----------
    full_accuracy : FullAccuracy
        Measured list, [-].
    num_steps : int
        Depth to reach, at least 1; a smaller one cuts the list, [tokens].
    family : AbstractTail
        Tail family, fitted to the list.

    Returns
    -------
    FullAccuracy
        `num_steps` deep.

    Raises
    ------
    ParameterError
        If `num_steps` is below 1.

    Notes
    -----
    Held conditionals (a constant tail) are an upper scenario past the trained depth, not the
    estimate; see `tail_spread` for the disagreement of families.

    Examples
    --------
    >>> extend(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]), 10).accept_length()
    2.867
    """
    depth = int(whole("num_steps", num_steps, 1))
    measured = full_accuracy.num_steps
    if depth <= measured:
        return full_accuracy.truncate(depth)
    tail = fit_tail(full_accuracy, family)
    beyond = np.cumprod(tail.conditional_accuracy(np.arange(measured + 1, depth + 1)))
    values = full_accuracy.values
    return FullAccuracy(np.concatenate([values, values[-1] * beyond]))


def tail_spread(
    full_accuracy: FullAccuracy,
    num_steps: ArrayLike,
    families: Iterable[AbstractTail] = tuple(TAILS.values()),
) -> TailSpread:
    r"""Accept length at depths from a measured list, with the spread over tail families.

    Parameters
    ----------
    full_accuracy : FullAccuracy
        Measured list, [-].
    num_steps : array-like of int, shape (depths,)
        Depths asked for, measured or beyond, [tokens].
    families : iterable of AbstractTail
        The families that may be right; the first gives the value.

    Returns
    -------
    TailSpread
        Exact, with no spread, up to the measured depth.

    Raises
    ------
    ParameterError
        If a depth is negative or there is no family.

    Notes
    -----
    A family's share is its prior weight times its Laplace evidence on the list, so families that
    were wrong on published chains, or do not fit this list, count little but not nothing. Each
    family enters with its parameter uncertainty and with `ROUGHNESS` on what it adds.

    Examples
    --------
    >>> spread = tail_spread(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]), [5, 10])
    >>> spread.value.tolist()
    [2.749, 2.867]
    >>> bool(spread.high[1] < 3.1)
    True
    """
    depths = np.atleast_1d(whole("num_steps", num_steps))
    fits = [fit_tail(full_accuracy, family) for family in families]
    survival = full_accuracy.values
    measured = np.concatenate([[1.0], 1.0 + np.cumsum(survival)])
    known = np.minimum(depths, survival.size)
    beyond = np.arange(survival.size + 1, max(int(depths.max(initial=0)), survival.size + 1) + 1)

    def accept_length(family: AbstractTail, parameters: FloatArray) -> FloatArray:
        tail = np.cumsum(np.cumprod(family.conditional_accuracy(parameters, beyond), -1), -1)
        tail = np.concatenate([np.zeros((*tail.shape[:-1], 1)), tail], axis=-1)
        return np.asarray(measured[known] + survival[-1] * tail[..., depths - known])

    return _mixture(fits, depths, measured[known], accept_length)


def tail_spread_from_accept_lengths(
    measured_num_steps: ArrayLike,
    accept_lengths: ArrayLike,
    num_steps: ArrayLike,
    families: Iterable[AbstractTail] = tuple(TAILS.values()),
    relative_noise: float = ACCEPT_LENGTH_NOISE,
) -> TailSpread:
    r"""Accept length at depths from accept lengths measured at others, with its spread.

    Parameters
    ----------
    measured_num_steps : array-like of int, shape (runs,)
        Depths of the measured chains, [tokens].
    accept_lengths : array-like, shape (runs,)
        Their accept lengths, bonus token included, [tokens].
    num_steps : array-like of int, shape (depths,)
        Depths asked for, [tokens].
    families : iterable of AbstractTail
        The families that may be right; the first gives the value.
    relative_noise : float
        Relative standard deviation of a measured (accept_length - 1), [-].

    Returns
    -------
    TailSpread
        Smoothed: at a measured depth it is the fit, within the noise of the measurement.

    Raises
    ------
    ParameterError
        If the lists differ in length, an accept length is impossible, or there is no family.

    Notes
    -----
    Weighs families as `tail_spread` does. Roughness acts on the difference to the nearest
    measured depth. For many single numbers use `carry_accept_length`.

    Examples
    --------
    >>> spread = tail_spread_from_accept_lengths([3, 5], [2.6401, 3.0113], 7)
    >>> float(spread.value[0])
    3.16
    """
    depths = np.atleast_1d(whole("num_steps", num_steps))
    fits = [
        fit_tail_to_accept_lengths(measured_num_steps, accept_lengths, family, relative_noise)
        for family in families
    ]
    runs = np.atleast_1d(whole("measured_num_steps", measured_num_steps, 1))
    near = runs[np.abs(runs[:, None] - depths).argmin(axis=0)]
    lengths = np.atleast_1d(np.asarray(accept_lengths, dtype=np.float64))
    anchor = np.array([lengths[runs == run].mean() for run in near])
    every = np.arange(1, max(int(depths.max(initial=0)), 1) + 1)

    def accept_length(family: AbstractTail, parameters: FloatArray) -> FloatArray:
        total = np.cumsum(np.cumprod(family.conditional_accuracy(parameters, every), -1), -1)
        total = np.concatenate([np.zeros((*total.shape[:-1], 1)), total], axis=-1)
        return np.asarray(1.0 + total[..., depths])

    return _mixture(fits, depths, anchor, accept_length)


def _mixture(
    fits: list[FittedTail],
    depths: IntArray,
    anchor: FloatArray,
    accept_length: Callable[[AbstractTail, FloatArray], FloatArray],
) -> TailSpread:
    """Pool families: parameter draws of each, roughened about the anchor, weighed by evidence."""
    if not fits:
        raise ParameterError("families", "none", "at least one tail family")
    evidence = np.array([fit.log_evidence + np.log(fit.family.prior.weight) for fit in fits])
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    rough = np.exp(ROUGHNESS * normal_nodes(DRAW_PAIRS, 1))
    draws = np.concatenate(
        [anchor + rough * (accept_length(fit.family, fit.draws) - anchor) for fit in fits]
    )
    draws = np.clip(draws, 1.0, depths + 1.0)
    weights = np.repeat(share / len(rough), len(rough))
    centre = weights @ draws
    low, high = weighted_quantiles(draws, weights, _CENTRAL)
    by_family = {fit.family.name: accept_length(fit.family, fit.parameters) for fit in fits}
    value = by_family[fits[0].family.name]
    return TailSpread(
        num_steps=depths,
        value=value,
        low=np.minimum(low, value),
        high=np.maximum(high, value),
        sd=np.sqrt(weights @ (draws - centre) ** 2),
        by_family=by_family,
        weights={fit.family.name: float(part) for fit, part in zip(fits, share, strict=True)},
    )
