"""The panel over accept length: lines, intervals, break-even and the accept length asked for."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from calibration.plots.prediction_lines import PredictionLine, PredictionLines
from calibration.plots.style import INK, QUIET
from specmodel.question import Estimate

Array = NDArray[np.float64]

ACCEPT_LABEL: Final = "accept length (tokens/round, bonus included)"
MOST_BANDS: Final = 2
"""Lines up to which each shows its interval; with more, only the best does."""

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
    axes.axhline(shown.baseline, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
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
            axes.plot(
                [line.break_even.low, min(line.break_even.high, line.longest)],
                [baseline, baseline],
                color=colour,
                linewidth=2.6,
                solid_capstyle="butt",
                alpha=0.6,
            )
        axes.plot(
            [line.break_even.median],
            [baseline],
            marker="D",
            markersize=4.2,
            linestyle="none",
            color="white",
            markeredgecolor=colour,
            markeredgewidth=1.1,
            zorder=4,
        )
    for accept_length, result in line.measured:
        axes.plot(
            [accept_length],
            [result],
            marker="x",
            markersize=6.0,
            markeredgewidth=1.1,
            linestyle="none",
            color=INK,
            zorder=7,
        )
    if bars:
        axes.errorbar(
            [line.asked.median],
            [line.answer.median],
            xerr=error_bar(line.asked),
            yerr=error_bar(line.answer),
            fmt="none",
            ecolor=colour,
            elinewidth=1.2,
            capsize=2.5,
            zorder=4,
        )
    axes.plot(
        [line.asked.median],
        [line.answer.median],
        marker="o",
        markersize=5,
        linestyle="none",
        color=colour,
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=6,
    )


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
