"""Tail families: how conditional acceptance goes on with depth, with priors that served curves taught.

The priors of the exponential, first-then-constant and Weibull shapes are mean and spread over 49
drafters (121 curves, block drafters among them) of [sgl-project-specforge-specbundle]_,
[semianalysis-inferencex-golden]_ and served logs [specmodel-served-depths]_, every drafter weighing
the same; those of the families that only fall or only rise are judgements near what the curves that
do so teach. The weights are the inverse mean square errors when accept lengths at depths 3 and 5
predict depth 7 on the chains of [sgl-project-specforge-specbundle]_. The tests learn both again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray

LEVEL_PRIOR_MEAN, LEVEL_PRIOR_SD = 1.1, 1.5
"""Logit of the first acceptance over all drafters: wide on purpose, the data decide it."""

DECAY_LENGTH = 1.5
"""Depths in which the distance to the asymptote falls to 1/e, where data are few."""

CONDITIONAL_NOISE = 0.02
"""Standard deviation of a measured conditional accuracy about a smooth curve at depth 1; it grows
with the inverse square root of the share of rounds that reach a depth. Rounding, prompts and workload
noise are all in it; chosen by `scripts/learn_acceptance.py`."""

DRAW_PAIRS = 64
"""Half the number of posterior draws of a fitted tail."""

Curve = Callable[..., FloatArray]


@dataclass(frozen=True)
class TailFamily:
    """Curves of conditional accuracy with one level and shape parameters, all unbounded.

    `curve` maps depths and parameters to the curve. Parameter 0 is the level, the logit of the first
    acceptance or the nearest thing to it; the shape has a normal prior. The weight is the trust in the
    family before any data, relative to the others.
    """

    name: str
    curve: Curve
    shape_mean: tuple[float, ...]
    shape_sd: tuple[float, ...]
    weight: float

    @property
    def mean(self) -> FloatArray:
        """Prior mean of level and shape."""
        return np.array([LEVEL_PRIOR_MEAN, *self.shape_mean])

    @property
    def sd(self) -> FloatArray:
        """Prior standard deviation of level and shape."""
        return np.array([LEVEL_PRIOR_SD, *self.shape_sd])

    def conditional_accuracy(self, parameters: ArrayLike, depth: ArrayLike) -> FloatArray:
        """Conditional accuracy (..., d) of parameters (..., n) at 1-based depths (d,)."""
        columns = np.moveaxis(np.asarray(parameters, dtype=np.float64), -1, 0)[..., None]
        return np.clip(self.curve(np.asarray(depth, dtype=np.float64), *columns), 0.0, 1.0)


def _exponential(
    depth: FloatArray, level: FloatArray, shift: FloatArray, log_length: FloatArray
) -> FloatArray:
    r"""First value, then exponential decay to an asymptote, which may lie above it.

    .. math:: a_i = a_\infty + (a_1 - a_\infty)\, e^{-(i-1)/L}
    """
    first, asymptote = _sigmoid(level), _sigmoid(level + shift)
    return asymptote + (first - asymptote) * np.exp(-(depth - 1.0) * np.exp(-log_length))


def _first_then_constant(depth: FloatArray, level: FloatArray, shift: FloatArray) -> FloatArray:
    """First value, then one constant for all other depths."""
    return np.where(depth == 1.0, _sigmoid(level), _sigmoid(level + shift))


def _geometric_decay(depth: FloatArray, level: FloatArray, decay: FloatArray) -> FloatArray:
    r"""A fall by a constant factor per depth.

    .. math:: a_i = a_1 e^{-d (i-1)}, \qquad d \ge 0
    """
    return np.asarray(_sigmoid(level) * np.exp(-_positive(decay) * (depth - 1.0)))


def _power_law(depth: FloatArray, level: FloatArray, power: FloatArray) -> FloatArray:
    r"""A fall as a power of depth.

    .. math:: a_i = a_1 i^{-b}, \qquad b \ge 0
    """
    return np.asarray(_sigmoid(level) * depth ** -_positive(power))


def _weibull(depth: FloatArray, level: FloatArray, log_power: FloatArray) -> FloatArray:
    r"""Discrete Weibull survival: conditionals fall with depth where the exponent is above 1.

    .. math:: S_i = a_1^{\,i^\beta}, \qquad a_i = a_1^{\,i^\beta - (i-1)^\beta}
    """
    power = np.exp(np.minimum(log_power, _STEEPEST))
    return np.asarray(_sigmoid(level) ** (depth**power - (depth - 1.0) ** power))


def _beta_geometric(depth: FloatArray, level: FloatArray, correlation: FloatArray) -> FloatArray:
    r"""Requests differ and each has a constant acceptance rate: conditionals rise.

    .. math:: a_i = \frac{m(1-\rho) + (i-1)\rho}{1 - \rho + (i-1)\rho}

    Right for n-gram drafts on edits [vllm-project-vllm-24344]_; for learned drafters alone it is
    optimistic at depth, hence its small weight.
    """
    share = np.minimum(_positive(correlation), 0.95)
    before = (depth - 1.0) * share
    return np.asarray((_sigmoid(level) * (1.0 - share) + before) / (1.0 - share + before))


def _constant(depth: FloatArray, level: FloatArray) -> FloatArray:
    """The textbook chain, Eq. 1 of [leviathan2023]_: optimistic beyond the measured depth."""
    return np.asarray(_sigmoid(level) + 0.0 * depth)


_BEND, _STEEPEST = 0.01, 3.0


def _sigmoid(level: FloatArray) -> FloatArray:
    """The probability of a logit, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * level)))


def _positive(shape: FloatArray) -> FloatArray:
    """The shape where it is positive, a smooth bend towards 0 where it is not."""
    return np.asarray(_BEND * np.logaddexp(0.0, shape / _BEND))


TAILS: Final[Mapping[str, TailFamily]] = MappingProxyType(
    {
        family.name: family
        for family in (
            TailFamily(
                "exponential", _exponential, (-0.60, math.log(DECAY_LENGTH)), (0.73, 0.58), 0.21
            ),
            TailFamily("first-then-constant", _first_then_constant, (-0.48,), (0.55,), 0.16),
            TailFamily("geometric-decay", _geometric_decay, (0.045,), (0.06,), 0.15),
            TailFamily("power-law", _power_law, (0.10,), (0.11,), 0.22),
            TailFamily("weibull", _weibull, (0.16,), (0.19,), 0.22),
            TailFamily("beta-geometric", _beta_geometric, (0.03,), (0.05,), 0.02),
            TailFamily("constant", _constant, (), (), 0.02),
        )
    }
)

DEFAULT_TAIL: Final = TAILS["exponential"]
"""The family whose value is reported, best on published chains; the others give the spread."""


class FittedTail(NamedTuple):
    """A tail family with its most probable parameters, equally likely draws of them, and its evidence."""

    family: TailFamily
    parameters: FloatArray
    draws: FloatArray
    log_evidence: float


def fit_tail(full_accuracy: FullAccuracy, family: TailFamily) -> FittedTail:
    r"""Most probable tail of a family given a list of full accuracies.

    .. math:: \min_\theta \sum_i \frac{S_{i-1}\,(a_i - a_i(\theta))^2}{\sigma^2}
        + \sum_j \frac{(\theta_j - \mu_j)^2}{s_j^2}

    Weighted by the rounds that reach each depth; :math:`\sigma` is `CONDITIONAL_NOISE`. The prior
    decides what the list does not: no form changes with the number of depths.
    """
    measured = full_accuracy.to_conditional().values
    depth = np.arange(1.0, measured.size + 1.0)
    reached = np.concatenate([[1.0], full_accuracy.values[: measured.size - 1]])
    scale = np.sqrt(reached) / CONDITIONAL_NOISE
    return fit_curve(
        lambda parameters: family.conditional_accuracy(parameters, depth),
        measured,
        scale,
        family,
        float(measured[0]),
    )


def fit_curve(
    predict: Callable[[FloatArray], FloatArray],
    measured: FloatArray,
    scale: FloatArray,
    family: TailFamily,
    first: float,
) -> FittedTail:
    """Most probable parameters with their Laplace evidence, and draws by randomised maximum likelihood.

    A draw fits data and prior that are each moved by their own noise; unlike a normal
    approximation it follows the curved valley of level against shape.
    """
    mean, sd = family.mean, family.sd

    def residual(noise: FloatArray) -> Callable[[FloatArray], FloatArray]:
        def moved(parameters: FloatArray) -> FloatArray:
            data = scale * (predict(parameters) - measured)
            return np.concatenate([data, (parameters - mean) / sd], axis=-1) - noise

        return moved

    start = mean[None].copy()
    likely = min(max(first, 0.02), 0.98)
    start[0, 0] = math.log(likely / (1.0 - likely))
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
    return FittedTail(family, best[0], draws, float(evidence))


@lru_cache(maxsize=64)
def normal_nodes(pairs: int, dimensions: int) -> FloatArray:
    """Always the same 2 * pairs antithetic normal points, mean 0 and variance 1 in each dimension."""
    half = np.random.default_rng(20).standard_normal((dimensions, pairs)).T
    points = np.concatenate([half, -half])
    points /= np.sqrt((points**2).mean(axis=0))
    points.setflags(write=False)
    return points


def weighted_quantiles(
    values: FloatArray, weights: FloatArray, probabilities: tuple[float, ...]
) -> FloatArray:
    """Quantiles over axis 0 of weighted values, shape (probabilities, columns)."""
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    share = weights[order] / weights.sum()
    middle = np.cumsum(share, axis=0) - 0.5 * share
    columns = [
        np.interp(probabilities, middle[:, i], ordered[:, i]) for i in range(values.shape[1])
    ]
    return np.stack(columns, axis=-1)


_DIFFERENCE = 1e-6
_LARGEST_DAMPING = 1e8


def minimise(
    residual: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    longest_step: FloatArray,
    *,
    tolerance: float = 1e-9,
    iterations: int = 60,
) -> FloatArray:
    """Minimisers (problems, n) of many small sums of squares at once, by damped Gauss-Newton.

    `residual` maps parameters (..., problems, n) to residuals (..., problems, m), row by row.
    A step is shortened to `longest_step` (n,) in every parameter: far steps end in flat regions.
    """
    parameters = start.copy()
    value = residual(parameters)
    cost = (value**2).sum(axis=-1)
    damping = np.full(cost.shape, 1e-3)
    active = np.ones(cost.shape, dtype=bool)
    slope = jacobian(residual, parameters, value)
    diagonal = np.arange(start.shape[-1])
    for _ in range(iterations):
        damped = np.swapaxes(slope, -1, -2) @ slope
        damped[:, diagonal, diagonal] *= 1.0 + damping[:, None]
        gradient = (slope * value[..., None]).sum(axis=-2)
        step = np.linalg.solve(damped, gradient[..., None])[..., 0]
        step /= np.maximum(np.abs(step) / longest_step, 1.0).max(axis=-1, keepdims=True)
        trial = np.where(active[:, None], parameters - step, parameters)
        trial_value = residual(trial)
        trial_cost = (trial_value**2).sum(axis=-1)
        better = active & (trial_cost < cost)
        small = cost - trial_cost < tolerance * (1.0 + cost)
        damping = np.where(better, np.maximum(damping * 0.1, 1e-9), damping * 10.0)
        parameters = np.where(better[:, None], trial, parameters)
        value = np.where(better[:, None], trial_value, value)
        cost = np.where(better, trial_cost, cost)
        active &= ~(better & small) & (damping < _LARGEST_DAMPING)
        if not active.any():
            break
        slope = jacobian(residual, parameters, value)
    return parameters


def jacobian(
    residual: Callable[[FloatArray], FloatArray], parameters: FloatArray, value: FloatArray
) -> FloatArray:
    """Forward differences, shape (problems, m, n)."""
    steps = _DIFFERENCE * np.eye(parameters.shape[-1])[:, None, :]
    change = (residual(parameters + steps) - value) / _DIFFERENCE
    return np.moveaxis(change, 0, -1)
