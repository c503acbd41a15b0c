"""The picture of a fit: predicted against measured speed-up, and what is left; points by what varies among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from calibration.plots.style import (
    CATEGORIES,
    INK,
    QUIET,
    figure_format,
    figure_style,
    legend_above,
    legend_below,
    legend_mm,
    new_figure,
    ordered_colours,
    save_figure,
)
from calibration.points.arrays import SystemRows
from specmodel.calibration import Calibration
from specmodel.posterior import LogSpeedup, Rows, effect_index
from specmodel.question import Configuration
from specmodel.units import KIBI, PERCENT

Array = NDArray[np.float64]
Index = NDArray[np.intp]

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

_SPREAD = 0.28
_MOST_GROUPS = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointAxis:
    """Where points stand on the axis of what varies."""

    label: str
    position: Array
    ticks: tuple[float, ...]
    tick_labels: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointGroups:
    """Which points share a colour."""

    title: str
    names: tuple[str, ...]
    colours: tuple[str, ...]
    group: Index


def varying(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    """Names of the quantities that differ among configurations, preferred first.

    Verified tokens do not count where they follow from the depth.

    Examples
    --------
    >>> varying([Configuration(num_steps=steps, batch_size=1) for steps in (3, 5)])
    ('num_steps',)
    """
    names = [
        name
        for name in QUANTITY_LABELS
        if len({getattr(configuration, name) for configuration in configurations}) > 1
    ]
    if all(_is_chain(configuration) for configuration in configurations):
        names = [name for name in names if name != "num_draft_tokens"]
    return tuple(names)


def notation(configuration: Configuration) -> str:
    """Depth, topk and draft tokens in short.

    Examples
    --------
    >>> notation(Configuration(num_steps=5, topk=3, num_draft_tokens=6))
    '5-3-6'
    """
    parts = (configuration.num_steps, configuration.topk, configuration.num_draft_tokens)
    return "-".join("?" if part is None else f"{part:g}" for part in parts)


def point_axis(configurations: Sequence[Configuration], configuration: Index) -> PointAxis:
    """Axis of the quantity that varies: batch, else depth if nothing else does, else each its own.

    Examples
    --------
    >>> known = [Configuration(num_steps=steps) for steps in (3, 7)]
    >>> point_axis(known, np.array([1, 0])).tick_labels
    ('3', '7')
    """
    names = varying(configurations)
    if not names:
        only = configurations[0]
        return PointAxis(
            label="configuration",
            position=_side_by_side(np.zeros(configuration.size)),
            ticks=(0.0,),
            tick_labels=(str(only),),
        )
    name = names[0]
    if name != "batch_size" and len(names) > 1 and len(configurations) <= _MOST_GROUPS:
        order = sorted(range(len(configurations)), key=lambda index: _order(configurations[index]))
        rank = np.argsort(np.array(order))
        return PointAxis(
            label=NOTATION_LABEL,
            position=_side_by_side(rank[configuration].astype(np.float64)),
            ticks=tuple(float(place) for place in range(len(order))),
            tick_labels=tuple(notation(configurations[index]) for index in order),
        )
    values = sorted({getattr(one, name) for one in configurations}, key=_stated)
    place = {value: float(index) for index, value in enumerate(values)}
    at = np.array([place[getattr(one, name)] for one in configurations])
    return PointAxis(
        label=QUANTITY_LABELS[name],
        position=_side_by_side(at[configuration]),
        ticks=tuple(place.values()),
        tick_labels=tuple(_short(value) for value in values),
    )


def point_groups(configurations: Sequence[Configuration], configuration: Index) -> PointGroups:
    """Colours by configuration; where these are too many, by what the axis does not show.

    Examples
    --------
    >>> known = [Configuration(num_steps=3, batch_size=batch) for batch in (4, 1)]
    >>> point_groups(known, np.array([0, 1, 1])).names
    ('1', '4')
    """
    names = varying(configurations)
    if len(names) > 1 and len(configurations) <= len(CATEGORIES) and names[0] != "batch_size":
        order = sorted(range(len(configurations)), key=lambda index: _order(configurations[index]))
        rank = np.argsort(np.array(order))
        return PointGroups(
            title=NOTATION_LABEL,
            names=tuple(notation(configurations[index]) for index in order),
            colours=CATEGORIES[: len(order)],
            group=rank[configuration],
        )
    if not names:
        return PointGroups(
            title="",
            names=("",),
            colours=CATEGORIES[:1],
            group=np.zeros(configuration.size, dtype=np.intp),
        )
    name = names[min(1, len(names) - 1)]
    values = sorted({getattr(one, name) for one in configurations}, key=_stated)
    colours = ordered_colours(len(values))
    if len(values) <= _MOST_GROUPS:
        labels = [_short(value) for value in values]
    else:  # too many to list: write some
        step = -(-len(values) // _MOST_GROUPS)
        labels = [_short(value) if not at % step else "" for at, value in enumerate(values)]
    of = np.array([values.index(getattr(one, name)) for one in configurations], dtype=np.intp)
    return PointGroups(
        title=QUANTITY_LABELS[name],
        names=tuple(labels),
        colours=tuple(colours),
        group=of[configuration],
    )


def _is_chain(configuration: Configuration) -> bool:
    """Whether the verified tokens follow from the depth."""
    steps, tokens = configuration.num_steps, configuration.num_draft_tokens
    return configuration.topk == 1 and (steps is None or tokens == steps + 1)


def _stated(value: float | None) -> float:
    """Key to sort by, what is not stated first."""
    return -1.0 if value is None else value


def _order(configuration: Configuration) -> tuple[float, ...]:
    """Key to sort configurations by."""
    return tuple(
        _stated(getattr(configuration, name))
        for name in ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
    )


def _short(value: float | None) -> str:
    """Number on a tick: 16k for 16384."""
    if value is None:
        return "?"
    if value >= KIBI and value % KIBI == 0:
        return f"{value / KIBI:g}k"
    return f"{value:g}"


def _side_by_side(place: Array) -> Array:
    """Positions where points of one place do not lie on one another."""
    moved = place.copy()
    for value in np.unique(place):
        here = np.flatnonzero(place == value)
        if here.size > 1:
            moved[here] += np.linspace(-_SPREAD, _SPREAD, here.size)
    return moved


MOST_BARS = 12
"""Points up to which each shows its interval; more would hide each other."""

_CENTRAL_90 = (0.05, 0.95)
_BANDS = ((10.0, "#ececec"), (5.0, "#d6d6d6"))
_COLUMNS = 5


def fit_figure(calibration: Calibration, rows: SystemRows) -> Figure:
    r"""Figure of predicted against measured speed-up, and of the residuals.

    Examples
    --------
    >>> import tempfile
    >>> from calibration.fitting import fit
    >>> from calibration import read_points
    >>> from calibration.system_rows import system_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     figure = fit_figure(fit(bench), system_rows(read_points(bench).frame))
    >>> [axes.get_xlabel() for axes in figure.axes]
    ['measured speed-up (ratio of tok/s)', 'configuration']
    """
    measured = np.exp(rows.log_speedup)
    fitted = calibration.posterior.predict(_rows_of(calibration, rows))
    predicted = fitted.quantile(0.5)
    residual = (measured / predicted - 1.0) / PERCENT
    tree = np.array([(one.topk or 1.0) > 1.0 for one in rows.configurations])[
        rows.rows.configuration
    ]
    groups = point_groups(rows.configurations, rows.rows.configuration)
    along = point_axis(rows.configurations, rows.rows.configuration)
    with figure_style():
        colours = [] if groups.title == along.label else _colour_handles(groups, tree)
        legend_height = legend_mm(len(colours), _COLUMNS, titled=True) if colours else 0.0
        figure = new_figure(_title(calibration, measured, residual), 112.0 + legend_height)
        above, below = figure.subplots(2, 1, height_ratios=[1.6, 1.0])
        _speedup_panel(above, measured, fitted, groups, tree)
        _residual_panel(below, along, residual, groups, tree)
        if colours:  # the axis below does not name them
            legend_below(figure, colours, columns=_COLUMNS, title=groups.title)
    return figure


def plot_fit(calibration: Calibration, rows: SystemRows, path: Path | str) -> None:
    r"""Write the picture of a fit; see `fit_figure`.

    Examples
    --------
    >>> import tempfile
    >>> from calibration.fitting import fit
    >>> from calibration import read_points
    >>> from calibration.system_rows import system_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench, picture = Path(folder) / "bench.csv", Path(folder) / "fit.svg"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     plot_fit(fit(bench), system_rows(read_points(bench).frame), picture)
    ...     picture.read_text()[:5]
    '<?xml'
    """
    figure_format(path)
    save_figure(fit_figure(calibration, rows), path)


def _rows_of(calibration: Calibration, rows: SystemRows) -> Rows:
    """The rows with the indices of the calibration's effects."""
    configuration = np.array(
        [effect_index(calibration.configurations, one) for one in rows.configurations],
        dtype=np.intp,
    )
    run = np.array([effect_index(calibration.runs, one) for one in rows.runs], dtype=np.intp)
    known = rows.rows
    return Rows(
        terms=known.terms,
        accept_length=known.accept_length,
        baseline_deficit=known.baseline_deficit,
        measured_share=known.measured_share,
        configuration=configuration[known.configuration],
        run=run[known.run],
    )


def _title(calibration: Calibration, measured: Array, residual: Array) -> list[str]:
    """What was fitted, and how well."""
    count = measured.size
    rms = float(np.sqrt(np.mean(residual**2)))
    found = f"residual {rms:.1f} %" if count == 1 else f"rms residual {rms:.1f} %"
    return [calibration.label, f"{count} point{'s' * (count > 1)} fitted, {found}"]


def _speedup_panel(
    axes: Axes, measured: Array, fitted: LogSpeedup, groups: PointGroups, tree: NDArray[np.bool_]
) -> None:
    """Predicted against measured with the identity line and bands around it."""
    predicted = fitted.quantile(0.5)
    low, high = (fitted.quantile(level) for level in _CENTRAL_90)
    bars = measured.size <= MOST_BARS
    shown = np.concatenate([measured, predicted, *((low, high) if bars else ())])
    ends = np.array([shown.min() / 1.04, shown.max() * 1.04])
    for percent, shade in _BANDS:
        share = percent * PERCENT
        axes.fill_between(ends, ends * (1 - share), ends * (1 + share), color=shade, linewidth=0)
    axes.plot(ends, ends, color=QUIET, linewidth=0.8)
    for index, colour in enumerate(groups.colours):
        for is_tree, marker in ((False, "o"), (True, "^")):
            here = (groups.group == index) & (tree == is_tree)
            if not here.any():
                continue
            if bars:
                lengths = np.array([predicted[here] - low[here], high[here] - predicted[here]])
                look: dict[str, Any] = {"fmt": "none", "ecolor": colour, "elinewidth": 1.0}
                axes.errorbar(measured[here], predicted[here], lengths, **look)
            _dots(axes, measured[here], predicted[here], colour, marker)
    axes.set(
        xlabel="measured speed-up (ratio of tok/s)",
        ylabel="predicted speed-up",
        xlim=tuple(ends),
        ylim=tuple(ends),
    )
    legend_above(axes, _reading_handles(tree, bars=bars))


def _residual_panel(
    axes: Axes, along: PointAxis, residual: Array, groups: PointGroups, tree: NDArray[np.bool_]
) -> None:
    """Residuals against what varies."""
    for percent, shade in _BANDS:
        axes.axhspan(-percent, percent, color=shade, linewidth=0)
    axes.axhline(0.0, color=QUIET, linewidth=0.8)
    for index, colour in enumerate(groups.colours):
        for is_tree, marker in ((False, "o"), (True, "^")):
            here = (groups.group == index) & (tree == is_tree)
            if here.any():
                _dots(axes, along.position[here], residual[here], colour, marker)
    most = 1.1 * max(6.0, float(np.abs(residual).max()))
    axes.set(
        xlabel=along.label,
        ylabel="residual (%)",
        xlim=(along.ticks[0] - 0.6, along.ticks[-1] + 0.6),
        ylim=(-most, most),
    )
    axes.set_xticks(along.ticks, along.tick_labels)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=[1, 2, 5, 10]))


def _dots(axes: Axes, across: Array, up: Array, colour: str, marker: str) -> None:
    """Points of one group."""
    axes.plot(across, up, marker, ms=4.5, c=colour, mec="white", mew=0.4)


def _colour_handles(groups: PointGroups, tree: NDArray[np.bool_]) -> list[Line2D]:
    """Legend entries of the colours."""
    handles = []
    for index, (name, colour) in enumerate(zip(groups.names, groups.colours, strict=True)):
        trees = tree[groups.group == index]
        if name:
            handles.append(_marker(name, colour, "^" if trees.size and trees.all() else "o"))
    return handles


def _reading_handles(tree: NDArray[np.bool_], *, bars: bool) -> list[Line2D | Patch]:
    """Legend entries of bands, bars and markers."""
    handles: list[Line2D | Patch] = [
        Patch(color=shade, label=f"±{percent:g} %") for percent, shade in _BANDS[::-1]
    ]
    if bars:
        look: dict[str, Any] = {"marker": "|", "ms": 9, "mew": 1.0, "c": INK}
        handles.append(Line2D([], [], ls="none", label="90 % interval", **look))
    if tree.any() and not tree.all():
        handles += [_marker("chain", INK, "o"), _marker("tree", INK, "^")]
    elif tree.all():
        handles.append(_marker("tree", INK, "^"))
    return handles


def _marker(label: str, colour: str, marker: str) -> Line2D:
    """Legend entry of a point."""
    return Line2D([], [], ls="none", marker=marker, ms=4.5, c=colour, label=label)
