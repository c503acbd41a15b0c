"""How every figure looks and is written: one column wide, colours that anybody can tell apart."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from specmodel.errors import ParameterError
from specmodel.files import STANDARD_OUTPUT, write_bytes_atomically

Array = NDArray[np.float64]

INK, QUIET = "#222222", "#767676"
"""Text; reference lines and axes."""

CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours of unordered things, safe for colour blindness (Okabe and Ito)."""

DASHED, DOTTED = (0, (4, 2)), (0, (1, 1.5))
"""Reference lines: what no speculation gives, and what was asked for."""

MEDIAN_90 = (0.05, 0.5, 0.95)
"""Low end, median and high end of a central 90 % interval."""

CHARACTERS_PER_LINE = 50
"""Width of a line of the title or of the legend."""

_MM_IN = 1 / 25.4
_WIDTH_IN = 80.0 * _MM_IN  # one column of a paper
_FONT_PT = 8.0
_ORDERED_ENDS = (0.0, 0.78)
_LINE_MM = 3.7

_STYLE = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), _FONT_PT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "figure.titlesize"), _FONT_PT),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), _FONT_PT),
    "legend.frameon": False,
    "legend.handlelength": 1.3,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "text.color": INK,
    **dict.fromkeys(("xtick.color", "ytick.color"), QUIET),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    "lines.linewidth": 1.4,
    "figure.dpi": 100.0,
    "savefig.dpi": 300.0,
    "svg.hashsalt": "specmodel",
}

_METADATA: Final[dict[str, dict[str, Any]]] = {
    "png": {},
    "svg": {"Date": None},  # equal figures make equal files
    "pdf": {"CreationDate": None},
}

styled = matplotlib.style.context(["default", _STYLE])
"""Decorator of what makes or renders a figure, so that the user's own settings neither matter nor change."""


def ordered_colours(count: int) -> list[str]:
    """Colours of ordered things, dark to light, told apart by lightness."""
    low, high = _ORDERED_ENDS
    steps = [low + (high - low) * index / max(count - 1, 1) for index in range(count)]
    return [mpl.colors.to_hex(mpl.colormaps["viridis"](step)) for step in steps]


def new_figure(
    title: Sequence[str],
    body_mm: float,
    legend: Sequence[Artist],
    *,
    columns: int = 1,
    legend_title: str = "",
) -> Figure:
    """Figure of one column: wrapped lines of a title, room for the panels, the legend below where it covers nothing."""
    lines = [
        part
        for line in title
        for part in textwrap.wrap(line, CHARACTERS_PER_LINE, break_on_hyphens=False)
    ]
    legend_lines = -(-len(legend) // columns) + bool(legend_title)
    height_mm = body_mm + _LINE_MM * (len(lines) + legend_lines) + (1.0 if legend else 0.0)
    figure = Figure(figsize=(_WIDTH_IN, height_mm * _MM_IN), layout="constrained")
    if lines:
        figure.suptitle("\n".join(lines), x=0.02, horizontalalignment="left")
    if legend:
        figure.legend(
            handles=list(legend),
            loc="outside lower left",
            ncols=columns,
            title=legend_title or None,
            alignment="left",
        )
    return figure


def draw_band(
    axes: Axes, across: Array, low: Array, high: Array, colour: str, alpha: float = 1.0
) -> None:
    """What lies between two lines, without an edge."""
    axes.fill_between(across, low, high, color=colour, alpha=alpha, linewidth=0)


def legend_mark(
    label: str, marker: str, colour: str, *, face: str = "", size: float = 5.0, edge: float = 1.2
) -> Line2D:
    """Legend entry of a mark."""
    handle = Line2D([], [], linestyle="none", marker=marker, label=label, color=face or colour)
    handle.set(markersize=size, markeredgecolor=colour, markeredgewidth=edge)
    return handle


@styled
def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure as PNG, SVG or PDF by the ending of its file; the old file stays whole when that fails.

    >>> save_figure(Figure(), "fit.jpg")
    Traceback (most recent call last):
        ...
    specmodel.errors.ParameterError: plot must be a file ending in .png, .svg or .pdf, got fit.jpg; ...
    """
    kind = "png" if str(path) == STANDARD_OUTPUT else Path(path).suffix.lower().lstrip(".")
    if kind not in _METADATA:
        raise ParameterError(
            "plot",
            path,
            "a file ending in .png, .svg or .pdf",
            "the ending chooses the type of the picture",
        )
    rendered = io.BytesIO()
    figure.savefig(rendered, format=kind, metadata=_METADATA[kind])
    write_bytes_atomically(path, rendered.getvalue())
