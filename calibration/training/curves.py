"""Per-depth accuracy over the steps of a run: pooled, corrected, each point with its error."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.training.records import Kind, Split
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

# Points of a curve: more records than this are pooled in windows of steps.
MOST_POINTS: Final = 48

# A squared scatter above this many times the median is one bad batch, and counts no more.
_SHIELD: Final = 9.0

# Standard errors from the median of its neighbours beyond which a point is given that distance as its
# error: one bad batch.
_BAD_BATCH: Final = 5.0

# Scatter of one point at an accuracy of one half: a judgement, worth two points.
_TYPICAL_SCATTER: Final = 0.008

# Share of the points in which a depth has to be known; fewer, and it is cut.
_KNOWN: Final = 0.5

# Accuracies are kept this far from 0 and 1 when their scatter is estimated.
_SMALLEST: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCurves:
    """Accuracy of each depth over the steps."""

    steps: Array  # rising, [optimiser steps]; the mean step of a window
    # conditional accuracies, or marginal or overlap ones that are chained as if they were
    conditional: Array
    error: Array  # standard error of each, from scatter and printed rounding
    num_records: Array  # records pooled in each point
    kind: Kind  # what was printed
    split: Split  # which data
    rate_steps: Array  # learning rate as printed; empty where it is not known
    rates: Array
    last_step: float  # the last step that was printed
    total_steps: int | None = None  # the trainer's own total, where it is known
    num_dropped: int = 0  # records left out: not finite, or nothing got as deep
    # depths that were printed: more than `depths` where the last ones print as zero
    num_printed_depths: int = 0
    # accept length - 1 over the sum of products: of a printed accept length, which has no depths, it is
    # what the one value of each point was divided by
    scale: float = 1.0

    @property
    def num_points(self) -> int:
        """Points of the curve."""
        return int(self.steps.size)

    @property
    def depths(self) -> int:
        """Depths of the curve."""
        return int(self.conditional.shape[1])

    @property
    def accept_length(self) -> Array:
        """Accept length at each point, bonus token included, shape (points,)."""
        return np.asarray(1.0 + self.scale * np.cumprod(self.conditional, axis=1).sum(axis=1))

    def after(self, step: float) -> "AccuracyCurves":
        """Return the curves without the points before a step."""
        kept = self.steps >= step
        return replace(
            self,
            steps=self.steps[kept],
            conditional=self.conditional[kept],
            error=self.error[kept],
            num_records=self.num_records[kept],
        )


def accuracy_curves(
    steps: ArrayLike,
    accuracies: ArrayLike,
    *,
    kind: Kind | str,
    split: Split | str = Split.VAL,
    joint: ArrayLike | None = None,
    rounding: float = 0.0005,
    learning_rate: ArrayLike | None = None,
    rate_steps: ArrayLike | None = None,
    total_steps: int | None = None,
    response_length: float | None = None,
    most_points: int = MOST_POINTS,
) -> AccuracyCurves:
    r"""Return the curves of a series of records.

    Joint values are pooled as means, conditional ones as numerator over denominator:

    .. math:: B_k = \frac{\sum A_{k-1} B_k}{\sum A_{k-1}}
    """
    kind, split = Kind(kind), Split(split)
    step, values, weights = _checked(steps, accuracies, joint)
    printed_at, rates = _rates(step if rate_steps is None else rate_steps, learning_rate)
    order = np.argsort(step, kind="stable")
    step, values, weights = step[order], values[order], weights[order]
    finite = np.isfinite(step) & np.all(np.isfinite(values), axis=1)
    if joint is not None:
        finite &= np.all(np.isfinite(weights), axis=1)
    if not finite.any():
        raise ParameterError("accuracies", "no finite record", "at least one finite record")
    if response_length is not None:
        values = edge_corrected(values, kind, response_length)
    windows = np.array_split(np.flatnonzero(finite), min(int(finite.sum()), most_points))
    points = np.array([step[window].mean() for window in windows])
    pooled = np.stack(
        [pooled_accuracy(values[w], kind, None if joint is None else weights[w]) for w in windows]
    )
    conditional = _chained(pooled) if kind is Kind.JOINT else pooled
    conditional = conditional[:, : _known_depths(conditional)]
    usable = np.all(np.isfinite(conditional), axis=1)
    counts = np.array([window.size for window in windows], dtype=np.float64)
    points, conditional, counts = points[usable], conditional[usable], counts[usable]
    return AccuracyCurves(
        steps=points,
        conditional=conditional,
        error=_point_errors(points, conditional, counts, kind, rounding),
        num_records=counts,
        kind=kind,
        split=split,
        rate_steps=printed_at,
        rates=rates,
        last_step=float(step[finite][-1]),
        total_steps=total_steps,
        num_dropped=int(step.size - counts.sum()),
        num_printed_depths=values.shape[1],
    )


def pooled_accuracy(accuracies: Array, kind: Kind, joint: Array | None = None) -> Array:
    """Return the accuracy of some records together, by depth."""
    if kind is not Kind.CONDITIONAL:
        return np.asarray(accuracies.mean(axis=0))
    reached = np.cumprod(accuracies, axis=1) if joint is None else joint
    weights = np.concatenate([np.ones((len(accuracies), 1)), reached[:, :-1]], axis=1)
    total = weights.sum(axis=0)
    return np.where(
        total > 0, (weights * accuracies).sum(axis=0) / np.maximum(total, 1e-300), np.nan
    )


def edge_corrected(accuracies: Array, kind: Kind, response_length: float) -> Array:
    r"""Return accuracies without the bias at the edges of packed responses.

    .. math:: A_k \frac{R}{R-k}, \qquad B_k \frac{R-k+1}{R-k} \; (k \ge 1)

    Follows from the definition of the metrics: tokens within the first k of a response are in the
    denominator of depth k and cannot be hits. Without packing conditional accuracies are practically free of it: give no
    response length then.
    """
    depth = np.arange(np.shape(accuracies)[-1], dtype=np.float64)
    if not response_length > depth.size:
        raise ParameterError(
            "response_length", f"{response_length:g}", f"above {depth.size}, the number of depths"
        )
    left = response_length - depth
    if kind is Kind.JOINT:
        factor = response_length / left
    elif kind is Kind.CONDITIONAL:
        factor = np.where(depth > 0, (left + 1.0) / left, 1.0)
    else:
        return np.asarray(accuracies)
    return np.minimum(accuracies * factor, 1.0)


def _checked(
    steps: ArrayLike, accuracies: ArrayLike, joint: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return the columns as arrays of one length."""
    step = np.asarray(steps, dtype=np.float64)
    values = np.asarray(accuracies, dtype=np.float64)
    if step.ndim != 1 or values.ndim != 2 or len(values) != step.size or not values.shape[1]:
        raise ParameterError(
            "accuracies", f"shape {values.shape}", f"of shape ({step.size}, depths), one row a step"
        )
    outside = values[np.isfinite(values) & ((values < 0.0) | (values > 1.0))]
    if outside.size:
        raise ParameterError("accuracies", f"{outside[0]:g}", "in [0, 1]")
    weights = values if joint is None else np.asarray(joint, dtype=np.float64)
    if weights.shape != values.shape:
        raise ParameterError("joint", f"shape {weights.shape}", f"of shape {values.shape}")
    return step, values, weights


def _rates(steps: ArrayLike, learning_rate: ArrayLike | None) -> tuple[Array, Array]:
    """Return steps and learning rates in the order of steps, without those that are not known."""
    if learning_rate is None:
        return np.empty(0), np.empty(0)
    step = np.asarray(steps, dtype=np.float64)
    rate = np.asarray(learning_rate, dtype=np.float64)
    if rate.shape != step.shape:
        raise ParameterError("learning_rate", f"shape {rate.shape}", f"of shape {step.shape}")
    known = np.isfinite(rate) & np.isfinite(step)
    order = np.argsort(step[known], kind="stable")
    return step[known][order], rate[known][order]


def _chained(joint: Array) -> Array:
    """Return conditional accuracies of joint ones; nan where nothing got as deep."""
    before = np.concatenate([np.ones((len(joint), 1)), joint[:, :-1]], axis=1)
    return np.minimum(np.where(before > 0, joint / np.maximum(before, 1e-300), np.nan), 1.0)


def _known_depths(conditional: Array) -> int:
    """Return how many depths are known in half of the points: where prints are 0, nothing is.

    Depths that no start reaches add nothing to the accept length that the print would show.
    """
    known = np.isfinite(conditional).mean(axis=0) >= _KNOWN
    depths = int(np.argmin(known)) if not known.all() else known.size
    return depths if np.isfinite(conditional[:, :depths]).all(axis=1).any() else 1


def _point_errors(
    steps: Array, conditional: Array, counts: Array, kind: Kind, rounding: float
) -> Array:
    """Return the standard error of every point: scatter about its neighbours, and rounding."""
    level = np.clip(conditional, _SMALLEST, 1.0 - _SMALLEST)
    spread = level * (1.0 - level) / counts[:, None] * counts.mean()
    variance = _scatter(steps, conditional, spread) * spread
    rounded = _rounding_variance(conditional, kind, rounding) / counts[:, None]
    jump = _jumps(conditional) ** 2
    variance = variance + np.where(jump > _BAD_BATCH**2 * (variance + rounded), jump, 0.0)
    return np.asarray(np.sqrt(variance + rounded))


def _jumps(values: Array) -> Array:
    """Return by how much inner points leave the median of five: 0 on any rising curve."""
    jumps = np.zeros_like(values)
    if len(values) >= 5:
        around = np.stack([values[i : len(values) - 4 + i] for i in range(5)])
        jumps[2:-2] = values[2:-2] - np.median(around, axis=0)
    return jumps


def _scatter(steps: Array, values: Array, spread: Array) -> Array:
    """Return the variance of a point by depth, in units of its binomial one."""
    prior = _TYPICAL_SCATTER**2 / 0.25
    if steps.size < 3:
        return np.full(values.shape[1], prior)
    right = ((steps[1:-1] - steps[:-2]) / (steps[2:] - steps[:-2]))[:, None]
    residual = values[1:-1] - right * values[2:] - (1.0 - right) * values[:-2]
    expected = spread[1:-1] + right**2 * spread[2:] + (1.0 - right) ** 2 * spread[:-2]
    square = residual**2 / expected
    shielded = np.minimum(square, _SHIELD * np.maximum(np.median(square, axis=0), 1e-12))
    return np.asarray((shielded.sum(axis=0) + 2.0 * prior) / (len(square) + 2.0))


def _rounding_variance(conditional: Array, kind: Kind, rounding: float) -> Array:
    """Return the variance that the printed digits of one record leave."""
    each = rounding**2 / 3.0
    if kind is not Kind.JOINT:
        return np.full(conditional.shape, each)
    reached = np.maximum(np.cumprod(conditional, axis=1), rounding)
    before = np.concatenate([np.full((len(reached), 1), np.inf), reached[:, :-1]], axis=1)
    return np.asarray(each * conditional**2 * (1.0 / reached**2 + 1.0 / before**2))
