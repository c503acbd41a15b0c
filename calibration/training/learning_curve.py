r"""Saturating curves through per-depth accuracies: every form, shape and noise weighed by its evidence.

.. math:: \ell(y_k(t)) = c_k + a_k \phi(u) + h_k g(t) + d_k(t) + \varepsilon

with :math:`\phi` a power law :math:`-(u + u_0)^{-b}` or an exponential :math:`-e^{-u/T}`, scaled to rise
from -1 at the first point to 0 at the last; :math:`u` the step or the summed learning rate, over its
value at the last point; :math:`\ell` the accuracy itself or its logit; :math:`g` what the learning
rate has fallen by; :math:`d` a random walk in the logarithm of the step, zero at the last point: how
far real curves leave every form; :math:`\varepsilon` noise with memory. Given shape and noise all of it
is linear and solved in closed form; shape and noise are summed over a grid.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

POWER_EXPONENTS: Final = (0.08, 0.3, 0.6, 1.0, 1.4)
# Exponent, and offset over the last step; the smallest exponent is nearly a logarithm. A judgement.
POWER_OFFSETS: Final = (0.01, 0.03, 0.1, 0.3)

# Time constant over the last step.
EXPONENTIAL_TIMES: Final = (0.07, 0.11, 0.18, 0.3, 0.5, 0.8, 1.3, 2.5)

# Logit by which a curve leaves its form when the step grows by a factor e, one standard deviation.
WALK_SCALES: Final = (0.004, 0.015, 0.05, 0.12)

# Correlation of the noise of neighbouring points.
MEMORIES: Final = (0.0, 0.4, 0.75)

# Noise over its estimate from the scatter.
NOISE_FACTORS: Final = (0.7, 1.0, 1.6, 3.0)

_LEVEL_SD: Final = 1.0  # of the level at the last point, logit: the data decide
_RISE_MEAN: Final = 0.5
_RISE_SD: Final = 1.0  # of the rise over the points, logit

LIFT_MEAN: Final = 0.035
# Logit that a learning rate of zero instead of the peak adds: a judgement, small and mostly upward.
LIFT_SD: Final = 0.045

_EARLY: Final = 0.02  # of the last step: the walk does not begin before
_SMALLEST: Final = 1e-3  # accuracies are kept this far from 0 and 1

# Power of the number of depths that their summed evidence is divided by: 0 if depths were independent
# witnesses, 1 if they said the same. Chosen on generated runs other than those of the tests.
_TEMPER: Final = 0.6

# Correlation of the errors of the depths beyond that of their scatter; chosen likewise.
_COMMON: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The shapes of the grid."""

    power: NDArray[np.bool_]  # power law, otherwise exponential
    rate: Array  # exponent and offset of a power law; time constant (and 0) of an exponential
    offset: Array
    by_rate: NDArray[np.bool_]  # in summed learning rate, otherwise in steps

    def rise(self, first: Array, at: Array) -> Array:
        """Return the basis function: -1 at the first point, 0 at 1."""
        start, now = self._fall(first[:, None]), self._fall(np.ones((first.size, 1)))
        return np.asarray((now - self._fall(at)) / (start - now))

    def _fall(self, at: Array) -> Array:
        """Return what is left to rise, not scaled."""
        rate = self.rate[:, None]
        power = (at + self.offset[:, None] + 1e-9) ** -np.where(self.power[:, None], rate, 1.0)
        decay = np.exp(-at / np.where(self.power[:, None], 1.0, rate))
        return np.where(self.power[:, None], power, decay)

    def take(self, index: Integers) -> "Shapes":
        """Return some of the shapes."""
        return Shapes(
            power=self.power[index],
            rate=self.rate[index],
            offset=self.offset[index],
            by_rate=self.by_rate[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDraws:
    """Curves drawn from what the points leave open, in one scale."""

    logit: NDArray[np.bool_]  # whether the draw is of the logit
    shapes: Shapes  # one a draw
    coefficients: Array  # level at the last point, rise, lift
    walk: Array  # scale of the walk, logit
    # accuracy by logit at the last point, which scales the walk of draws that are not logit
    slope: Array

    def form_weights(self) -> dict[str, float]:
        """Return the share of draws of each form."""
        names = {
            "power": self.shapes.power & ~self.logit,
            "power-logit": self.shapes.power & self.logit,
            "exponential": ~self.shapes.power & ~self.logit,
            "exponential-logit": ~self.shapes.power & self.logit,
        }
        return {name: float(chosen.mean()) for name, chosen in names.items()}


def shape_grid(*, with_rate: bool) -> tuple[Shapes, Array]:
    """Return the shapes and their prior weights: forms and times weigh the same."""
    powers = [(True, b, u) for b in POWER_EXPONENTS for u in POWER_OFFSETS]
    exponentials = [(False, time, 0.0) for time in EXPONENTIAL_TIMES]
    listed = [
        (*each, by)
        for each in powers + exponentials
        for by in ((False, True) if with_rate else (False,))
    ]
    power = np.array([each[0] for each in listed])
    shapes = Shapes(
        power=power,
        rate=np.array([each[1] for each in listed]),
        offset=np.array([each[2] for each in listed]),
        by_rate=np.array([each[3] for each in listed]),
    )
    return shapes, np.where(power, 0.5 / power.sum(), 0.5 / (~power).sum())


def draw_curves(
    *,
    steps: Array,
    summed_rate: Array | None,
    fallen: Array,
    accuracies: Array,
    errors: Array,
    num_draws: int,
    rng: np.random.Generator,
) -> CurveDraws:
    """Return curves drawn from their distribution given the points."""
    shapes, prior = shape_grid(with_rate=summed_rate is not None)
    times = np.stack([steps, steps if summed_rate is None else summed_rate])
    rows = times[shapes.by_rate.astype(int)]
    basis = shapes.rise(rows[:, 0], rows)
    level = np.clip(accuracies, _SMALLEST, 1.0 - _SMALLEST)
    slope = level * (1.0 - level)
    scales = [
        _Scale(level, errors, slope[-1], logit=False),
        _Scale(np.log(level / (1.0 - level)), errors / slope, np.ones_like(slope[-1]), logit=True),
    ]
    fits = [_solved(scale, basis, fallen, steps) for scale in scales]
    # densities are of accuracies: those of logits are multiplied by the derivative
    fits[1].evidence[...] -= np.log(slope).sum(axis=0)
    shared = _shared_evidence(np.stack([fit.evidence for fit in fits]), prior)
    return _drawn(
        fits, shapes, shared, slope=slope[-1], root=_depth_correlation(level, slope),
        num_draws=num_draws, rng=rng,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values in one scale; `unit` is what one logit is worth at the last point."""

    values: Array
    errors: Array
    unit: Array
    logit: bool


@dataclass(frozen=True, slots=True)
class _Solved:
    """Posterior of the coefficients by shape, noise and depth."""

    evidence: Array  # (shapes, walks x memories, factors, depths)
    mean: Array  # (shapes, ..., depths, 3)
    precision: Array  # (shapes, ..., depths, 3, 3)
    logit: bool


def _solved(scale: _Scale, basis: Array, fallen: Array, steps: Array) -> _Solved:
    """Return the regressions of every shape under every noise, depth by depth."""
    points = scale.values.shape[0]
    whitener, log_size = _whiteners(scale, steps)  # (walks x memories, factors, depths, n, n)
    fixed = np.stack([np.ones(points), fallen])
    white_fixed = np.einsum("wfdij,cj->wfdic", whitener, fixed)
    offset = scale.values[-1]
    white_values = np.einsum("wfdij,jd->wfdi", whitener, scale.values - offset)
    white_basis = np.einsum("wfdij,sj->wfdis", whitener, basis, optimize=True)
    unit = scale.unit
    precision = np.empty((basis.shape[0], *log_size.shape, 3, 3))
    target = np.empty((basis.shape[0], *log_size.shape, 3))
    product = np.einsum("wfdia,wfdib->wfdab", white_fixed, white_fixed)
    precision[..., 0, 0] = product[..., 0, 0]
    precision[..., 0, 2] = precision[..., 2, 0] = product[..., 0, 1]
    precision[..., 2, 2] = product[..., 1, 1]
    cross = np.moveaxis(
        np.einsum("wfdis,wfdic->wfdsc", white_basis, white_fixed, optimize=True), 3, 0
    )
    precision[..., 0, 1] = precision[..., 1, 0] = cross[..., 0]
    precision[..., 2, 1] = precision[..., 1, 2] = cross[..., 1]
    precision[..., 1, 1] = np.moveaxis(
        np.einsum("wfdis,wfdis->wfds", white_basis, white_basis), 3, 0
    )
    onto = np.einsum("wfdic,wfdi->wfdc", white_fixed, white_values)
    target[..., 0], target[..., 2] = onto[..., 0], onto[..., 1]
    target[..., 1] = np.moveaxis(np.einsum("wfdis,wfdi->wfds", white_basis, white_values), 3, 0)
    prior_sd = np.stack([_LEVEL_SD * unit, _RISE_SD * unit, LIFT_SD * unit], axis=-1)
    prior_mean = np.stack([0.0 * unit, _RISE_MEAN * unit, LIFT_MEAN * unit], axis=-1)
    precision[..., (0, 1, 2), (0, 1, 2)] += prior_sd**-2
    target += prior_mean / prior_sd**2
    mean = np.linalg.solve(precision, target[..., None])[..., 0]
    fixed_terms = (
        (white_values**2).sum(axis=-1) + log_size
        + ((prior_mean / prior_sd) ** 2).sum(axis=-1) + 2.0 * np.log(prior_sd).sum(axis=-1)
    )  # fmt: skip
    gained = (mean * target).sum(axis=-1) - np.log(np.linalg.det(precision))
    evidence = 0.5 * (gained - fixed_terms)
    mean[..., 0] += offset
    return _Solved(evidence, mean, precision, scale.logit)


def _whiteners(scale: _Scale, steps: Array) -> tuple[Array, Array]:
    """Return the inverse Cholesky factors of every noise, and twice their log size."""
    log_time = np.log(np.maximum(steps, _EARLY))
    back = log_time[-1] - log_time
    walk = np.minimum.outer(back, back)
    lag = np.abs(np.subtract.outer(np.arange(steps.size), np.arange(steps.size)))
    outer = np.einsum("id,jd->dij", scale.errors, scale.errors)
    covariance = np.stack([
        np.stack([
            factor**2 * outer * memory**lag
            + (size * scale.unit[:, None, None]) ** 2 * walk
            for factor in NOISE_FACTORS
        ])
        for size in WALK_SCALES
        for memory in MEMORIES
    ])  # fmt: skip
    factor = np.linalg.cholesky(covariance)
    log_size = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.linalg.inv(factor), log_size


def _shared_evidence(evidence: Array, prior: Array) -> Array:
    """Return the weights of scale, shape and walk, which the depths of one run share.

    Depths are not independent witnesses of one shape: what they say together weighs less than the
    sum, see `_TEMPER`.
    """
    each = _log_mean_exp(evidence, 3)
    depths = each.shape[-1]
    joint = each.sum(axis=-1) / depths**_TEMPER
    joint = joint + np.log(prior)[None, :, None]
    weights = np.exp(joint - joint.max())
    return np.asarray(weights / weights.sum())


def _log_mean_exp(values: Array, axis: int) -> Array:
    """Return the logarithm of the mean of exponentials."""
    top = values.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(top, axis) + np.log(np.exp(values - top).mean(axis=axis)))


def _depth_correlation(level: Array, slope: Array) -> Array:
    """Return a root of the correlation of the errors of the depths, as their scatter shows it.

    What all depths have in common (the form, the lift) does not show there: see `_COMMON`.
    """
    depths = level.shape[1]
    change = np.diff(level, axis=0) / np.sqrt(slope[1:])
    change = change - np.median(change, axis=0)
    spread = np.sqrt((change**2).mean(axis=0)) + 1e-12
    seen = (change / spread).T @ (change / spread) / max(len(change), 1)
    shrunk = len(change) / (len(change) + 10.0)
    mixed = shrunk * np.clip(seen, -0.2, 1.0) + (1.0 - shrunk) * 0.5
    full = (1.0 - _COMMON) * mixed + _COMMON
    np.fill_diagonal(full, 1.0)
    values, vectors = np.linalg.eigh(full)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).reshape(depths, depths))


def _drawn(
    fits: list[_Solved],
    shapes: Shapes,
    weights: Array,
    *,
    slope: Array,
    root: Array,
    num_draws: int,
    rng: np.random.Generator,
) -> CurveDraws:
    """Return draws of scale, shape and noise, then of the coefficients."""
    spread = (np.arange(num_draws) + rng.random()) / num_draws  # even over the weights
    cumulative = np.cumsum(weights.ravel())
    flat = np.minimum(np.searchsorted(cumulative, spread * cumulative[-1]), weights.size - 1)
    scale, shape, noise = np.unravel_index(rng.permutation(flat), weights.shape)
    evidence = np.stack([fit.evidence for fit in fits])[
        scale, shape, noise
    ]  # (draws, factors, depths)
    chances = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    chances = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    factor = (rng.random((num_draws, 1, 1)) > chances[:, :-1]).sum(axis=1)  # (draws, depths)
    depth = np.arange(factor.shape[1])
    place = (shape[:, None], noise[:, None], factor, depth)
    logit = np.array([fit.logit for fit in fits])[scale]
    mean = np.where(logit[:, None, None], fits[1].mean[place], fits[0].mean[place])
    precision = np.where(
        logit[:, None, None, None], fits[1].precision[place], fits[0].precision[place]
    )
    chance = np.einsum("kj,djc->dkc", root, rng.normal(size=(num_draws, root.shape[1], 3)))
    lower = np.linalg.cholesky(np.linalg.inv(precision))
    return CurveDraws(
        logit=logit,
        shapes=shapes.take(shape),
        coefficients=mean + np.einsum("dkij,dkj->dki", lower, chance),
        walk=np.asarray(WALK_SCALES)[noise // len(MEMORIES)],
        slope=slope,
    )
