"""The curve of accept lengths through depths that were measured, between and beyond them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, whole
from specmodel.acceptance.other_depth import (
    CENTRAL,
    RUN_NOISE,
    SUM_ROUGHNESS,
    CarriedAcceptLength,
    carry_accept_length,
    family_shares,
)
from specmodel.acceptance.tails import (
    DRAW_PAIRS,
    TAILS,
    FittedTail,
    TailFamily,
    fit_curve,
    normal_nodes,
    weighted_quantiles,
)

RISE = 0.02
"""How much more than the depth before a further depth may add and be of the same draft model, [tokens]."""


def through_measured(measured: Mapping[int, float], num_steps: ArrayLike) -> CarriedAcceptLength:
    r"""Accept lengths at depths by the curve through those that were measured at some.

    .. math:: \tau(k) - 1 = (\hat\tau(k) - 1)\,
        \exp\Big(\sum_m w_m(k) \ln\frac{\tau_m - 1}{\hat\tau(m) - 1}\Big)

    Each tail family is fitted to all of them, and what it misses at two neighbours is interpolated between
    (w), so that a measured depth keeps its value and no spread. Another lies between its neighbours.

    >>> curve = through_measured({2: 1.7, 4: 2.4, 6: 3.0}, [2, 3, 4, 8])
    >>> bool(1.7 < curve.value[1] < 2.4 < 3.0 < curve.value[3])
    True
    """
    depths = np.atleast_1d(whole("num_steps", num_steps))
    known = {depth: max(length, 1.0) for depth, length in sorted(measured.items()) if depth > 0}
    if len(known) == 1:
        ((depth, length),) = known.items()
        return carry_accept_length(length, depth, depths)
    knots, lengths = np.array([*known]), np.array([*known.values()])
    every = np.arange(max(knots[-1], depths.max(initial=0)) + 1)
    accepted = np.maximum(lengths - 1.0, 1e-6)
    fits = [fit_tail_to_accept_lengths(knots, lengths, family) for family in TAILS.values()]

    def curve(fit: FittedTail, parameters: FloatArray) -> FloatArray:
        hazard = fit.family.conditional_accuracy(parameters, every[1:])
        sums = np.cumsum(np.cumprod(hazard, axis=-1), axis=-1)
        missed = np.log(accepted / np.maximum(sums[..., knots - 1], 1e-6))
        after = np.clip(np.searchsorted(knots, depths), 1, len(knots) - 1)
        first, second = knots[after - 1], knots[after]
        share = np.clip((depths - first) / (second - first), 0.0, 1.0)
        shift = missed[..., after - 1] * (1.0 - share) + missed[..., after] * share
        start = np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)
        return np.asarray(1.0 + start[..., depths] * np.exp(shift))

    # No deeper depth accepts less, and none more than the next measured one.
    level = np.interp(depths, [0, *knots], [1.0, *lengths])
    least = np.array([max([1.0, *lengths[knots <= depth]]) for depth in depths])
    most = np.array([min([depth + 1.0, *lengths[knots >= depth]]) for depth in depths])
    least, most = np.minimum(least, most), np.maximum(least, most)
    rough, noise = np.exp((SUM_ROUGHNESS, RUN_NOISE) * normal_nodes(DRAW_PAIRS, 2)).T[..., None]
    drawn = np.concatenate([level + rough * (curve(fit, fit.draws) - level) for fit in fits])
    drawn = 1.0 + np.tile(noise, (len(fits), 1)) * (np.clip(drawn, least, most) - 1.0)
    drawn = np.minimum(drawn, depths + 1.0)
    value = np.clip(curve(fits[0], fits[0].parameters), least, most)
    for knot, length in zip(knots, lengths, strict=True):
        drawn[:, depths == knot] = value[depths == knot] = length
    weights = np.repeat(family_shares(fits) / len(rough), len(rough))
    low, high = weighted_quantiles(drawn, weights, CENTRAL)
    sd = np.sqrt(weights @ (drawn - weights @ drawn) ** 2)
    return CarriedAcceptLength(value, np.minimum(low, value), np.maximum(high, value), sd)


def fit_tail_to_accept_lengths(
    num_steps: ArrayLike,
    accept_lengths: ArrayLike,
    family: TailFamily,
    relative_noise: float = RUN_NOISE,
) -> FittedTail:
    """A depth sweep of chains measures the survival curve as differences of accept lengths."""
    depths, lengths = np.asarray(num_steps), np.asarray(accept_lengths, dtype=np.float64)
    every = np.arange(1.0, depths.max() + 1.0)
    accepted = lengths - 1.0

    def predict(parameters: FloatArray) -> FloatArray:
        survival = np.cumprod(family.conditional_accuracy(parameters, every), axis=-1)
        return np.asarray(np.cumsum(survival, axis=-1)[..., depths - 1])

    scale = 1.0 / (relative_noise * np.maximum(accepted, 0.02))
    return fit_curve(predict, accepted, scale, family, float(accepted[0] / lengths[0]))


def of_one_drafter(measured: Mapping[int, float]) -> bool:
    """Whether no depth adds more than the one before it, as no draft model's does."""
    knots = {0: 1.0, **dict(sorted(measured.items()))}
    added = np.diff([*knots.values()]) / np.diff([*knots])
    return bool(np.all(np.diff(added) <= RISE) and np.all(added <= 1.0))
