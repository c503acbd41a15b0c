"""The picture of measured all-reduces: time against message size, with the two-protocol law."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibration.allreduce.fitting import MeasuredAllReduce
from calibration.plots.style import (
    CATEGORIES,
    QUIET,
    figure_format,
    figure_style,
    legend_below,
    legend_mm,
    new_figure,
    save_figure,
)
from specmodel.units import KIBI, MICRO

_BODY_MM = 60.0
_NUM_SIZES = 200


def all_reduce_figure(measured: Sequence[MeasuredAllReduce]) -> Figure:
    """Figure of all-reduces: points as measured, lines as two protocols."""
    handles: list[Artist] = []
    with figure_style():
        figure = new_figure(
            ["All-reduce: points measured, lines two protocols"],
            _BODY_MM + legend_mm(len(measured), columns=1),
        )
        axes = figure.subplots()
        for place, each in enumerate(measured):
            colour = CATEGORIES[place % len(CATEGORIES)]
            curve = each.fit.curve
            sizes = np.geomspace(curve.size_bytes[0], curve.size_bytes[-1], _NUM_SIZES)
            axes.plot(curve.size_bytes / KIBI, curve.time_s / MICRO, "o", color=colour, ms=3)
            axes.plot(sizes / KIBI, each.fit.library_law.at(sizes) / MICRO, color=colour, lw=1.0)
            label = f"{each.file}: {each.library}, {each.fit.num_ranks} ranks"
            handles.append(Line2D([], [], color=colour, marker="o", markersize=3, label=label))
        axes.set(xscale="log", yscale="log", xlabel="message, KiB", ylabel="time, µs")
        axes.grid(visible=True, color=QUIET, alpha=0.25, linewidth=0.5)
        legend_below(figure, handles, columns=1)
    return figure


def plot_all_reduces(measured: Sequence[MeasuredAllReduce], path: Path | str) -> None:
    """Write the picture of all-reduces; see `all_reduce_figure`."""
    figure_format(path)
    save_figure(all_reduce_figure(measured), path)
