"""Carry accept lengths from the depth they were measured at to another, for whole columns."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, IntArray, whole
from specmodel.acceptance.extrapolation import ROUGHNESS
from specmodel.acceptance.feasibility import check_accept_length
from specmodel.acceptance.nodes import normal_nodes, weighted_quantiles
from specmodel.acceptance.tail import AbstractTail
from specmodel.acceptance.tail_families import DEFAULT_TAIL, TAILS

_LEVELS: Final = np.concatenate([[-40.0], np.linspace(-9.0, 11.0, 120), [40.0]])
_FINE_LEVELS: Final = np.concatenate([[-40.0], np.linspace(-12.0, 14.0, 2000), [40.0]])
_SHAPE_PAIRS = 8
_GRID = 72
_CENTRAL = (0.05, 0.95)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedAcceptLength:
    """Accept lengths at the depth asked for, from single numbers at another depth.

    Parameters
    ----------
    value : numpy.ndarray
        Of the default family at its usual shape, [tokens].
    low, high : numpy.ndarray
        Central 90 % over families and shapes, [tokens].
    sd : numpy.ndarray
        Standard deviation of the same mixture, [tokens].
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    sd: FloatArray


def carry_accept_length(
    accept_length: ArrayLike, accept_depth: ArrayLike, num_steps: ArrayLike
) -> CarriedAcceptLength:
    r"""Accept length of a chain at a depth, from its accept length at another depth.

    .. math:: \tau(k_0; \ell, s) = \tau_0 \;\Rightarrow\; \ell(s), \qquad
        \tau(k) = 1 + \sum_{i \le k} \prod_{j \le i} a_j(\ell(s), s)

    Parameters
    ----------
    accept_length : array-like, any shape
        :math:`\tau_0`, bonus token included, between 1 and accept_depth + 1, [tokens].
    accept_depth : array-like of int, broadcast with `accept_length`
        :math:`k_0`, depth it was measured at, at least 1, [tokens].
    num_steps : array-like of int, broadcast with `accept_length`
        :math:`k`, depth asked for, deeper or shallower, [tokens].

    Returns
    -------
    CarriedAcceptLength
        Arrays of the broadcast shape; at the measured depth the number itself, with no spread.

    Raises
    ------
    ParameterError
        If an accept length is impossible at its depth, or a depth is below its bound.

    Notes
    -----
    One number fixes the level :math:`\ell` of a curve and says nothing about its shape s, which
    comes from the priors of the families (see `tail_families`); their spread is the interval,
    wider than from a list. Chains only: a tree is not the chain of its depth.

    Examples
    --------
    >>> carried = carry_accept_length(2.75, 5, 10)
    >>> float(carried.value), float(carried.low), float(carried.high)
    (2.885, 2.79, 3.08)
    >>> carry_accept_length([2.1, 2.75], 5, [3, 5]).value.tolist()
    [2.01, 2.75]
    """
    length, before, after = np.broadcast_arrays(
        check_accept_length(accept_length, whole("accept_depth", accept_depth, 1)),
        whole("accept_depth", accept_depth, 1),
        whole("num_steps", num_steps),
    )
    value, low, high, sd = (
        np.array(length),
        np.array(length),
        np.array(length),
        np.zeros(length.shape),
    )
    pairs = np.unique(np.stack([before.ravel(), after.ravel()]), axis=1)
    for pair in pairs.T.tolist():
        here = (before == pair[0]) & (after == pair[1])
        value[here], low[here], high[here], sd[here] = _carried(length[here], *pair)
    return CarriedAcceptLength(value=value, low=low, high=high, sd=sd)


def full_accuracy_from_accept_length(
    accept_length: float, accept_depth: int, num_steps: int | None = None
) -> FullAccuracy:
    r"""Full accuracy of the usual curve that has an accept length at a depth.

    .. math:: S_i = \tau(i) - \tau(i-1), \qquad \tau(k_0) = \tau_0

    Parameters
    ----------
    accept_length : float
        :math:`\tau_0`, bonus token included, between 1 and accept_depth + 1, [tokens].
    accept_depth : int
        :math:`k_0`, depth it was measured at, at least 1, [tokens].
    num_steps : int, optional
        Depth of the list; `accept_depth` when left out, [tokens].

    Returns
    -------
    FullAccuracy
        An assumed list, not a measured one; its sum agrees with the number.

    Raises
    ------
    ParameterError
        If the accept length is impossible at its depth, or a depth is below 1.

    Notes
    -----
    The default family at its usual shape; `carry_accept_length` has the spread.

    Examples
    --------
    >>> full_accuracy_from_accept_length(2.75, 5).values.tolist()
    [0.71, 0.46, 0.29, 0.18, 0.11]
    """
    depth = accept_depth if num_steps is None else num_steps
    deepest = int(whole("num_steps", depth, 1))
    carried = carry_accept_length(accept_length, accept_depth, np.arange(deepest + 1))
    return FullAccuracy(np.minimum.accumulate(np.clip(np.diff(carried.value), 0.0, 1.0)))


def _carried(length: FloatArray, before: int, after: int) -> tuple[FloatArray, ...]:
    """Return value, low, high and spread for accept lengths that share both depths."""
    if before == after:
        return length, length, length, np.zeros(length.shape)
    deepest = _table_depth(max(before, after))
    usual = _usual_curve(deepest)
    value = _through(length, usual, before, after)
    grid, low, high, sd = _pair_table(before, after)
    return (
        value,
        np.minimum(np.interp(length, grid, low), value),
        np.maximum(np.interp(length, grid, high), value),
        np.interp(length, grid, sd),
    )


@lru_cache(maxsize=512)
def _pair_table(before: int, after: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the spread over families and shapes on a grid of accept lengths at `before`."""
    grid = np.linspace(1.0, before + 1.0, _GRID)
    curves, weights = _curves(_table_depth(max(before, after)))
    rough = np.exp(ROUGHNESS * normal_nodes(2, 1)[:, 0])
    carried = np.stack([_through(grid, curve, before, after) for curve in curves])
    draws = grid + rough[:, None, None] * (carried - grid)
    draws = np.clip(draws, 1.0, after + 1.0).reshape(-1, grid.size)
    share = np.tile(weights, rough.size) / rough.size
    low, high = weighted_quantiles(draws, share, _CENTRAL)
    sd = np.sqrt(share @ (draws - share @ draws) ** 2)
    return grid, low, high, sd


def _through(length: FloatArray, curve: FloatArray, before: int, after: int) -> FloatArray:
    """Return accept lengths at `after` of the members of a curve that have `length` at `before`."""
    start = np.append(curve[:, before], before + 1.0)
    end = np.append(curve[:, after], after + 1.0)
    return np.asarray(np.interp(length, start, end))


@lru_cache(maxsize=4)
def _usual_curve(deepest: int) -> FloatArray:
    """Return accept length by level and depth of the default family at its mean shape."""
    shape = np.array(DEFAULT_TAIL.prior.mean)
    return np.asarray(_accept_lengths(DEFAULT_TAIL, _FINE_LEVELS, shape[None], deepest)[0])


@lru_cache(maxsize=4)
def _curves(deepest: int) -> tuple[FloatArray, FloatArray]:
    """Return accept lengths (curves, levels, depths) over families and shapes, and weights."""
    curves, weights = [], []
    for family in TAILS.values():
        mean, sd = np.array(family.prior.mean), np.array(family.prior.sd)
        nodes = normal_nodes(_SHAPE_PAIRS, mean.size) if mean.size else np.zeros((1, 0))
        curves.append(_accept_lengths(family, _LEVELS, mean + sd * nodes, deepest))
        weights.append(np.full(len(nodes), family.prior.weight / len(nodes)))
    share = np.concatenate(weights)
    return np.concatenate(curves), share / share.sum()


def _accept_lengths(
    family: AbstractTail, levels: FloatArray, shapes: FloatArray, deepest: int
) -> FloatArray:
    """Return accept lengths (shapes, levels, depths from 0) of a family."""
    parameters = np.empty((len(shapes), levels.size, 1 + shapes.shape[1]))
    parameters[..., 0] = levels
    parameters[..., 1:] = shapes[:, None, :]
    depth = np.arange(1.0, deepest + 1.0)
    survival = np.cumprod(np.clip(family.hazard(parameters, depth), 0.0, 1.0), axis=-1)
    total = np.ones((*parameters.shape[:-1], deepest + 1))
    total[..., 1:] += np.cumsum(survival, axis=-1)
    return total


def _table_depth(deepest: int) -> int:
    """Return the depth of the table that covers a depth: few distinct tables serve all."""
    table: IntArray = np.array([8, 16, 32, 64, 128])
    return int(table[np.searchsorted(table, deepest)]) if deepest <= table[-1] else deepest
