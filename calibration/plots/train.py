"""The picture of a run in training: accuracy by depth, and the accept length with what it is worth."""

import math
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from calibration.plots.style import (
    INK,
    QUIET,
    figure_format,
    figure_style,
    legend_below,
    legend_mm,
    new_figure,
    ordered_colours,
    save_figure,
)
from calibration.training.assessment import Assessment
from calibration.training.decision import TrainingDecision
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

_CURVES_MM, _LENGTH_MM = 58.0, 50.0
_LEVELS = (0.05, 0.5, 0.95)
_NUM_STEPS = 33
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))


def training_figure(found: Assessment) -> Figure:
    r"""Figure of a run: accuracy by depth, below it the accept length with a speed-up axis."""
    decision = found.decision
    if decision is None:
        raise ParameterError("the log", "nothing about serving", "decided", found.undecided)
    colours = ordered_colours(max(len(found.courses), 1))
    handles = _handles(found, decision, colours)
    with figure_style():
        body_mm = _CURVES_MM + _LENGTH_MM + legend_mm(len(handles), columns=2)
        figure = new_figure(_title(found, decision), body_mm)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[_CURVES_MM, _LENGTH_MM])
        _draw_curves(above, found, _ahead(found, decision), colours)
        _draw_length(below, found, decision)
        legend_below(figure, handles, columns=2)
    return figure


def plot_training(found: Assessment, path: Path | str) -> None:
    """Write the picture of a run; see `training_figure`."""
    figure_format(path)
    save_figure(training_figure(found), path)


def _title(found: Assessment, decision: TrainingDecision) -> list[str]:
    """What run it is."""
    log = found.log
    files = ", ".join(path.name for path in log.paths[:2])
    steps = "" if log.last_step is None else f", step {log.last_step}"
    total = "" if log.total_steps is None else f" of {log.total_steps}"
    return [f"{files}: {log.framework}{steps}{total}", f"served at depth {decision.num_steps}"]


def _ahead(found: Assessment, decision: TrainingDecision) -> Array:
    """Return the steps that are projected, empty where there are none."""
    end = decision.end
    if found.projection is None or end is None or end.step is None:
        return np.empty(0)
    return np.linspace(found.projection.last_step, end.step, _NUM_STEPS)


def _draw_curves(axes: Axes, found: Assessment, steps: Array, colours: list[str]) -> None:
    """Draw the accuracy of every depth and its projection."""
    curves, projection = found.curves, found.projection
    for index, course in enumerate(found.courses):
        colour = colours[index]
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
        if projection is not None and steps.size and index < projection.now.conditional.shape[1]:
            draws = np.stack([projection.at(step).conditional[:, index] for step in steps])
            low, median, high = np.quantile(draws, _LEVELS, axis=1)
            axes.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot(steps, median, color=colour)
    kind = "conditional" if curves is None else str(curves.kind)
    chained = "conditional" if kind == "joint" else kind
    axes.set(ylabel=f"{chained} accuracy")
    if steps.size:
        axes.axvline(steps[0], color=QUIET, linewidth=0.6)


def _draw_length(axes: Axes, found: Assessment, decision: TrainingDecision) -> None:
    """Draw the accept length of the log, its projection, and the speed-up that it is worth."""
    curves, steps = found.curves, _ahead(found, decision)
    depth = decision.num_steps
    if curves is not None:
        lengths = 1.0 + _beyond(found, depth) * np.cumprod(
            curves.conditional[:, :depth], axis=1
        ).sum(axis=1)
        axes.plot(curves.steps, lengths, "o", markersize=2.2, color=INK)
    else:
        now = decision.now.as_logged.accept_length.median
        axes.plot([found.log.last_step or 0], [now], "o", color=INK)
    path = found.path
    if path is not None and path.projected:
        low, median, high = np.quantile(path.draws, _LEVELS, axis=0)
        axes.fill_between(path.steps, low, high, color=INK, alpha=0.2, linewidth=0)
        axes.plot(path.steps, median, color=INK)
    for level, line in ((_in_log(decision, 1.0), _DASHED), (_target_in_log(decision), _DOTTED)):
        if math.isfinite(level):
            axes.axhline(level, color=QUIET, linewidth=0.9, linestyle=line)
    axes.set(xlabel="training step", ylabel="accept length in the log")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 1.0), max(high, 1.05))
    if steps.size:
        axes.axvline(steps[0], color=QUIET, linewidth=0.6)
    speedups = axes.secondary_yaxis(
        "right",
        functions=(lambda value: _speedup(decision, value), lambda value: _length(decision, value)),
    )
    speedups.set_ylabel("speed-up expected in serving")


def _beyond(found: Assessment, depth: int) -> float:
    """Return by what the depths beyond the trained one raise accept length - 1 now; 1 without any."""
    known, curve = found.acceptance.acceptance.accept_length, found.acceptance.acceptance.curve
    if known is None or curve is None or depth <= curve.num_steps or curve.accept_length() <= 1.0:
        return 1.0
    return (known.estimate.median - 1.0) / (curve.accept_length() - 1.0)


def _factor(decision: TrainingDecision) -> float:
    """Return the median transfer factor."""
    return 1.0 if decision.transfer is None else decision.transfer.median


def _speedup(decision: TrainingDecision, logged: ArrayLike) -> Array:
    """Return the speed-up at an accept length of the log."""
    served = 1.0 + _factor(decision) * (np.asarray(logged, dtype=np.float64) - 1.0)
    share = decision.prediction.non_decode_share
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1.0 / (share + (1.0 - share) * decision.round_cost.median / served))


def _length(decision: TrainingDecision, speedup: ArrayLike) -> Array:
    """Return the accept length of the log at a speed-up: the inverse of `_speedup`."""
    share = decision.prediction.non_decode_share
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1.0 / np.asarray(speedup, dtype=np.float64) - share
        served = (1.0 - share) * decision.round_cost.median / inverse
    return np.asarray(1.0 + (served - 1.0) / _factor(decision))


def _in_log(decision: TrainingDecision, speedup: float) -> float:
    """Return the accept length that the log shows where serving reaches a speed-up."""
    return float(_length(decision, speedup))


def _target_in_log(decision: TrainingDecision) -> float:
    """Return the same for the target, infinite where none is enough."""
    return decision.logged_accept_length_for_target.median


def _handles(found: Assessment, decision: TrainingDecision, colours: list[str]) -> list[Artist]:
    """What the legend explains."""
    handles: list[Artist] = [
        Line2D([], [], color=colours[index], marker="o", markersize=3, label=f"depth {one.depth}")
        for index, one in enumerate(found.courses)
    ]
    if decision.end is not None:
        handles.append(Patch(color=QUIET, alpha=0.4, label="projection, 90 %"))
    handles.append(Line2D([], [], color=QUIET, linestyle=_DASHED, label="no gain (1.0)"))
    if math.isfinite(_target_in_log(decision)):
        target = f"target ({decision.target_speedup:g})"
        handles.append(Line2D([], [], color=QUIET, linestyle=_DOTTED, label=target))
    return handles
