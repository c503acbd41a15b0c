"""What a run will reach: accuracies and accept length now, at a step and at its end, as draws."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.training.curves import AccuracyCurves, accuracy_curves
from calibration.training.family_facts import Bonus
from calibration.training.learning_curve import CurveDraws, draw_curves
from calibration.training.log_acceptance import last_printed_length
from calibration.training.offline_acceptance import chained_accept_length
from calibration.training.records import Kind, Split
from calibration.training.schedule import Decay, Schedule, read_schedule
from calibration.training.training_log import SplitSeries, TrainingLog
from specmodel.errors import Note, ParameterError, SpecModelError

Array = NDArray[np.float64]

# Usable points below which there is no projection; training_logs.md section 8.
FEWEST_POINTS: Final = 5

NUM_DRAWS: Final = 2000

# Logarithm of the longest extrapolation, in last steps; beyond it the walk stands still.
WALK_SPAN: Final = float(np.log(50.0))

_WALK_CELLS: Final = 48

# Share of the walk that all depths have in common; a judgement.
_WALK_SHARED: Final = 0.4

# Last steps ahead of which a projection is called far.
_FAR: Final = 4.0

# Accept length gained by the end below which a curve is flat, with the data as good as sure of it.
_FLAT_GAIN: Final = 0.01

# Chance that a constant learning rate decays before the end; a judgement.
_LATE_DECAY: Final = 0.5

# Last part of the run in which it would.
_LATE_DECAY_SHARE: Final = 0.2

_SUM_CELLS: Final = 512

# Most that a printed accept length - 1 may become, over the most that was seen; a judgement.
_HEADROOM: Final = 2.0

# Steps between the first and the last point over the steps ahead, below which there is no projection;
# a judgement.
_LEAST_SEEN: Final = 0.1


class ProjectionRefused(SpecModelError, ValueError):  # noqa: N818 - a refusal, as the codes are called
    """The points do not carry a projection."""

    def __init__(self, code: str, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(f"{code}: {reason}")


@dataclass(frozen=True, slots=True)
class StepProjection:
    """Accuracies and accept length at one step, as draws."""

    step: float  # [optimiser steps]
    # conditional accuracies (marginal ones, of a curve of marginals), without the noise of one
    # measurement
    conditional: Array
    scale: float = 1.0  # as that of the curves

    def accept_lengths(self, num_steps: int | None = None) -> Array:
        """Return accept lengths, bonus token included, cut at a depth; shape (draws,)."""
        chained = chained_accept_length(self.conditional, Kind.CONDITIONAL, num_steps)
        return 1.0 + self.scale * (chained - 1.0)

    def accept_length(self, num_steps: int | None = None) -> float:
        """Return the median accept length."""
        return float(np.median(self.accept_lengths(num_steps)))

    def accuracies(self) -> tuple[float, ...]:
        """Return the median accuracy of each depth."""
        return tuple(np.median(self.conditional, axis=0).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A run carried on from its last step."""

    last_step: float  # where the curve ends
    now: StepProjection  # at the last step
    target: StepProjection  # at the step that was asked for; the end of the run unless another was
    end: StepProjection | None  # at the end of the run; None where it is not known
    end_step: float | None  # the trainer's total, or where the learning rate ends
    schedule: Schedule  # what the learning rate says
    # warnings: ``before-decay``, ``flat``, ``total-steps-unknown``, ``end-inferred``, ``learning-
    # rate-unknown``, ``far-ahead``, ``past-the-end``
    findings: tuple[Note, ...]
    form_weights: dict[str, float]  # weight of each form
    num_points: int  # points that were fitted
    point_error: Array  # standard error of the last point: what one more measurement adds to a draw
    paths: "Paths"  # the courses that `at` reads

    def noise(self, num_steps: int) -> float:
        """Return the standard error of the accept length of one measurement now, cut at a depth."""
        known = np.array(self.now.accuracies())
        moved = np.vstack([known, known + np.diag(self.point_error)])
        lengths = chained_accept_length(moved, Kind.CONDITIONAL, num_steps)
        return float(self.now.scale * np.linalg.norm(lengths[1:] - lengths[0]))

    def at(self, step: float) -> StepProjection:
        """Return the draws at a step from the last one on; one draw is one course of the run."""
        return replace(self.now, step=float(step), conditional=self.paths.at([step])[:, 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Courses of the accuracies after the last step."""

    draws: CurveDraws  # curves
    last_step: float  # of the points
    first_step: float
    summed: Array  # steps and summed learning rate over its value at the last step
    schedule: Schedule  # planned learning rate
    # whether a learning rate that is constant or unknown decays before the end in this draw
    late_decay: NDArray[np.bool_]
    horizon: float  # the end for these decays
    walk: Array  # random walk over the logarithm of the step, one logit in a factor e

    def at(self, steps: ArrayLike) -> Array:
        """Return the accuracies at steps, shape (draws, steps, depths)."""
        step = np.maximum(np.asarray(steps, dtype=np.float64), self.last_step)
        shapes, draws = self.draws.shapes, self.draws
        now, rate_now = self.last_step, np.interp(self.last_step, *self.summed.T)
        times = np.stack([step / now, np.interp(step, *self.summed.T) / rate_now])
        first = np.array(
            [self.first_step / now, np.interp(self.first_step, *self.summed.T) / rate_now]
        )
        by_rate = shapes.by_rate.astype(int)
        rise = shapes.rise(first[by_rate], times[by_rate])
        unit = np.where(draws.logit[:, None], 1.0, draws.slope)[:, None]
        level, gain, lift = np.moveaxis(draws.coefficients, -1, 0)[:, :, None]
        fallen = self._fallen(step)[..., None]
        grid = np.linspace(0.0, WALK_SPAN, self.walk.shape[1])
        cell = np.minimum(np.log(step / now) / grid[1], len(grid) - 1.001)
        low, part = cell.astype(int), (cell % 1.0)[:, None]
        walk = self.walk[:, low] * (1.0 - part) + self.walk[:, low + 1] * part
        walk = walk * draws.walk[:, None, None] * unit
        values = level + gain * rise[..., None] + lift * fallen + walk
        logistic = 1.0 / (1.0 + np.exp(-np.clip(values, -30.0, 30.0)))
        return np.asarray(np.where(draws.logit[:, None, None], logistic, np.clip(values, 0.0, 1.0)))

    def _fallen(self, step: Array) -> Array:
        """Return by how much the learning rate has fallen since the last step, (draws, steps)."""
        plan = self.schedule.relative_rate(self.last_step) - self.schedule.relative_rate(step)
        start = max(self.last_step, self.horizon * (1.0 - _LATE_DECAY_SHARE))
        late = np.clip((step - start) / max(self.horizon - start, 1e-9), 0.0, 1.0)
        return np.where(self.late_decay[:, None], late, plan)


def project(
    curves: AccuracyCurves,
    at_step: float | None = None,
    *,
    num_draws: int = NUM_DRAWS,
    seed: int = 0,
) -> Projection:
    """Return what a run will reach."""
    if at_step is not None and not curves.last_step <= at_step < float("inf"):
        raise ParameterError(
            "at_step", f"{at_step:g}", f"at least {curves.last_step:g}, the last step, and finite"
        )
    schedule = read_schedule(curves.rate_steps, curves.rates, total_steps=curves.total_steps)
    used = _usable(curves, schedule)
    end = schedule.end
    last = curves.last_step
    step = at_step if at_step is not None else (end if end is not None else last)
    rng = np.random.default_rng(seed)
    horizon = max(step, end or step, last)
    _check_span(used, horizon)
    summed = _summed_rate(schedule, horizon)
    moved = used.steps[-1]
    rate_at = np.interp(used.steps, *summed.T)
    with_rate = schedule.known and schedule.decay is not Decay.UNKNOWN
    draws = draw_curves(
        steps=used.steps / moved,
        summed_rate=rate_at / rate_at[-1] if with_rate else None,
        fallen=schedule.relative_rate(moved) - schedule.relative_rate(used.steps),
        accuracies=used.conditional,
        errors=used.error,
        num_draws=num_draws,
        rng=rng,
    )
    open_decay = schedule.decay in (Decay.CONSTANT, Decay.UNKNOWN)
    paths = Paths(
        draws=draws, last_step=float(moved), first_step=float(used.steps[0]), summed=summed,
        schedule=schedule, horizon=horizon,
        late_decay=open_decay & (rng.random(num_draws) < _LATE_DECAY),
        walk=_walks(rng, num_draws, used.depths),
    )  # fmt: skip

    def there(where: float) -> StepProjection:
        return StepProjection(float(where), paths.at([where])[:, 0], curves.scale)

    now, target = there(last), there(step)
    final = None if end is None else there(max(end, last))
    return Projection(
        last_step=last, now=now, target=target, end=final, end_step=end, schedule=schedule,
        findings=tuple(_findings(curves, schedule, now, final or target)),
        form_weights=draws.form_weights(), num_points=used.num_points,
        point_error=used.error[-1], paths=paths,
    )  # fmt: skip


def _usable(curves: AccuracyCurves, schedule: Schedule) -> AccuracyCurves:
    """Return the points after warm-up; raise where they do not carry a projection."""
    if schedule.in_warm_up:
        raise ProjectionRefused(
            "before-warm-up-ends",
            f"the learning rate was still rising at step {curves.last_step:g}; project after warm-up",
        )
    used = curves.after(schedule.warm_up_end)
    if np.unique(used.steps).size < FEWEST_POINTS:
        raise ProjectionRefused(
            "too-few-points",
            f"{_points(np.unique(used.steps).size)} after warm-up, at least {FEWEST_POINTS} are needed; "
            "wait for more validation, or use the train records",
        )
    return used


def _points(count: int) -> str:
    """Return a number of points in words."""
    return f"{count} usable point{'s' * (count != 1)}"


def _check_span(used: AccuracyCurves, horizon: float) -> None:
    """Raise where the points stand in so small a part of the run that they say nothing of the rest."""
    seen, ahead = float(used.steps[-1] - used.steps[0]), horizon - float(used.steps[-1])
    if seen < _LEAST_SEEN * ahead:
        raise ProjectionRefused(
            "too-few-points",
            f"the points stand within {seen:g} steps, and {ahead:g} lie ahead; wait for more of the run, "
            "or give a nearer step with --until",
        )


def _summed_rate(schedule: Schedule, horizon: float) -> Array:
    """Return steps and the summed learning rate at them, over the peak."""
    steps = np.linspace(0.0, horizon, _SUM_CELLS + 1)
    rate = np.maximum(schedule.relative_rate(0.5 * (steps[1:] + steps[:-1])), 1e-6)
    return np.stack([steps, np.concatenate([[0.0], np.cumsum(rate) * steps[1]])], axis=1)


def _walks(rng: np.random.Generator, num_draws: int, depths: int) -> Array:
    """Return random walks of unit variance in a factor e of the step, shape (draws, cells, depths)."""
    size = (num_draws, _WALK_CELLS, depths)
    moves = np.sqrt(_WALK_SHARED) * rng.normal(size=(*size[:2], 1))
    moves = moves + np.sqrt(1.0 - _WALK_SHARED) * rng.normal(size=size)
    walk = np.cumsum(moves * np.sqrt(WALK_SPAN / _WALK_CELLS), axis=1)
    return np.concatenate([np.zeros((num_draws, 1, depths)), walk], axis=1)


def _findings(
    curves: AccuracyCurves, schedule: Schedule, now: StepProjection, ahead: StepProjection
) -> Iterator[Note]:
    """Warnings about a projection."""
    if schedule.end is None:
        yield Note(
            code="total-steps-unknown",
            message="the number of steps is not in the log: give it for a projection to the end",
        )
    elif not schedule.end_known:
        yield Note(
            code="end-inferred",
            message=f"the end is taken from the learning rate: step {schedule.end:.0f}",
        )
    if not schedule.known:
        yield Note(
            code="learning-rate-unknown",
            message="no learning rate in the log: whether its decay is still to come is open",
        )
    elif schedule.decay_begun is False and ahead.step > now.step:
        yield Note(
            code="before-decay",
            message="the learning rate has not begun to fall; accuracy usually rises when it does, "
            "and the interval is widened upward for it",
        )
    if ahead.step > _FAR * now.step:
        yield Note(
            code="far-ahead",
            message=f"step {ahead.step:.0f} is {ahead.step / now.step:.1f} times the last one",
        )
    if schedule.end is not None and curves.last_step > schedule.end * 1.001:
        yield Note(
            code="past-the-end",
            message=f"the last step, {curves.last_step:.0f}, is beyond the end, {schedule.end:.0f}",
        )
    gain = np.abs(ahead.accept_length() - now.accept_length())
    if gain < _FLAT_GAIN:
        yield Note(
            code="flat", message=f"accept length changes by {gain:.3f} up to step {ahead.step:.0f}"
        )


# ---
# The accuracy curves of a whole log: which split and kind of accuracy carries a projection.
_CHAINED = (Kind.CONDITIONAL, Kind.JOINT, Kind.MARGINAL, Kind.OVERLAP)


def curves_of(log: TrainingLog, *, response_length: float | None = None) -> AccuracyCurves | None:
    """Return the accuracy curves of a log; None where it has no steps or no accuracy by depth."""
    validation = None if "eval-equals-train" in log.codes else log.series.get(Split.VAL)
    choices = (validation, log.training, validation or log.training)
    for series, fewest in zip(choices, (FEWEST_POINTS, FEWEST_POINTS, 1), strict=True):
        if series is None:
            continue
        curves = _curves(log, series, response_length)
        if curves is not None and curves.num_points >= fewest:
            return curves
    return None if log.depths else _printed_curves(log)


def _printed_curves(log: TrainingLog) -> AccuracyCurves | None:
    """Return the curve of the accept length that a trainer prints where it prints no accuracy by depth."""
    printed = last_printed_length(log.series)
    if printed is None or printed.accept_length is None:
        return None
    found = []
    for series in log.series.values():
        if printed.key in series.reported:
            values = series.reported[printed.key].values
            rows = np.flatnonzero(series.finite & np.isfinite(values) & np.isfinite(series.step))
            added = 0.0 if series.reported[printed.key].bonus is Bonus.NO else 1.0
            found.append((series, series.step[rows], np.maximum(values[rows] - added, 0.0)))
    series, steps, lengths = max(found, key=lambda one: min(one[1].size, FEWEST_POINTS))
    if not steps.size or not lengths.max() > 0.0:
        return None
    scale = _HEADROOM * float(lengths.max())
    rates = _learning_rates(log)
    curves = accuracy_curves(
        steps,
        lengths[:, None] / scale,
        kind=Kind.MARGINAL,
        split=series.split,
        learning_rate=None if rates is None else rates[1],
        rate_steps=None if rates is None else rates[0],
        total_steps=log.total_steps,
    )
    return replace(curves, scale=scale)


def _curves(
    log: TrainingLog, series: SplitSeries, response_length: float | None
) -> AccuracyCurves | None:
    """Return the curves of one split."""
    kind = _carrying_kind(series)
    if kind is None or not series.depths:
        return None
    rows = series.usable_rows()
    rows = rows[np.isfinite(series.step[rows])]
    rows = rows[np.isfinite(series.accuracies[kind][rows]).all(axis=1)]
    if not rows.size:
        return None
    rates = _learning_rates(log)
    return accuracy_curves(
        series.step[rows],
        series.accuracies[kind][rows],
        kind=kind,
        split=series.split,
        joint=_weights(series, rows) if kind is Kind.CONDITIONAL else None,
        rounding=series.rounding,
        learning_rate=None if rates is None else rates[1],
        rate_steps=None if rates is None else rates[0],
        total_steps=log.total_steps,
        response_length=response_length,
    )


def _carrying_kind(series: SplitSeries) -> Kind | None:
    """Return the kind of accuracy to follow: joint only where it is known to a greater depth."""
    known = [kind for kind in _CHAINED if kind in series.accuracies]
    if known[:2] == [Kind.CONDITIONAL, Kind.JOINT]:
        return max(known[:2], key=lambda kind: series.accuracies[kind].shape[1])
    return next(iter(known), None)


def _weights(series: SplitSeries, rows: NDArray[np.intp]) -> Array | None:
    """Return the joint accuracies of as many depths as the conditional ones have, None if it has fewer."""
    joint, depths = series.accuracies.get(Kind.JOINT), series.accuracies[Kind.CONDITIONAL].shape[1]
    return None if joint is None or joint.shape[1] < depths else joint[rows, :depths]


def _learning_rates(log: TrainingLog) -> tuple[Array, Array] | None:
    """Return the steps and learning rates of all train records; None where none is printed."""
    training = log.training
    if training is None:
        return None
    known = np.isfinite(training.learning_rate) & np.isfinite(training.step)
    return None if not known.any() else (training.step[known], training.learning_rate[known])
