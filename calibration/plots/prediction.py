"""The picture of a prediction: throughput against accept length, and against depth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

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
from specmodel.acceptance.feasible import ROUNDING_SLACK
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import Prediction, predict
from specmodel.question import AcceptLength, Configuration, Estimate, Question

Array = NDArray[np.float64]

POINTS_PER_LINE: Final = 60
"""Accept lengths at which a line is evaluated."""

_ROOM_BEYOND = 1.3
_DRAFTING = frozenset({"num_steps", "topk", "num_draft_tokens"})


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionLine:
    """One configuration: its line, its answer and what is marked on it."""

    name: str
    num_steps: float | None
    accept_length: Array
    median: Array
    low: Array
    high: Array
    asked: Estimate
    answer: Estimate
    break_even: Estimate
    measured: tuple[tuple[float, float], ...]

    @property
    def longest(self) -> float:
        """Largest accept length that the configuration can give, [tokens]."""
        return float(self.accept_length[-1])

    @property
    def reaches_baseline(self) -> bool:
        """Whether the break-even accept length is possible."""
        return self.break_even.median <= self.longest


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionLines:
    """All lines in one unit."""

    lines: tuple[PredictionLine, ...]
    baseline: float
    is_speedup: bool
    by_depth: bool
    by_notation: bool

    @property
    def title(self) -> str:
        """What the names of the lines are; empty where they say it themselves."""
        return "depth" if self.by_depth else ""

    @property
    def unit(self) -> str:
        """Unit of the results, with the space before it."""
        return "" if self.is_speedup else " tok/s"


def prediction_lines(
    calibration: Calibration, questions: Sequence[Question], predictions: Sequence[Prediction]
) -> PredictionLines:
    """Lines over accept length through the answers, by `specmodel.prediction.predict`.

    Examples
    --------
    >>> asked = [Question(accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5))]
    >>> prior = Calibration.from_prior()
    >>> found = prediction_lines(prior, asked, predict(prior, asked))
    >>> found.is_speedup, found.lines[0].longest
    (True, 6.0)
    """
    if not questions:
        raise ParameterError("questions", "none", "one question or more")
    if len(questions) != len(predictions):
        raise ParameterError(
            "predictions", len(predictions), f"as many as questions ({len(questions)})"
        )
    baselines = {prediction.baseline_tokens_per_s for prediction in predictions}
    baseline = baselines.pop() if len(baselines) == 1 else None
    configurations = [question.configuration for question in questions]
    differ = varying(configurations)
    names = _names(questions, differ)
    grids = [
        np.linspace(1.0, _longest(calibration, question, prediction), POINTS_PER_LINE)
        for question, prediction in zip(questions, predictions, strict=True)
    ]
    along = predict(
        calibration,
        [
            replace(question, accept_length=AcceptLength.exact(accept_length))
            for question, grid in zip(questions, grids, strict=True)
            for accept_length in grid.tolist()
        ],
    )
    lines = []
    for index, (question, prediction) in enumerate(zip(questions, predictions, strict=True)):
        here = along[index * POINTS_PER_LINE : (index + 1) * POINTS_PER_LINE]
        results = [_result(one, baseline) for one in here]
        lines.append(
            PredictionLine(
                name=names[index],
                num_steps=question.configuration.num_steps,
                accept_length=grids[index],
                median=np.array([result.median for result in results]),
                low=np.array([result.low for result in results]),
                high=np.array([result.high for result in results]),
                asked=question.accept_length.estimate,
                answer=_result(prediction, baseline),
                break_even=prediction.break_even_accept_length,
                measured=_measured(calibration, question.configuration, baseline or 1.0),
            )
        )
    return PredictionLines(
        lines=tuple(lines),
        baseline=baseline or 1.0,
        is_speedup=baseline is None,
        by_depth=differ == ("num_steps",),
        by_notation=differ != ("num_steps",) and bool(differ) and _DRAFTING.issuperset(differ),
    )


def _result(prediction: Prediction, baseline: float | None) -> Estimate:
    """Throughput or speed-up of a prediction."""
    output = prediction.output_tokens_per_s
    return prediction.speedup if baseline is None or output is None else output


def _measured(
    calibration: Calibration, configuration: Configuration, baseline: float
) -> tuple[tuple[float, float], ...]:
    """Points of a configuration, carried to the baseline of the question."""
    return tuple(
        (
            one.accept_length_at,
            baseline * one.output_tokens_per_s / one.baseline_tokens_per_s,
        )
        for one in calibration.observations
        if one.configuration == configuration
    )


def _longest(calibration: Calibration, question: Question, prediction: Prediction) -> float:
    """Accept length at which a line ends."""
    configuration, asked = question.configuration, question.accept_length.estimate
    seen = [
        one.accept_length[1]
        for one in calibration.observations
        if one.configuration == configuration
    ]
    reached = max([asked.median, *seen])
    tokens = configuration.num_draft_tokens
    if configuration.num_steps is None:  # not known: as far as there is something to show
        break_even = prediction.break_even_accept_length.high
        room = _ROOM_BEYOND * max(
            reached, asked.high, break_even if np.isfinite(break_even) else 1.0
        )
        return room if tokens is None else min(room, tokens)
    path = configuration.num_steps + 1.0
    longest = path if tokens is None else min(path, tokens)
    if reached > longest + ROUNDING_SLACK:  # a block drafter: its steps do not bound it
        longest = max(reached, tokens or reached)
    return longest


def _names(questions: Sequence[Question], differ: Sequence[str]) -> list[str]:
    """What tells questions apart, in short."""
    configurations = [question.configuration for question in questions]
    if tuple(differ) == ("num_steps",):
        return ["?" if one.num_steps is None else f"{one.num_steps:g}" for one in configurations]
    if differ and _DRAFTING.issuperset(differ):
        return [notation(one) for one in configurations]
    if differ:
        parts = [str(one).split(", ") for one in configurations]
        common = set(parts[0]).intersection(*parts[1:])
        return [", ".join(part for part in own if part not in common) for own in parts]
    if len({question.workload for question in questions}) == len(questions) > 1:
        return [question.workload or "any workload" for question in questions]
    return [f"at {question.accept_length.estimate.median:.2f}" for question in questions]


ACCEPT_LABEL: Final = "accept length (tokens/round, bonus included)"
MOST_BANDS: Final = 2
"""Lines up to which each shows its interval; with more, only the best does."""

_BASELINE: Final[dict[str, Any]] = {"c": INK, "lw": 0.9, "ls": (0, (4, 2))}
_BAR: Final[dict[str, Any]] = {"elinewidth": 1.2, "capsize": 2.5, "zorder": 4}
_WHITE_EDGE: Final[dict[str, Any]] = {"mec": "white", "mew": 0.5}
_OFFSET: Final[dict[str, Any]] = {"textcoords": "offset points", "annotation_clip": False}
_ROOM, _ROOM_FOR_ONE = 1.25, 2.0
_LEAST_END = 1.5
_MOST_WIDE = 12
_LABEL_SHARE = 0.058


def result_label(shown: PredictionLines) -> str:
    """Label of the axis of results."""
    return "speed-up (ratio)" if shown.is_speedup else "throughput (tok/s)"


def error_bar(estimate: Estimate) -> list[list[float]]:
    """Lengths of the bars below and above a median, as matplotlib takes them."""
    return [[estimate.median - estimate.low], [estimate.high - estimate.median]]


def draw_accept_panel(
    axes: Axes, shown: PredictionLines, colours: Sequence[str], best: int
) -> None:
    """Draw the lines over accept length, each as far as its configuration can reach."""
    lines, end = shown.lines, _view(shown.lines)
    banded = [len(lines) <= MOST_BANDS or index == best for index in range(len(lines))]
    axes.set(xlim=(1.0, end), ylim=(0.0, _top(shown, banded, end)))
    axes.set(xlabel=ACCEPT_LABEL, ylabel=result_label(shown))
    axes.axhline(shown.baseline, **_BASELINE)
    _draw_asked(axes, lines)
    for line, colour, band in zip(lines, colours, banded, strict=True):
        if band:
            axes.fill_between(
                line.accept_length, line.low, line.high, color=colour, alpha=0.18, linewidth=0
            )
    width = 1.4 if len(lines) <= _MOST_WIDE else 0.8
    for line, colour in zip(lines, colours, strict=True):
        axes.plot(line.accept_length, line.median, color=colour, linewidth=width, label=line.name)
    for line, colour, band in zip(lines, colours, banded, strict=True):
        _draw_marks(axes, line, shown.baseline, colour, bars=band)
    if len(lines) > 1:
        _name_lines(axes, lines, end, shown.title)


def _draw_asked(axes: Axes, lines: Sequence[PredictionLine]) -> None:
    """Vertical mark of the accept length asked for, where all lines share it."""
    asked = {(line.asked.median, line.asked.low, line.asked.high) for line in lines}
    if len(asked) != 1:
        return
    median, low, high = asked.pop()
    if high > low:
        axes.axvspan(low, high, color="#ececec", linewidth=0, zorder=0.5)
    axes.axvline(median, color=QUIET, linewidth=0.8, linestyle=(0, (1, 1.5)))


def _draw_marks(
    axes: Axes, line: PredictionLine, baseline: float, colour: str, *, bars: bool
) -> None:
    """Break-even, measured points and the answer of one line."""
    if line.reaches_baseline:
        if bars:
            ends = [line.break_even.low, min(line.break_even.high, line.longest)]
            axes.plot(ends, [baseline] * 2, c=colour, lw=2.6, solid_capstyle="butt", alpha=0.6)
        at = line.break_even.median
        axes.plot(at, baseline, "D", ms=4.2, c="white", mec=colour, mew=1.1, zorder=4)
    for accept_length, result in line.measured:
        axes.plot(accept_length, result, "x", ms=6.0, mew=1.1, c=INK, zorder=7)
    at, result = line.asked.median, line.answer.median
    if bars:
        lengths: dict[str, Any] = {"xerr": error_bar(line.asked), "yerr": error_bar(line.answer)}
        axes.errorbar([at], [result], **lengths, fmt="none", ecolor=colour, **_BAR)
    axes.plot(at, result, "o", ms=5, c=colour, **_WHITE_EDGE, zorder=6)


def _view(lines: Sequence[PredictionLine]) -> float:
    """Largest accept length shown: what matters and some room, all where that is not much more."""
    longest = max(line.longest for line in lines)
    matters = [line.asked.high for line in lines]
    matters += [line.break_even.median for line in lines if line.reaches_baseline]
    matters += [accept_length for line in lines for accept_length, _ in line.measured]
    room = _ROOM_FOR_ONE if len(lines) == 1 else _ROOM
    end = room * max(matters)
    return max(longest if longest <= _ROOM * end else end, _LEAST_END)


def _top(shown: PredictionLines, banded: Sequence[bool], end: float) -> float:
    """Largest result shown."""
    tops = [shown.baseline]
    for line, band in zip(shown.lines, banded, strict=True):
        curve = line.high if band else line.median
        tops += [float(curve[line.accept_length <= end].max()), line.answer.high]
        tops += [result for _, result in line.measured]
    return 1.05 * max(tops)


def _name_lines(axes: Axes, lines: Sequence[PredictionLine], end: float, title: str) -> None:
    """Write each line's name where it ends: above its tip, or in the margin where it leaves."""
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
        name = f"{title} {line.name}" if title and index == first else line.name
        if index in tips:
            tip = (line.longest, float(line.median[-1]))
            axes.annotate(name, tip, xytext=(0, 3), ha="center", **_OFFSET)
        elif index in places:
            margin: dict[str, Any] = {
                "xy": (1.0, places[index]),
                "xycoords": ("axes fraction", "data"),
            }
            axes.annotate(name, **margin, xytext=(3, 0), va="center", **_OFFSET)


def _apart(places: dict[int, float], gap: float) -> dict[int, float]:
    """Places moved as little as needed, so that none is nearer to another than the gap."""
    order = sorted(places, key=lambda index: places[index])
    moved = np.array([places[index] for index in order])
    for at in range(1, moved.size):
        moved[at] = max(moved[at], moved[at - 1] + gap)
    if moved.size:
        moved -= np.mean(moved - np.array([places[index] for index in order]))
    return dict(zip(order, moved.tolist(), strict=True))


def _thinned(places: dict[int, float], gap: float) -> dict[int, float]:
    """Places without those that are too near to the one below."""
    order = sorted(places, key=lambda index: places[index])
    kept: dict[int, float] = {}
    for index in order:
        if not kept or places[index] - max(kept.values()) >= gap:
            kept[index] = places[index]
    return kept


_MOST_TICKS = 12


def draw_depth_panel(axes: Axes, shown: PredictionLines, colours: Sequence[str], best: int) -> None:
    """Draw answers against depth, each at the accept length carried to it."""
    depths = [line.num_steps or 0.0 for line in shown.lines]
    order = sorted(range(len(depths)), key=lambda index: depths[index])
    axes.axhline(shown.baseline, **_BASELINE)
    axes.plot(
        [depths[index] for index in order],
        [shown.lines[index].answer.median for index in order],
        color=QUIET,
        linewidth=0.8,
    )
    for index, (depth, line, colour) in enumerate(zip(depths, shown.lines, colours, strict=True)):
        lengths = error_bar(line.answer)
        result = line.answer.median
        axes.errorbar([depth], [result], lengths, fmt="o", c=colour, ms=5, **_BAR, **_WHITE_EDGE)
        if index == best:
            axes.plot(depth, result, "o", ms=8.5, c="none", mec=INK, mew=1.2, zorder=5)
    axes.set(
        xlabel="draft depth (tokens)",
        ylabel=result_label(shown),
        xlim=(min(depths) - 0.6, max(depths) + 0.6),
    )
    if len(depths) <= _MOST_TICKS:
        axes.set_xticks(sorted(depths))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, integer=True))


_ACCEPT_PANEL_MM, _DEPTH_PANEL_MM = 62.0, 48.0
_MOST_NAMED, _MOST_LISTED = 8, 4


def prediction_figure(
    calibration: Calibration,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    *,
    best: int | None = None,
) -> Figure:
    r"""Figure of throughput against accept length, and of the answers against depth.

    Examples
    --------
    >>> from specmodel.question import Configuration
    >>> from specmodel.prediction import predict
    >>> from specmodel.question import AcceptLength
    >>> prior = Calibration.from_prior()
    >>> asked = [
    ...     Question(
    ...         accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=steps)
    ...     )
    ...     for steps in (3, 5)
    ... ]
    >>> figure = prediction_figure(prior, asked, predict(prior, asked))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['speed-up (ratio)', 'speed-up (ratio)']
    """
    shown = prediction_lines(calibration, questions, predictions)
    count = len(shown.lines)
    if best is None:
        best = max(range(count), key=lambda index: shown.lines[index].answer.median)
    colours = list(CATEGORIES[:count]) if count <= MOST_BANDS else ordered_colours(count)
    handles = _handles(shown, colours, best)
    body_mm = _ACCEPT_PANEL_MM + (_DEPTH_PANEL_MM if shown.by_depth else 0.0)
    with figure_style():
        figure = new_figure(
            _title(calibration, questions, shown), body_mm + legend_mm(len(handles), columns=1)
        )
        if shown.by_depth:
            above, below = figure.subplots(2, 1, height_ratios=[_ACCEPT_PANEL_MM, _DEPTH_PANEL_MM])
            draw_depth_panel(below, shown, colours, best)
        else:
            above = figure.subplots()
        draw_accept_panel(above, shown, colours, best)
        legend_below(figure, handles, columns=1)
    return figure


def plot_prediction(
    calibration: Calibration,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    path: Path | str,
    *,
    best: int | None = None,
) -> None:
    r"""Write the picture of a prediction; see `prediction_figure`.

    Examples
    --------
    >>> import tempfile
    >>> from specmodel.question import Configuration
    >>> from specmodel.prediction import predict
    >>> from specmodel.question import AcceptLength
    >>> prior = Calibration.from_prior()
    >>> asked = [
    ...     Question(accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5))
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = Path(folder) / "prediction.pdf"
    ...     plot_prediction(prior, asked, predict(prior, asked), picture)
    ...     picture.read_bytes()[:5]
    b'%PDF-'
    """
    figure_format(path)
    save_figure(prediction_figure(calibration, questions, predictions, best=best), path)


def _title(
    calibration: Calibration, questions: Sequence[Question], shown: PredictionLines
) -> list[str]:
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
        f"lines: {NOTATION_LABEL}" if shown.by_notation else "",
    ]


def _handles(shown: PredictionLines, colours: Sequence[str], best: int) -> list[Artist]:
    """What the legend explains, with the numbers that are read most."""
    lines, chosen, colour = shown.lines, shown.lines[best], colours[best]
    single = len(lines) == 1
    level = "" if shown.is_speedup else f": {shown.baseline:.4g}{shown.unit}"
    handles: list[Artist] = [Line2D([], [], **_BASELINE, label=f"no speculation{level}")]
    interval = "90 % interval of a new measurement"
    if not single and len(lines) <= MOST_BANDS:
        handles.append(Patch(color=QUIET, alpha=0.3, label=interval))
    else:
        which = "" if single else f", {_called(shown, [best])}"
        handles.append(Patch(color=colour, alpha=0.3, label=interval + which))
    if any(line.reaches_baseline for line in lines):
        numbers = f": {_interval(chosen.break_even, 2)}" if single else ""
        handles.append(
            _marker(f"break-even accept length{numbers}", "D", colour if single else INK, "white")
        )
    elif single:
        text = f"break-even {chosen.break_even.median:.2f}: above the most, {chosen.longest:g}"
        handles.append(_marker(text, "", INK))
    answer = _interval(chosen.answer, 2 if shown.is_speedup else 0) + shown.unit
    if single:
        handles.append(_marker(f"at {chosen.asked.median:.2f}: {answer}", "o", colour))
    else:
        handles += [
            _marker("answer at the accept length of each line", "o", INK),
            _marker(f"best, {_called(shown, [best])}: {answer}", "o", INK, colour),
        ]
    measured = [index for index, line in enumerate(lines) if line.measured]
    if measured:
        which = "" if single else f", {_called(shown, measured)}"
        handles.append(_marker(f"measured{which}", "x", INK))
    return handles


def _called(shown: PredictionLines, chosen: Sequence[int]) -> str:
    """Some lines by their names."""
    names = [shown.lines[index].name for index in chosen]
    if len(names) > _MOST_NAMED:
        names = [names[0], "...", names[-1]]
    title = shown.title and f"{shown.title} "
    return title + ", ".join(names)


def _interval(estimate: Estimate, decimals: int) -> str:
    """Median and interval."""
    median, low, high = (
        f"{value:.{decimals}f}" for value in (estimate.median, estimate.low, estimate.high)
    )
    return f"{median} ({low} to {high})"


def _marker(label: str, marker: str, colour: str, face: str | None = None) -> Line2D:
    """Legend entry of a mark."""
    look: dict[str, Any] = {
        "marker": marker,
        "ms": 5,
        "c": face or colour,
        "mec": colour,
        "mew": 1.2,
    }
    return Line2D([], [], ls="none", label=label, **look)
