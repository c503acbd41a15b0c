"""Accept lengths that a training log implies: by the kind of its accuracies, cut at the served depth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.training.records import Kind
from specmodel.acceptance import FullAccuracy, tail_spread
from specmodel.errors import ParameterError
from specmodel.question import AcceptLength, Estimate
from specmodel.statistics import NORMAL_95

Array = NDArray[np.float64]

# What the accept length of each kind is called.
ROUTES: Final[Mapping[Kind, str]] = {
    Kind.JOINT: "joint",
    Kind.CONDITIONAL: "conditional",
    Kind.MARGINAL: "marginal_product",
    Kind.OVERLAP: "overlap_product",
}

_GREEDY: Final = (Kind.JOINT, Kind.CONDITIONAL, Kind.MARGINAL, Kind.OVERLAP)
_SAMPLED: Final = (Kind.OVERLAP, Kind.JOINT, Kind.CONDITIONAL, Kind.MARGINAL)
_APPROXIMATE: Final = frozenset({Kind.MARGINAL, Kind.OVERLAP})


@dataclass(frozen=True, slots=True)
class OfflineAcceptance:
    """What a log says of the accept length at one depth."""

    # with its spread; None where the log gives no accept length, [tokens]
    accept_length: AcceptLength | None
    # kind of the accuracies it is from; None for a printed accept length, and for none
    kind: Kind | None
    # depth it belongs to, the served one; None for a printed one of unknown depth, [tokens]
    num_steps: int | None
    trained_depth: int  # depths that the log has; 0 where it prints none by depth, [tokens]
    # the accept length by every kind that the log has, cut at the served or the trained depth,
    # whichever is less
    routes: Mapping[str, float] = field(default_factory=dict)
    curve: FullAccuracy | None = None  # full accuracies of the chosen kind at the trained depths
    # ``marginal-approximation``, ``depth0-only``, ``mean-only``, ``bonus-unknown``, ``beyond-
    # trained-depth``, ``overlap-for-greedy``, ``greedy-for-sampling``, ``printed-depth-unknown``
    codes: tuple[str, ...] = ()

    def draws(self, num_draws: int, rng: np.random.Generator) -> Array:
        r"""Equally likely accept lengths.

        .. math:: 1 \le \tau e^{s z} \le k + 1
        """
        known = self.accept_length
        if known is None:
            raise ParameterError(
                "accept length", "none", "known", "; ".join(self.codes) or "log accuracy by depth"
            )
        median = known.estimate.median
        most = math.inf if self.num_steps is None else max(self.num_steps + 1.0, median)
        drawn = median * np.exp(known.log_sd * spread_normal(num_draws, rng))
        return np.asarray(np.clip(drawn, 1.0, most))


def chained_accept_length(values: ArrayLike, kind: Kind, num_steps: int | None = None) -> Array:
    r"""Return accept lengths from accuracies by depth, bonus token included.

    .. math:: 1 + \sum_{i \le k} S_i \quad\text{(joint)}, \qquad
              1 + \sum_{i \le k} \prod_{j \le i} a_j \quad\text{(others)}

    Exact for joint and conditional accuracies. A product of marginals is too low where easy starts
    stay easy, and an overlap is that of sampling at temperature 1. Marginals or conditionals are
    never summed, joint ones never multiplied.
    """
    cut = np.asarray(values, dtype=np.float64)[..., :num_steps]
    full = cut if kind is Kind.JOINT else np.cumprod(cut, axis=-1)
    return np.asarray(1.0 + full.sum(axis=-1))


def accept_length_routes(
    accuracies: Mapping[Kind, Sequence[float]], num_steps: int | None = None
) -> dict[str, float]:
    """Return the accept length by every kind of accuracy that is known."""
    return {
        ROUTES[kind]: float(chained_accept_length(accuracies[kind], kind, num_steps))
        for kind in _GREEDY
        if accuracies.get(kind)
    }


def offline_acceptance(
    accuracies: Mapping[Kind, Sequence[float]],
    num_steps: int | None = None,
    *,
    sampled: bool = False,
    rounding: float = 0.0,
    num_records: int = 1,
    scatter_sd: float = 0.0,
    depth_is_whole: bool = True,
) -> OfflineAcceptance:
    r"""Return the accept length that accuracies by depth imply, with what is uncertain about it.

    .. math:: s^2 = \frac{(\tau_\text{joint} - \tau_\text{cond})^2}{2} + s_\text{scatter}^2 + s_\text{rounding}^2 + s_\text{tail}^2

    Joint and conditional accuracies are two measurements of one accept length; half their squared
    difference is the variance of either. Beyond the trained depth the tail model of
    `specmodel.acceptance.tail_spread` carries the curve: holding the last conditional is an upper
    scenario, not the estimate.
    """
    if num_steps is not None and num_steps < 1:
        raise ParameterError("num_steps", num_steps, "at least 1", "no draft has no accept length")
    order = _SAMPLED if sampled else _GREEDY
    known_kinds = [one for one in order if accuracies.get(one)]
    # the first of the deepest
    kind = max(known_kinds, key=lambda one: len(accuracies[one]), default=None)
    if kind is None:
        return OfflineAcceptance(None, None, num_steps, 0, codes=("mean-only",))
    values = np.asarray(accuracies[kind], dtype=np.float64)
    depth = values.size if num_steps is None else num_steps
    curve = _full_accuracy(values, kind)
    cut = min(depth, values.size)
    as_deep = {one: accuracies[one] for one in known_kinds if len(accuracies[one]) >= cut}
    routes = accept_length_routes(as_deep, cut)
    codes = _codes(kind, sampled=sampled, beyond=depth > values.size)
    if not depth_is_whole and depth > values.size:
        return OfflineAcceptance(None, kind, depth, values.size, codes=("depth0-only",))
    rounded = _rounding_variance(values[:cut], kind, rounding) / max(num_records, 1)
    variance = _route_variance(routes) + scatter_sd**2 + rounded
    known = _estimate(routes[ROUTES[kind]], math.sqrt(variance), curve, depth)
    return OfflineAcceptance(known, kind, depth, values.size, routes, curve, codes)


def carried_draws(
    draws: Array, curve: FullAccuracy, num_steps: int, rng: np.random.Generator
) -> Array:
    r"""Return draws of an accept length at the trained depth, carried to a deeper one.

    .. math:: \tau_k = \tau_m + (\tau_m - 1)\, r, \qquad
        r = \frac{\hat\tau_k - \hat\tau_m}{\hat\tau_m - 1} e^{s z}
    """
    measured = curve.num_steps
    if num_steps <= measured:
        return draws
    spread = tail_spread(curve, [num_steps])
    base = curve.accept_length()
    added = float(spread.value[0]) - base
    if added <= 0.0 or base <= 1.0:
        return draws
    most = max(float(spread.high[0]) - base, added)
    least = max(float(spread.low[0]) - base, added * added / most)
    log_sd = math.log(most / least) / (2.0 * NORMAL_95)
    normal = spread_normal(len(draws), rng).reshape(-1, *[1] * (draws.ndim - 1))
    longer = draws + (draws - 1.0) * (added / (base - 1.0)) * np.exp(log_sd * normal)
    return np.asarray(np.minimum(longer, num_steps + 1.0))


def spread_normal(num_draws: int, rng: np.random.Generator) -> Array:
    """Return standard normal draws at equal steps of probability, in any order.

    Their quantiles have no noise: a median that was put in comes out.
    """
    normal = NormalDist()
    values = [normal.inv_cdf((rank + 0.5) / num_draws) for rank in range(num_draws)]
    return rng.permutation(np.array(values))


def _full_accuracy(values: Array, kind: Kind) -> FullAccuracy:
    """Full accuracies of a list; a joint one that rises by chance is levelled."""
    full = values if kind is Kind.JOINT else np.cumprod(values)
    outside = ~((values >= 0.0) & (values <= 1.0))
    if np.any(outside):
        raise ParameterError(
            f"{kind} accuracy at depth {int(np.flatnonzero(outside)[0])}",
            f"{values[outside][0]:g}",
            "in [0, 1]",
            "see the checks of the log: percentages, or numerators that were reduced twice",
        )
    return FullAccuracy(np.minimum.accumulate(full))


def _codes(kind: Kind, *, sampled: bool, beyond: bool) -> tuple[str, ...]:
    """What is to be known of an accept length of a kind."""
    return tuple(
        code
        for code, holds in (
            ("marginal-approximation", kind in _APPROXIMATE),
            ("overlap-for-greedy", kind is Kind.OVERLAP and not sampled),
            ("greedy-for-sampling", kind is not Kind.OVERLAP and sampled),
            ("beyond-trained-depth", beyond),
        )
        if holds
    )


def _route_variance(routes: Mapping[str, float]) -> float:
    """Variance of an accept length that was measured twice, as joint and as conditional."""
    if not {"joint", "conditional"} <= set(routes):
        return 0.0
    return float((routes["joint"] - routes["conditional"]) ** 2 / 2.0)


def _rounding_variance(values: Array, kind: Kind, rounding: float) -> float:
    """Variance of an accept length whose accuracies were printed with few digits."""
    if kind is Kind.JOINT:
        gradient = np.ones(values.size)
    else:
        # d tau / d a_j is the sum of all products that hold a_j, with a_j left out
        before = np.concatenate([[1.0], np.cumprod(values)[:-1]])
        after = np.ones(values.size)
        for depth in range(values.size - 2, -1, -1):
            after[depth] = 1.0 + values[depth + 1] * after[depth + 1]
        gradient = before * after
    return float((gradient**2).sum() * rounding**2 / 3.0)


def _estimate(measured: float, sd: float, curve: FullAccuracy, depth: int) -> AcceptLength:
    """Accept length at a depth: the measured one, and beyond it the tail model."""
    if depth <= curve.num_steps:
        return within_depth(measured, measured, measured, sd=sd, most=depth + 1.0)
    spread = tail_spread(curve, [depth])
    moved = measured - curve.accept_length()  # not 0 where a rising list was levelled
    value, low, high = (float(one[0]) + moved for one in (spread.value, spread.low, spread.high))
    return within_depth(value, low, high, sd=sd, most=depth + 1.0)


def within_depth(median: float, low: float, high: float, *, sd: float, most: float) -> AcceptLength:
    r"""Return an accept length whose interval is widened by an independent normal error.

    .. math:: \tau_\text{low} = \max\left(\tau - \sqrt{(\tau - l)^2 + (z s)^2},\, 1\right)
    """
    width = NORMAL_95 * sd
    below, above = math.hypot(median - low, width), math.hypot(high - median, width)
    return AcceptLength(
        estimate=Estimate(
            median=median,
            low=min(max(median - below, 1.0), median),
            high=max(min(median + above, most), median),
        ),
        log_sd=(below + above) / (2.0 * NORMAL_95 * median),
    )
