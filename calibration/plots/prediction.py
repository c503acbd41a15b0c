"""The picture of a prediction: throughput or speed-up against accept length, and against depth."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from calibration.plots.fit import NOTATION_LABEL, notation, varying
from calibration.plots.style import (
    CATEGORIES,
    DASHED,
    DOTTED,
    INK,
    QUIET,
    draw_band,
    legend_mark,
    new_figure,
    ordered_colours,
    styled,
)
from specmodel.acceptance.feasible import ROUNDING_SLACK
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import Prediction, predict
from specmodel.question import AcceptLength, Estimate, Question

Array = NDArray[np.float64]

POINTS_PER_LINE: Final = 60
"""Accept lengths at which a line is evaluated."""

_DRAFTING = frozenset({"num_steps", "topk", "num_draft_tokens"})
_ACCEPT_MM, _DEPTH_MM = 62.0, 48.0
_MOST_BANDS = 2  # lines up to which each shows its interval; with more, only the best does
_MOST_WIDE, _MOST_TICKS, _MOST_NAMED, _MOST_LISTED = 12, 12, 8, 4
_ROOM, _ROOM_FOR_ONE, _ROOM_OF_NO_DEPTH = 1.25, 2.0, 1.3
_LEAST_END = 1.5
_LABEL_SHARE = 0.058


class PredictionLine(NamedTuple):
    """One configuration: its line, its answer and what is marked on it."""

    name: str  # what tells it from the other lines
    num_steps: float | None  # its depth, [tokens]
    accept_length: Array  # from 1 to the longest path and the bonus token, [tokens]
    # prediction and central 90 % interval for a new measurement at each of them
    median: Array
    low: Array
    high: Array
    asked: Estimate  # accept length of the question, [tokens]
    answer: Estimate  # prediction there, the spread of the accept length included
    break_even: Estimate  # accept length at which the baseline is reached, [tokens]
    # accept lengths and results of measured points of the same configuration
    measured: list[tuple[float, float]]

    @property
    def longest(self) -> float:
        """Largest accept length that the configuration can give, [tokens]."""
        return float(self.accept_length[-1])

    @property
    def reaches_baseline(self) -> bool:
        """Whether the break-even accept length is possible."""
        return self.break_even.median <= self.longest


class PredictionLines(NamedTuple):
    """All lines in one unit."""

    lines: list[PredictionLine]  # in the order of the questions
    named: str  # "depth" or `NOTATION_LABEL` where that is what their names are
    baseline: float  # result without speculation: a throughput, [tokens/s], or 1
    is_speedup: bool  # no baseline is known, or the questions have several

    @property
    def label(self) -> str:
        """Label of the axis of results."""
        return "speed-up (ratio)" if self.is_speedup else "throughput (tok/s)"

    def called(self, *chosen: int) -> str:
        """Some lines by their names."""
        names = [self.lines[index].name for index in chosen]
        if len(names) > _MOST_NAMED:
            names = [names[0], "...", names[-1]]
        return ("depth " if self.named == "depth" else "") + ", ".join(names)


@styled
def prediction_figure(
    calibration: Calibration, predictions: Sequence[Prediction], *, best: int | None = None
) -> Figure:
    r"""Answers over accept length with the lines through them, and over depth where only depth differs.

    .. math:: y(\tau) = y_0 \, S(\tau)

    Lines are for exact accept lengths; the bar of an answer includes the spread of its accept length. The
    break-even is of the mean round, and its bar has no measurement noise. `best` is the recommended
    question, by default the one with the highest median.

    >>> from specmodel.question import Configuration
    >>> prior = Calibration.from_prior()
    >>> asked = Question(accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5))
    >>> [axes.get_ylabel() for axes in prediction_figure(prior, predict(prior, [asked])).axes]
    ['speed-up (ratio)']
    """
    shown = prediction_lines(calibration, predictions)
    count = len(shown.lines)
    if best is None:
        best = max(range(count), key=lambda index: shown.lines[index].answer.median)
    colours = CATEGORIES[:count] if count <= _MOST_BANDS else ordered_colours(count)
    heights = [_ACCEPT_MM, _DEPTH_MM] if shown.named == "depth" else [_ACCEPT_MM]
    title = _title(calibration, [one.question for one in predictions], shown.named)
    figure = new_figure(title, sum(heights), _legend(shown, colours, best))
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for below in panels[1:]:
        _draw_depths(below, shown, colours, best)
    _draw_accept_lengths(panels[0], shown, colours, best)
    return figure


def prediction_lines(
    calibration: Calibration, predictions: Sequence[Prediction]
) -> PredictionLines:
    """Lines over accept length through the answers: throughputs where all questions have one known baseline."""
    if not predictions:
        raise ParameterError("questions", "none", "one question or more")
    baselines = {prediction.baseline_tokens_per_s for prediction in predictions}
    baseline = baselines.pop() if len(baselines) == 1 else None
    shown_baseline = baseline or 1.0

    def result(prediction: Prediction) -> Estimate:
        output = prediction.output_tokens_per_s
        return prediction.speedup if baseline is None or output is None else output

    named, names = _names([prediction.question for prediction in predictions])
    lines = []
    for name, prediction in zip(names, predictions, strict=True):
        question = prediction.question
        configuration, asked = question.configuration, question.accept_length.estimate
        seen = [one for one in calibration.observations if one.configuration == configuration]
        reached = max([asked.median, *(one.accept_length[1] for one in seen)])
        grid = np.linspace(1.0, _longest(prediction, reached), POINTS_PER_LINE)
        lengths = [AcceptLength.exact(value) for value in grid.tolist()]
        along = predict(calibration, [replace(question, accept_length=one) for one in lengths])
        results = [result(one) for one in along]
        lines.append(
            PredictionLine(
                name=name,
                num_steps=configuration.num_steps,
                accept_length=grid,
                median=np.array([one.median for one in results]),
                low=np.array([one.low for one in results]),
                high=np.array([one.high for one in results]),
                asked=asked,
                answer=result(prediction),
                break_even=prediction.break_even_accept_length,
                measured=[
                    (
                        one.accept_length_at,
                        shown_baseline * one.output_tokens_per_s / one.baseline_tokens_per_s,
                    )
                    for one in seen
                ],
            )
        )
    return PredictionLines(lines, named, shown_baseline, baseline is None)


def _longest(prediction: Prediction, reached: float) -> float:
    """Accept length at which a line ends; `reached` is the largest that was asked for or measured."""
    configuration = prediction.question.configuration
    tokens = configuration.num_draft_tokens
    if configuration.num_steps is None:  # not known: as far as there is something to show
        break_even = prediction.break_even_accept_length.high
        matters = [reached, prediction.question.accept_length.estimate.high]
        room = _ROOM_OF_NO_DEPTH * max(*matters, break_even if np.isfinite(break_even) else 1.0)
        return room if tokens is None else min(room, tokens)
    path = configuration.num_steps + 1.0
    longest = path if tokens is None else min(path, tokens)
    if reached > longest + ROUNDING_SLACK:  # a block drafter: its steps do not bound it
        longest = max(reached, tokens or reached)
    return longest


def _names(questions: Sequence[Question]) -> tuple[str, list[str]]:
    """What tells questions apart, in short; before it what that is, empty where the names say it."""
    configurations = [question.configuration for question in questions]
    differ = varying(configurations)
    if differ == ("num_steps",):
        depths = [one.num_steps for one in configurations]
        return "depth", ["?" if depth is None else f"{depth:g}" for depth in depths]
    if differ and _DRAFTING.issuperset(differ):
        return NOTATION_LABEL, [notation(one) for one in configurations]
    if differ:
        parts = [str(one).split(", ") for one in configurations]
        common = set(parts[0]).intersection(*parts[1:])
        return "", [", ".join(part for part in own if part not in common) for own in parts]
    if len({question.workload for question in questions}) == len(questions) > 1:
        return "", [question.workload or "any workload" for question in questions]
    return "", [f"at {question.accept_length.estimate.median:.2f}" for question in questions]


def _title(calibration: Calibration, questions: Sequence[Question], named: str) -> list[str]:
    """What is predicted, and from what."""
    points = calibration.num_points
    configurations = [question.configuration for question in questions]
    parts = [str(one).split(", ") for one in configurations]
    common = [part for part in parts[0] if all(part in other for other in parts)]
    depths = [f"{depth:g}" for depth in sorted({one.num_steps or 0.0 for one in configurations})]
    if len(depths) > _MOST_LISTED:
        common.insert(0, f"depths {depths[0]} to {depths[-1]}")
    elif len(depths) > 1:
        common.insert(0, f"depths {', '.join(depths)}")
    workloads = {question.workload for question in questions}
    workload = workloads.pop() if len(workloads) == 1 else None
    return [
        calibration.label if points else "packaged prior, no points of this system",
        (f"{points} point{'s' * (points > 1)}; " if points else "") + ", ".join(common),
        f"workload {workload}" if workload else "",
        f"lines: {NOTATION_LABEL}" if named == NOTATION_LABEL else "",
    ]


def _legend(shown: PredictionLines, colours: Sequence[str], best: int) -> list[Artist]:
    """What the marks are, with the numbers that are read most."""
    lines, chosen, colour = shown.lines, shown.lines[best], colours[best]
    single = len(lines) == 1
    unit = "" if shown.is_speedup else " tok/s"
    level = "" if shown.is_speedup else f": {shown.baseline:.4g}{unit}"
    interval = "90 % interval of a new measurement"
    if 1 < len(lines) <= _MOST_BANDS:
        band = Patch(color=QUIET, alpha=0.3, label=interval)
    else:
        interval += "" if single else f", {shown.called(best)}"
        band = Patch(color=colour, alpha=0.3, label=interval)
    handles: list[Artist] = [
        Line2D([], [], color=INK, linewidth=0.9, linestyle=DASHED, label=f"no speculation{level}"),
        band,
    ]
    if any(line.reaches_baseline for line in lines):
        numbers = f": {_interval(chosen.break_even, 2)}" if single else ""
        edge = colour if single else INK
        handles.append(legend_mark(f"break-even accept length{numbers}", "D", edge, face="white"))
    elif single:
        text = f"break-even {chosen.break_even.median:.2f}: above the most, {chosen.longest:g}"
        handles.append(legend_mark(text, "", INK))
    answer = _interval(chosen.answer, 2 if shown.is_speedup else 0) + unit
    if single:
        handles.append(legend_mark(f"at {chosen.asked.median:.2f}: {answer}", "o", colour))
    else:
        handles += [
            legend_mark("answer at the accept length of each line", "o", INK),
            legend_mark(f"best, {shown.called(best)}: {answer}", "o", INK, face=colour),
        ]
    measured = [index for index, line in enumerate(lines) if line.measured]
    if measured:
        which = "" if single else f", {shown.called(*measured)}"
        handles.append(legend_mark(f"measured{which}", "x", INK))
    return handles


def _interval(estimate: Estimate, decimals: int) -> str:
    """Median and interval."""
    low, high = f"{estimate.low:.{decimals}f}", f"{estimate.high:.{decimals}f}"
    return f"{estimate.median:.{decimals}f} ({low} to {high})"


def _draw_accept_lengths(
    axes: Axes, shown: PredictionLines, colours: Sequence[str], best: int
) -> None:
    """Draw the lines over accept length, each as far as its configuration can reach."""
    lines, end = shown.lines, _view(shown.lines)
    banded = [len(lines) <= _MOST_BANDS or index == best for index in range(len(lines))]
    tops = [shown.baseline]
    for line, band in zip(lines, banded, strict=True):
        curve = line.high if band else line.median
        tops += [float(curve[line.accept_length <= end].max()), line.answer.high]
        tops += [result for _, result in line.measured]
    axes.set(xlim=(1.0, end), ylim=(0.0, 1.05 * max(tops)))
    axes.set(xlabel="accept length (tokens/round, bonus included)", ylabel=shown.label)
    axes.axhline(shown.baseline, color=INK, linewidth=0.9, linestyle=DASHED)
    asked = {(line.asked.median, line.asked.low, line.asked.high) for line in lines}
    if len(asked) == 1:
        median, low, high = asked.pop()
        if high > low:
            axes.axvspan(low, high, color="#ececec", linewidth=0, zorder=0.5)
        axes.axvline(median, color=QUIET, linewidth=0.8, linestyle=DOTTED)
    width = 1.4 if len(lines) <= _MOST_WIDE else 0.8
    for line, colour, band in zip(lines, colours, banded, strict=True):
        if band:
            draw_band(axes, line.accept_length, line.low, line.high, colour, 0.18)
        axes.plot(line.accept_length, line.median, color=colour, linewidth=width, label=line.name)
    for line, colour, band in zip(lines, colours, banded, strict=True):
        _draw_break_even(axes, line, shown.baseline, colour, bar=band)
        for accept_length, result in line.measured:
            axes.plot(accept_length, result, "x", ms=6.0, color=INK, mec=INK, mew=1.1, zorder=7)
        _draw_answer(axes, line.asked, line.answer, colour, bars=band)
    if len(lines) > 1:
        _name_lines(axes, shown, end)


def _draw_depths(axes: Axes, shown: PredictionLines, colours: Sequence[str], best: int) -> None:
    """Draw answers against depth, each at the accept length carried to it."""
    depths = [line.num_steps or 0.0 for line in shown.lines]
    order = np.argsort(depths, kind="stable")
    axes.axhline(shown.baseline, color=INK, linewidth=0.9, linestyle=DASHED)
    medians = np.array([line.answer.median for line in shown.lines])
    axes.plot(np.array(depths)[order], medians[order], color=QUIET, linewidth=0.8)
    for depth, line, colour in zip(depths, shown.lines, colours, strict=True):
        _draw_answer(axes, Estimate(median=depth, low=depth, high=depth), line.answer, colour)
    axes.plot(depths[best], medians[best], "o", ms=8.5, color="none", mec=INK, mew=1.2, zorder=5)
    axes.set(
        xlabel="draft depth (tokens)",
        ylabel=shown.label,
        xlim=(min(depths) - 0.6, max(depths) + 0.6),
    )
    if len(depths) <= _MOST_TICKS:
        axes.set_xticks(sorted(depths))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, integer=True))


def _draw_break_even(
    axes: Axes, line: PredictionLine, baseline: float, colour: str, *, bar: bool
) -> None:
    """Mark where a line crosses the baseline, where it can."""
    if not line.reaches_baseline:
        return
    at, low, high = line.break_even.median, line.break_even.low, line.break_even.high
    if bar:
        ends = [low, min(high, line.longest)]
        axes.plot(ends, [baseline] * 2, color=colour, lw=2.6, solid_capstyle="butt", alpha=0.6)
    axes.plot(at, baseline, "D", ms=4.2, color="white", mec=colour, mew=1.1, zorder=4)


def _draw_answer(
    axes: Axes, across: Estimate, up: Estimate, colour: str, *, bars: bool = True
) -> None:
    """A median as a dot with its intervals."""
    if bars:
        axes.errorbar(
            across.median,
            up.median,
            xerr=_lengths(across) if across.high > across.low else None,
            yerr=_lengths(up),
            fmt="none",
            ecolor=colour,
            elinewidth=1.2,
            capsize=2.5,
            zorder=4,
        )
    axes.plot(across.median, up.median, "o", ms=5, color=colour, mec="white", mew=0.5, zorder=6)


def _lengths(estimate: Estimate) -> list[list[float]]:
    """Lengths of the bars below and above a median, as matplotlib takes them."""
    return [[estimate.median - estimate.low], [estimate.high - estimate.median]]


def _view(lines: Sequence[PredictionLine]) -> float:
    """Largest accept length shown: what matters and some room, all where that is not much more."""
    longest = max(line.longest for line in lines)
    matters = [line.asked.high for line in lines]
    matters += [line.break_even.median for line in lines if line.reaches_baseline]
    matters += [accept_length for line in lines for accept_length, _ in line.measured]
    end = (_ROOM_FOR_ONE if len(lines) == 1 else _ROOM) * max(matters)
    return max(longest if longest <= _ROOM * end else end, _LEAST_END)


def _name_lines(axes: Axes, shown: PredictionLines, end: float) -> None:
    """Write each line's name where it ends: above its tip, or in the margin where it leaves."""
    lines = shown.lines
    exits = {
        index: float(np.interp(end, line.accept_length, line.median))
        for index, line in enumerate(lines)
        if line.longest >= end
    }
    gap = _LABEL_SHARE * axes.get_ylim()[1]
    places = _apart(exits, gap) if len(lines) <= _MOST_WIDE else _thinned(exits, gap)
    tips = [index for index, line in enumerate(lines) if 1.0 < line.longest < end]
    first = tips[0] if tips else max(places, key=lambda index: places[index], default=-1)
    for index, line in enumerate(lines):
        name = shown.called(index) if index == first else line.name
        if index in tips:
            axes.annotate(
                name,
                (line.longest, float(line.median[-1])),
                xytext=(0, 3),
                textcoords="offset points",
                horizontalalignment="center",
            )
        elif index in places:
            axes.annotate(
                name,
                (1.0, places[index]),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                verticalalignment="center",
                annotation_clip=False,
            )


def _apart(places: dict[int, float], gap: float) -> dict[int, float]:
    """Places moved as little as needed, so that none is nearer to another than the gap."""
    order = sorted(places, key=lambda index: places[index])
    asked = np.array([places[index] for index in order])
    moved = asked.copy()
    for at in range(1, moved.size):
        moved[at] = max(moved[at], moved[at - 1] + gap)
    if moved.size:
        moved -= np.mean(moved - asked)
    return dict(zip(order, moved.tolist(), strict=True))


def _thinned(places: dict[int, float], gap: float) -> dict[int, float]:
    """Places without those that are too near to the one below."""
    kept: dict[int, float] = {}
    for index in sorted(places, key=lambda index: places[index]):
        if not kept or places[index] - max(kept.values()) >= gap:
            kept[index] = places[index]
    return kept
