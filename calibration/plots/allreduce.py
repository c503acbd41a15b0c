"""The picture of measured all-reduces: time against message size, with the two-protocol law."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibration.allreduce.fitting import MeasuredAllReduce
from calibration.plots.style import CATEGORIES, QUIET, new_figure, styled
from specmodel.units import KIBI, MICRO

_BODY_MM = 60.0
_NUM_SIZES = 200


@styled
def all_reduce_figure(measured: Sequence[MeasuredAllReduce]) -> Figure:
    """All-reduces: points as measured, lines as two protocols; colours repeat after seven."""
    colours = [CATEGORIES[place % len(CATEGORIES)] for place in range(len(measured))]
    legend = [
        Line2D(
            [],
            [],
            color=colour,
            marker="o",
            markersize=3,
            label=f"{each.file}: {each.library}, {each.fit.num_ranks} ranks",
        )
        for each, colour in zip(measured, colours, strict=True)
    ]
    title = ["All-reduce: points measured, lines two protocols"]
    figure = new_figure(title, _BODY_MM, legend)
    axes = figure.subplots()
    for each, colour in zip(measured, colours, strict=True):
        curve = each.fit.curve
        sizes = np.geomspace(curve.size_bytes[0], curve.size_bytes[-1], _NUM_SIZES)
        axes.plot(curve.size_bytes / KIBI, curve.time_s / MICRO, "o", color=colour, ms=3)
        axes.plot(sizes / KIBI, each.fit.library_law.at(sizes) / MICRO, color=colour, lw=1.0)
    axes.set(xscale="log", yscale="log", xlabel="message, KiB", ylabel="time, µs")
    axes.grid(visible=True, color=QUIET, alpha=0.25, linewidth=0.5)
    return figure
