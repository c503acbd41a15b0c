"""The panel over depth: the answer at each depth with its interval, the best one marked."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from calibration.plots.accept_panel import error_bar, result_label
from calibration.plots.prediction_lines import PredictionLines
from calibration.plots.style import INK, QUIET

_MOST_TICKS = 12


def draw_depth_panel(axes: Axes, shown: PredictionLines, colours: Sequence[str], best: int) -> None:
    """Draw answers against depth, each at the accept length carried to it."""
    depths = [line.num_steps or 0.0 for line in shown.lines]
    order = sorted(range(len(depths)), key=lambda index: depths[index])
    axes.axhline(shown.baseline, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.plot(
        [depths[index] for index in order],
        [shown.lines[index].answer.median for index in order],
        color=QUIET,
        linewidth=0.8,
    )
    for index, (depth, line, colour) in enumerate(zip(depths, shown.lines, colours, strict=True)):
        axes.errorbar(
            [depth],
            [line.answer.median],
            yerr=error_bar(line.answer),
            fmt="o",
            color=colour,
            markersize=5,
            elinewidth=1.2,
            capsize=2.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=4,
        )
        if index == best:
            axes.plot(
                [depth],
                [line.answer.median],
                marker="o",
                markersize=8.5,
                linestyle="none",
                color="none",
                markeredgecolor=INK,
                markeredgewidth=1.2,
                zorder=5,
            )
    axes.set(
        xlabel="draft depth (tokens)",
        ylabel=result_label(shown),
        xlim=(min(depths) - 0.6, max(depths) + 0.6),
    )
    if len(depths) <= _MOST_TICKS:
        axes.set_xticks(sorted(depths))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, integer=True))
