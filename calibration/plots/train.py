"""The picture of a run in training: accuracy by depth, and the accept length with what it is worth."""

import math

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from calibration.plots.style import (
    DASHED,
    DOTTED,
    INK,
    MEDIAN_90,
    QUIET,
    draw_band,
    new_figure,
    ordered_colours,
    styled,
)
from calibration.training.assessment import Assessment
from calibration.training.decision import TrainingDecision
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

_CURVES_MM, _LENGTH_MM = 58.0, 50.0
_NUM_STEPS = 33


@styled
def training_figure(found: Assessment) -> Figure:
    r"""Accuracy by depth over the steps of a run, below it the accept length with a speed-up axis.

    .. math:: S(\tau) = \frac{1}{f + (1-f) R / (1 + F(\tau - 1))}

    The second axis is the speed-up to expect in serving, at the medians of round cost and transfer.
    Points are records pooled in windows, with their standard error; bands are 90 % intervals of the
    projection. A log without a curve shows its present values at one step. Raises `ParameterError` where
    the log says nothing about serving.
    """
    decision, log = found.decision, found.log
    if decision is None:
        raise ParameterError("the log", "nothing about serving", "decided", found.undecided)
    files = ", ".join(path.name for path in log.paths[:2])
    step = "" if log.last_step is None else f", step {log.last_step}"
    total = "" if log.total_steps is None else f" of {log.total_steps}"
    title = [f"{files}: {log.framework}{step}{total}", f"served at depth {decision.num_steps}"]
    colours = ordered_colours(max(len(found.courses), 1))
    heights = [_CURVES_MM, _LENGTH_MM]
    figure = new_figure(title, sum(heights), _legend(found, decision, colours), columns=2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    _draw_curves(above, found, decision, colours)
    _draw_length(below, found, decision)
    if found.projection is not None and decision.end is not None and decision.end.step is not None:
        for axes in (above, below):
            axes.axvline(found.projection.last_step, color=QUIET, linewidth=0.6)
    return figure


def _draw_curves(
    axes: Axes, found: Assessment, decision: TrainingDecision, colours: list[str]
) -> None:
    """Draw the accuracy of every depth and its projection."""
    curves, projection, end = found.curves, found.projection, decision.end
    steps, ahead = np.empty(0), np.empty((0, 0, 0))
    if projection is not None and end is not None and end.step is not None:
        steps = np.linspace(projection.last_step, end.step, _NUM_STEPS)
        ahead = np.stack([projection.at(step).conditional for step in steps], axis=1)
    for index, (course, colour) in enumerate(zip(found.courses, colours, strict=False)):
        if curves is not None and index < curves.depths:
            axes.errorbar(
                curves.steps,
                curves.conditional[:, index],
                yerr=curves.error[:, index],
                fmt="o",
                markersize=2.2,
                color=colour,
                elinewidth=0.6,
            )
        elif course.chained is not None:
            axes.plot([found.log.last_step or 0], [course.chained], "o", color=colour)
        if index < ahead.shape[2]:
            _draw_projection(axes, steps, ahead[:, :, index], colour, 0.25)
    kind = "conditional" if curves is None else str(curves.kind)
    axes.set(ylabel=f"{'conditional' if kind == 'joint' else kind} accuracy")


def _draw_length(axes: Axes, found: Assessment, decision: TrainingDecision) -> None:
    """Draw the accept length of the log, its projection, and the speed-up that it is worth."""
    curves, path, depth = found.curves, found.path, decision.num_steps
    if curves is not None:
        chains = curves.scale * np.cumprod(curves.conditional[:, :depth], axis=1).sum(axis=1)
        lengths = 1.0 + _beyond(found, depth) * chains
        axes.plot(curves.steps, lengths, "o", markersize=2.2, color=INK)
    else:
        now = decision.now.as_logged.accept_length.median
        axes.plot([found.log.last_step or 0], [now], "o", color=INK)
    if path is not None and path.projected:
        _draw_projection(axes, path.steps, path.draws, INK, 0.2)
    no_gain = float(_length(decision, 1.0))
    target = decision.logged_accept_length_for_target.median  # infinite where none is enough
    for level, line in ((no_gain, DASHED), (target, DOTTED)):
        if math.isfinite(level):
            axes.axhline(level, color=QUIET, linewidth=0.9, linestyle=line)
    axes.set(xlabel="training step", ylabel="accept length in the log")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 1.0), max(high, 1.05))
    speedups = axes.secondary_yaxis(
        "right",
        functions=(lambda value: _speedup(decision, value), lambda value: _length(decision, value)),
    )
    speedups.set_ylabel("speed-up expected in serving")


def _draw_projection(axes: Axes, steps: Array, draws: Array, colour: str, alpha: float) -> None:
    """Median and interval of draws at steps."""
    low, median, high = np.quantile(draws, MEDIAN_90, axis=0)
    draw_band(axes, steps, low, high, colour, alpha)
    axes.plot(steps, median, color=colour)


def _beyond(found: Assessment, depth: int) -> float:
    """By what the depths beyond the trained one raise accept length - 1 now; 1 without any."""
    known, curve = found.acceptance.acceptance.accept_length, found.acceptance.acceptance.curve
    if known is None or curve is None or depth <= curve.num_steps or curve.accept_length() <= 1.0:
        return 1.0
    return (known.estimate.median - 1.0) / (curve.accept_length() - 1.0)


def _speedup(decision: TrainingDecision, logged: ArrayLike) -> Array:
    """Speed-up at an accept length of the log."""
    transfer = 1.0 if decision.transfer is None else decision.transfer.median
    served = 1.0 + transfer * (np.asarray(logged, dtype=np.float64) - 1.0)
    share = decision.prediction.non_decode_share
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1.0 / (share + (1.0 - share) * decision.round_cost.median / served))


def _length(decision: TrainingDecision, speedup: ArrayLike) -> Array:
    """Accept length of the log at a speed-up: the inverse of `_speedup`."""
    transfer = 1.0 if decision.transfer is None else decision.transfer.median
    share = decision.prediction.non_decode_share
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1.0 / np.asarray(speedup, dtype=np.float64) - share
        served = (1.0 - share) * decision.round_cost.median / inverse
    return np.asarray(1.0 + (served - 1.0) / transfer)


def _legend(found: Assessment, decision: TrainingDecision, colours: list[str]) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], color=colours[index], marker="o", markersize=3, label=f"depth {one.depth}")
        for index, one in enumerate(found.courses)
    ]
    if decision.end is not None:
        handles.append(Patch(color=QUIET, alpha=0.4, label="projection, 90 %"))
    handles.append(Line2D([], [], color=QUIET, linestyle=DASHED, label="no gain (1.0)"))
    if math.isfinite(decision.logged_accept_length_for_target.median):
        target = f"target ({decision.target_speedup:g})"
        handles.append(Line2D([], [], color=QUIET, linestyle=DOTTED, label=target))
    return handles
