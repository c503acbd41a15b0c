"""The picture of a fit: predicted against measured speed-up, and what is left, by what varies among the points."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from calibration.plots.style import (
    CATEGORIES,
    CHARACTERS_PER_LINE,
    INK,
    MEDIAN_90,
    QUIET,
    draw_band,
    legend_mark,
    new_figure,
    ordered_colours,
    styled,
)
from calibration.points.arrays import SystemRows
from calibration.points.table import numbers
from specmodel.calibration import Calibration
from specmodel.effects import NEW
from specmodel.question import Configuration
from specmodel.units import KIBI, PERCENT

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

QUANTITY_LABELS: Final = {
    "batch_size": "batch (requests)",
    "num_steps": "draft depth (tokens)",
    "context_tokens": "context (tokens)",
    "num_draft_tokens": "draft tokens (verified, root included)",
    "topk": "topk (branches)",
}
"""Axis labels of the quantities of a configuration, in the order in which they are preferred."""

NOTATION_LABEL: Final = "depth-topk-draft tokens"
"""What `notation` is in."""

_BODY_MM = 112.0
_MOST_BARS = 12  # points up to which each shows its interval; more would hide each other
_MOST_LEVELS = 8
_SPREAD = 0.28
_BANDS = ((10.0, "#ececec"), (5.0, "#d6d6d6"))
_COLUMNS = 5
_HANDLE_LETTERS = 7
_DOT = 4.5


class Levels(NamedTuple):
    """Values of what varies, and which of them each point has."""

    label: str
    names: list[str]
    level: Index


class Series(NamedTuple):
    """Points that look alike."""

    here: Mask
    colour: str
    marker: str


@styled
def fit_figure(calibration: Calibration, rows: SystemRows) -> Figure:
    r"""Predicted against measured speed-up of the points of a fit, and residuals by what varies among them.

    .. math:: 100\left(\frac{S_\text{measured}}{S_\text{predicted}} - 1\right)

    Colour tells configurations, the marker chains from trees. The points were seen by the fit: residuals
    are smaller than errors on new points. Bars are the central 90 % for a new measurement.
    """
    configurations, at = rows.configurations, rows.rows.configuration
    seen = {one: index for index, one in enumerate(calibration.configurations)}
    ran = {one: index for index, one in enumerate(calibration.runs)}
    effects = [seen.get(one, NEW) for one in configurations]
    runs = [ran.get(one, NEW) for one in rows.runs]
    used = replace(
        rows.rows,
        configuration=np.array(effects, dtype=np.intp)[at],
        run=np.array(runs, dtype=np.intp)[rows.rows.run],
    )
    fitted = calibration.posterior.predict(used)
    known = calibration.baseline_known
    unit = 1.0 if known else numbers(rows.frame, "baseline_tokens_per_s")  # else throughputs
    low, predicted, high = (unit * fitted.quantile(level) for level in MEDIAN_90)
    measured = unit * np.exp(rows.log_speedup)
    residual = (measured / predicted - 1.0) / PERCENT
    tree = np.array([(one.topk or 1.0) > 1.0 for one in configurations])[at]
    along, (groups, colours) = point_axis(configurations, at), point_groups(configurations, at)
    series = [
        Series(here, colour, marker)
        for index, colour in enumerate(colours)
        for marker, kind in (("o", ~tree), ("^", tree))
        if (here := kind & (groups.level == index)).any()
    ]
    legend = []
    if groups.label != along.label:  # the axis below does not name them
        for index, (name, colour) in enumerate(zip(groups.names, colours, strict=True)):
            trees = tree[groups.level == index]
            if name:
                legend.append(_dot(name, "^" if trees.size and trees.all() else "o", colour))
    count, rms = measured.size, float(np.sqrt(np.mean(residual**2)))
    found = f"residual {rms:.1f} %" if count == 1 else f"rms residual {rms:.1f} %"
    title = [calibration.label, f"{count} point{'s' * (count > 1)} fitted, {found}"]
    legend_title = groups.label if legend else ""
    figure = new_figure(title, _BODY_MM, legend, columns=_COLUMNS, legend_title=legend_title)
    above, below = figure.subplots(2, 1, height_ratios=[1.6, 1.0])
    bars = np.array([predicted - low, high - predicted]) if count <= _MOST_BARS else None
    _draw_speedups(above, measured, predicted, bars, series)
    if known:
        above.set(xlabel="measured speed-up (ratio of tok/s)", ylabel="predicted speed-up")
    else:
        above.set(xlabel="measured throughput (tok/s)", ylabel="predicted throughput (tok/s)")
    _legend_above(above, tree, bars=bars is not None)
    _draw_residuals(below, along, residual, series)
    return figure


def varying(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    """Names of the quantities that differ, preferred first; verified tokens only where depth does not give them.

    >>> varying([Configuration(num_steps=steps, batch_size=1) for steps in (3, 5)])
    ('num_steps',)
    """
    chains = all(
        one.topk == 1 and (one.num_steps is None or one.num_draft_tokens == one.num_steps + 1)
        for one in configurations
    )
    return tuple(
        name
        for name in QUANTITY_LABELS
        if len({getattr(one, name) for one in configurations}) > 1
        and not (chains and name == "num_draft_tokens")
    )


def notation(configuration: Configuration) -> str:
    """Depth, topk and draft tokens in short.

    >>> notation(Configuration(num_steps=5, topk=3, num_draft_tokens=6))
    '5-3-6'
    """
    parts = (configuration.num_steps, configuration.topk, configuration.num_draft_tokens)
    return "-".join("?" if part is None else f"{part:g}" for part in parts)


def point_axis(configurations: Sequence[Configuration], configuration: Index) -> Levels:
    """Levels of the axis: batch where it varies, else depth if nothing else does, else each configuration its own."""
    names = varying(configurations)
    own = _drafting(names) and len(configurations) <= _MOST_LEVELS
    return _levels(configurations, configuration, NOTATION_LABEL if own else "".join(names[:1]))


def point_groups(
    configurations: Sequence[Configuration], configuration: Index
) -> tuple[Levels, Sequence[str]]:
    """Levels told by colour, and the colours: configurations, or where these are too many what the axis does not show."""
    names = varying(configurations)
    if _drafting(names) and len(configurations) <= len(CATEGORIES):
        groups = _levels(configurations, configuration, NOTATION_LABEL)
        return groups, CATEGORIES[: len(groups.names)]
    groups = _levels(configurations, configuration, "".join(names[:2][-1:]))
    count = len(groups.names)
    step = -(-count // _MOST_LEVELS)  # too many to list: write some
    written = [name if not at % step else "" for at, name in enumerate(groups.names)]
    return groups._replace(names=written), ordered_colours(count) if names else CATEGORIES[:1]


def side_by_side(level: Index) -> Array:
    """Positions where points of one level do not lie on one another."""
    position = level.astype(np.float64)
    for value in np.unique(level):
        here = np.flatnonzero(level == value)
        if here.size > 1:
            position[here] += np.linspace(-_SPREAD, _SPREAD, here.size)
    return position


def _drafting(names: Sequence[str]) -> bool:
    """Whether quantities differ that only the notation of a configuration tells together."""
    return len(names) > 1 and names[0] != "batch_size"


def _levels(configurations: Sequence[Configuration], configuration: Index, by: str) -> Levels:
    """Levels of a quantity, of `NOTATION_LABEL`, or the one level where nothing varies."""
    if not by:
        return Levels("configuration", [str(configurations[0])], np.zeros_like(configuration))
    order: tuple[str, ...] = (by,)
    if by == NOTATION_LABEL:
        order = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
        written = [notation(one) for one in configurations]
    else:
        written = [_short(getattr(one, by)) for one in configurations]
    # What is not stated comes first.
    values = [[getattr(one, name) for name in order] for one in configurations]
    keys = [tuple(-1.0 if value is None else value for value in each) for each in values]
    names = dict(sorted(zip(keys, written, strict=True)))
    levels = np.array([list(names).index(key) for key in keys], dtype=np.intp)
    return Levels(QUANTITY_LABELS.get(by, by), list(names.values()), levels[configuration])


def _short(value: float | None) -> str:
    """Number on a tick: 16k for 16384."""
    if value is None:
        return "?"
    whole = value >= KIBI and value % KIBI == 0
    return f"{value / KIBI:g}k" if whole else f"{value:g}"


def _draw_speedups(
    axes: Axes, measured: Array, predicted: Array, bars: Array | None, series: Sequence[Series]
) -> None:
    """Predicted against measured with the identity line and bands around it."""
    shown = [measured, predicted]
    if bars is not None:
        shown += [predicted - bars[0], predicted + bars[1]]
    ends = np.array([np.min(shown) / 1.04, np.max(shown) * 1.04])
    for percent, shade in _BANDS:
        share = percent * PERCENT
        draw_band(axes, ends, ends * (1 - share), ends * (1 + share), shade)
    axes.plot(ends, ends, color=QUIET, linewidth=0.8)
    for here, colour, marker in series:
        across, up = measured[here], predicted[here]
        if bars is not None:
            axes.errorbar(across, up, yerr=bars[:, here], fmt="none", ecolor=colour, elinewidth=1.0)
        axes.plot(across, up, marker, ms=_DOT, color=colour, mec="white", mew=0.4)
    axes.set(xlim=tuple(ends), ylim=tuple(ends))


def _draw_residuals(axes: Axes, along: Levels, residual: Array, series: Sequence[Series]) -> None:
    """Residuals against what varies."""
    for percent, shade in _BANDS:
        axes.axhspan(-percent, percent, color=shade, linewidth=0)
    axes.axhline(0.0, color=QUIET, linewidth=0.8)
    position = side_by_side(along.level)
    for here, colour, marker in series:
        across, up = position[here], residual[here]
        axes.plot(across, up, marker, ms=_DOT, color=colour, mec="white", mew=0.4)
    most = 1.1 * max(6.0, float(np.abs(residual).max()))
    axes.set(
        xlabel=along.label,
        ylabel="residual (%)",
        xlim=(-0.6, len(along.names) - 0.4),
        ylim=(-most, most),
    )
    axes.set_xticks(range(len(along.names)), along.names)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=[1, 2, 5, 10]))


def _dot(label: str, marker: str, colour: str = INK) -> Artist:
    return legend_mark(label, marker, colour, size=_DOT, edge=1.0)


def _legend_above(axes: Axes, tree: Mask, *, bars: bool) -> None:
    """What bands, bars and markers are, between the title and the panel, where it covers nothing."""
    handles: list[Artist] = [
        Patch(color=shade, label=f"±{percent:g} %") for percent, shade in _BANDS[::-1]
    ]
    if bars:
        handles.append(legend_mark("90 % interval", "|", INK, size=9, edge=1.0))
    if tree.any():
        handles += [_dot("chain", "o")] * (not tree.all()) + [_dot("tree", "^")]
    letters = sum(len(str(handle.get_label())) + _HANDLE_LETTERS for handle in handles)
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        borderpad=0.2,
        ncols=len(handles) if letters <= CHARACTERS_PER_LINE else -(-len(handles) // 2),
    )
