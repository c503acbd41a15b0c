"""The picture of a fit: predicted against measured speed-up, and what is left."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from calibration.plots.figure_file import figure_format, save_figure
from calibration.plots.point_groups import PointAxis, PointGroups, point_axis, point_groups
from calibration.plots.style import (
    INK,
    QUIET,
    figure_style,
    legend_above,
    legend_below,
    legend_mm,
    new_figure,
)
from calibration.points.arrays import SystemRows
from specmodel.calibration import Calibration
from specmodel.posterior import LogSpeedup, Rows, effect_index
from specmodel.units import PERCENT

Array = NDArray[np.float64]

MOST_BARS = 12
"""Points up to which each shows its interval; more would hide each other."""

_CENTRAL_90 = (0.05, 0.95)
_BANDS = ((10.0, "#ececec"), (5.0, "#d6d6d6"))
_COLUMNS = 5


def fit_figure(calibration: Calibration, rows: SystemRows) -> Figure:
    r"""Figure of predicted against measured speed-up, and of the residuals.

    .. math:: 100\left(\frac{S_\text{measured}}{S_\text{predicted}} - 1\right)

    Parameters
    ----------
    calibration : Calibration
        The fit.
    rows : SystemRows
        The points it was fitted to (or others of the same system), at least one.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels; colour tells configurations, the marker chains from trees.

    Notes
    -----
    The points were seen by the fit: residuals are smaller than errors on new points. Bars are the
    central 90 % for a new measurement and are drawn where there are at most `MOST_BARS` points.

    Examples
    --------
    >>> import tempfile
    >>> from calibration.fitting import fit
    >>> from calibration.points import read_points
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

    Parameters
    ----------
    calibration : Calibration
        The fit.
    rows : SystemRows
        The points it was fitted to, at least one.
    path : path
        The file, ending in .png, .svg or .pdf; the old one stays whole when writing fails.

    Raises
    ------
    ParameterError
        If the suffix is another one.
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from calibration.fitting import fit
    >>> from calibration.points import read_points
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
                axes.errorbar(
                    measured[here],
                    predicted[here],
                    yerr=lengths,
                    fmt="none",
                    ecolor=colour,
                    elinewidth=1.0,
                )
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
    axes.plot(
        across,
        up,
        linestyle="none",
        marker=marker,
        markersize=4.5,
        color=colour,
        markeredgecolor="white",
        markeredgewidth=0.4,
    )


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
        handles.append(
            Line2D(
                [],
                [],
                linestyle="none",
                marker="|",
                markersize=9,
                markeredgewidth=1.0,
                color=INK,
                label="90 % interval",
            )
        )
    if tree.any() and not tree.all():
        handles += [_marker("chain", INK, "o"), _marker("tree", INK, "^")]
    elif tree.all():
        handles.append(_marker("tree", INK, "^"))
    return handles


def _marker(label: str, colour: str, marker: str) -> Line2D:
    """Legend entry of a point."""
    return Line2D(
        [], [], linestyle="none", marker=marker, markersize=4.5, color=colour, label=label
    )
