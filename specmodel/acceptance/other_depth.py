"""Accept lengths at a depth that was not measured, from a list or a number, with the spread over tails."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, whole
from specmodel.acceptance.feasible import check_accept_length
from specmodel.acceptance.tails import (
    DEFAULT_TAIL,
    DRAW_PAIRS,
    TAILS,
    FittedTail,
    TailFamily,
    fit_tail,
    normal_nodes,
    weighted_quantiles,
)
from specmodel.statistics import NORMAL_95

ROUGHNESS = 0.07
"""Log-scale standard deviation of what a list adds beyond its end about a smooth family's value: served
lists are not smooth. Chosen with `CONDITIONAL_NOISE` by `scripts/learn_acceptance.py`."""

SUM_ROUGHNESS = 0.05
"""The same of an accept length, which is a sum over a list and smoother."""

RUN_NOISE = 0.02
"""Relative standard deviation of (accept length - 1) between runs of one server."""

SHAPE_SHARE = 0.6
"""Part of the prior spread of the shapes by which the curve through one number varies: what single curves
taught holds their own noise. This and the two above were chosen by `scripts/learn_acceptance.py`."""

CENTRAL: Final = (0.05, 0.95)
"""Bounds of an interval. [-]"""

_LEVELS: Final = np.concatenate([[-40.0], np.linspace(-9.0, 11.0, 120), [40.0]])
_FINE_LEVELS: Final = np.concatenate([[-40.0], np.linspace(-12.0, 14.0, 2000), [40.0]])
_SHAPE_PAIRS = 8
_GRID = 72


class TailSpread(NamedTuple):
    """Accept lengths by depth: the default family's, the central 90 % of the mixture, shares of families."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    sd: FloatArray
    weights: Mapping[str, float]


def tail_spread(
    full_accuracy: FullAccuracy,
    num_steps: ArrayLike,
    families: Iterable[TailFamily] = tuple(TAILS.values()),
) -> TailSpread:
    """Accept length at depths from a measured list, with the spread over tail families.

    Exact up to the measured depth; beyond, the first family gives the value. A family's share is its prior
    weight times its Laplace evidence on the list, so families that were wrong on published chains, or do not
    fit this list, count little but not nothing. Each enters with its parameter uncertainty and with
    `ROUGHNESS` on what it adds.

    >>> spread = tail_spread(FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]), [5, 10])
    >>> spread.value.tolist()
    [2.749, 2.867]
    >>> bool(spread.high[1] < 3.1)
    True
    """
    depths = np.atleast_1d(whole("num_steps", num_steps))
    fits = [fit_tail(full_accuracy, family) for family in families]
    survival = full_accuracy.values
    known = np.minimum(depths, survival.size)
    measured = np.concatenate([[1.0], 1.0 + np.cumsum(survival)])[known]
    beyond = np.arange(survival.size + 1, max(int(depths.max(initial=0)), survival.size + 1) + 1)

    def accept_length(family: TailFamily, parameters: FloatArray) -> FloatArray:
        tail = np.cumsum(np.cumprod(family.conditional_accuracy(parameters, beyond), -1), -1)
        tail = np.concatenate([np.zeros((*tail.shape[:-1], 1)), tail], axis=-1)
        return np.asarray(measured + survival[-1] * tail[..., depths - known])

    share = family_shares(fits)
    rough = np.exp(ROUGHNESS * normal_nodes(DRAW_PAIRS, 1))
    draws = np.concatenate(
        [measured + rough * (accept_length(fit.family, fit.draws) - measured) for fit in fits]
    )
    draws = np.clip(draws, 1.0, depths + 1.0)
    weights = np.repeat(share / len(rough), len(rough))
    low, high = weighted_quantiles(draws, weights, CENTRAL)
    value = accept_length(fits[0].family, fits[0].parameters)
    return TailSpread(
        value=value,
        low=np.minimum(low, value),
        high=np.maximum(high, value),
        sd=np.sqrt(weights @ (draws - weights @ draws) ** 2),
        weights={fit.family.name: float(part) for fit, part in zip(fits, share, strict=True)},
    )


def family_shares(fits: Sequence[FittedTail]) -> FloatArray:
    """Share of each fitted family: its prior weight times its Laplace evidence."""
    evidence = np.array([fit.log_evidence + np.log(fit.family.weight) for fit in fits])
    share = np.exp(evidence - evidence.max())
    return np.asarray(share / share.sum())


class CarriedAcceptLength(NamedTuple):
    """Accept lengths at the depth asked for: the default family's, and 90 % over families and shapes."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    sd: FloatArray


def carry_accept_length(
    accept_length: ArrayLike, accept_depth: ArrayLike, num_steps: ArrayLike
) -> CarriedAcceptLength:
    r"""Accept length of a chain at a depth, from its accept length at another, deeper or shallower.

    .. math:: \tau(k_0; \ell, s) = \tau_0 \;\Rightarrow\; \ell(s), \qquad
        \tau(k) = 1 + \sum_{i \le k} \prod_{j \le i} a_j(\ell(s), s)

    One number fixes the level :math:`\ell` of a curve and says nothing about its shape s, which
    comes from the priors of the families; their spread is the interval, wider than from a list.
    Arguments broadcast. Chains only: a tree is not the chain of its depth.

    >>> carried = carry_accept_length(2.75, 5, 10)
    >>> float(carried.value), float(carried.low), float(carried.high)
    (2.885, 2.796, 3.021)
    """
    length, before, after = np.broadcast_arrays(
        check_accept_length(accept_length, whole("accept_depth", accept_depth, 1)),
        whole("accept_depth", accept_depth, 1),
        whole("num_steps", num_steps),
    )
    value, low, high = np.array(length), np.array(length), np.array(length)
    sd = np.zeros(length.shape)
    pairs = np.unique(np.stack([before.ravel(), after.ravel()]), axis=1)
    for start, end in pairs.T.tolist():
        if start == end:
            continue
        here = (before == start) & (after == end)
        value[here] = _through(length[here], _usual_curve(_table_depth(start, end)), start, end)
        grid, grid_low, grid_high, grid_sd = _pair_table(start, end)
        low[here] = np.minimum(np.interp(length[here], grid, grid_low), value[here])
        high[here] = np.maximum(np.interp(length[here], grid, grid_high), value[here])
        sd[here] = np.interp(length[here], grid, grid_sd)
    return CarriedAcceptLength(value, low, high, sd)


def full_accuracy_from_accept_length(
    accept_length: float, accept_depth: int, num_steps: int | None = None
) -> FullAccuracy:
    r"""Full accuracy of the usual curve that has an accept length at a depth; assumed, not measured.

    .. math:: S_i = \tau(i) - \tau(i-1), \qquad \tau(k_0) = \tau_0
    """
    depth = accept_depth if num_steps is None else num_steps
    deepest = int(whole("num_steps", depth, 1))
    carried = carry_accept_length(accept_length, accept_depth, np.arange(deepest + 1))
    return FullAccuracy(np.minimum.accumulate(np.clip(np.diff(carried.value), 0.0, 1.0)))


@lru_cache(maxsize=512)
def _pair_table(before: int, after: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The spread over families and shapes on a grid of accept lengths at `before`."""
    grid = np.linspace(1.0, before + 1.0, _GRID)
    curves, weights = _curves(_table_depth(before, after))
    rough = np.exp(SUM_ROUGHNESS * normal_nodes(2, 1)[:, 0])
    carried = np.stack([_through(grid, curve, before, after) for curve in curves])
    draws = grid + rough[:, None, None] * (carried - grid)
    draws = np.clip(draws, 1.0, after + 1.0).reshape(-1, grid.size)
    share = np.tile(weights, rough.size) / rough.size
    middle, run_sd = share @ draws, RUN_NOISE * (share @ draws - 1.0)
    low, high = weighted_quantiles(draws, share, CENTRAL)
    sd = np.sqrt(share @ (draws - middle) ** 2)
    # A run differs, too; but a deeper round emits no less, whatever the run.
    least, most = (grid, after + 1.0) if after > before else (1.0, np.minimum(grid, after + 1.0))
    low = np.clip(middle - np.hypot(middle - low, NORMAL_95 * run_sd), least, most)
    high = np.clip(middle + np.hypot(high - middle, NORMAL_95 * run_sd), least, most)
    return grid, low, high, np.hypot(sd, run_sd)


def _through(length: FloatArray, curve: FloatArray, before: int, after: int) -> FloatArray:
    """Accept lengths at `after` of the members of a curve that have `length` at `before`."""
    start = np.append(curve[:, before], before + 1.0)
    end = np.append(curve[:, after], after + 1.0)
    return np.asarray(np.interp(length, start, end))


@lru_cache(maxsize=4)
def _usual_curve(deepest: int) -> FloatArray:
    """Accept length by level and depth of the default family at its mean shape."""
    shape = np.array([DEFAULT_TAIL.shape_mean])
    return np.asarray(_accept_lengths(DEFAULT_TAIL, _FINE_LEVELS, shape, deepest)[0])


@lru_cache(maxsize=4)
def _curves(deepest: int) -> tuple[FloatArray, FloatArray]:
    """Accept lengths (curves, levels, depths) over families and shapes, and weights."""
    curves, weights = [], []
    for family in TAILS.values():
        mean, sd = np.array(family.shape_mean), SHAPE_SHARE * np.array(family.shape_sd)
        nodes = normal_nodes(_SHAPE_PAIRS, mean.size) if mean.size else np.zeros((1, 0))
        curves.append(_accept_lengths(family, _LEVELS, mean + sd * nodes, deepest))
        weights.append(np.full(len(nodes), family.weight / len(nodes)))
    share = np.concatenate(weights)
    return np.concatenate(curves), share / share.sum()


def _accept_lengths(
    family: TailFamily, levels: FloatArray, shapes: FloatArray, deepest: int
) -> FloatArray:
    """Accept lengths (shapes, levels, depths from 0) of a family."""
    parameters = np.empty((len(shapes), levels.size, 1 + shapes.shape[1]))
    parameters[..., 0] = levels
    parameters[..., 1:] = shapes[:, None, :]
    hazard = family.conditional_accuracy(parameters, np.arange(1.0, deepest + 1.0))
    total = np.ones((*parameters.shape[:-1], deepest + 1))
    total[..., 1:] += np.cumsum(np.cumprod(hazard, axis=-1), axis=-1)
    return total


def _table_depth(before: int, after: int) -> int:
    """The depth of the table that covers two depths: few distinct tables serve all."""
    deepest = max(before, after)
    return next((depth for depth in (8, 16, 32, 64, 128) if depth >= deepest), deepest)
