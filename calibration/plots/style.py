"""How every figure looks, and how it becomes a file: one column wide, eight-point text, colours that anybody can tell apart."""

import io
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specmodel.errors import ParameterError
from specmodel.files import STANDARD_OUTPUT, write_bytes_atomically

MM_IN = 1 / 25.4
"""One millimetre. [inch]"""

WIDTH_MM = 80.0
"""Width of every figure: one column of a paper. [mm]"""

FONT_PT = 8.0
"""Size of all text. [pt]"""

INK, QUIET = "#222222", "#767676"
"""Text; reference lines and axes."""

CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours of unordered things, safe for colour blindness (Okabe and Ito)."""

_ORDERED_ENDS = (0.0, 0.78)
_CHARACTERS_PER_LINE = 50
_HANDLE_LETTERS = 7
_LINE_MM = 3.7

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_PT,
    "axes.titlesize": FONT_PT,
    "axes.labelsize": FONT_PT,
    "xtick.labelsize": FONT_PT,
    "ytick.labelsize": FONT_PT,
    "legend.fontsize": FONT_PT,
    "legend.title_fontsize": FONT_PT,
    "figure.titlesize": FONT_PT,
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
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.4,
    "figure.dpi": 100.0,
    "savefig.dpi": 300.0,
    "svg.hashsalt": "specmodel",
}


def figure_style() -> AbstractContextManager[None]:
    """Context in which figures are made and rendered, whatever the user's own settings are."""
    return matplotlib.style.context(["default", _STYLE])


def ordered_colours(count: int) -> list[str]:
    """Colours of ordered things, dark to light, told apart by lightness.

    Examples
    --------
    >>> len(set(ordered_colours(10)))
    10
    """
    low, high = _ORDERED_ENDS
    steps = [low + (high - low) * index / max(count - 1, 1) for index in range(count)]
    return [mpl.colors.to_hex(mpl.colormaps["viridis"](step)) for step in steps]


def new_figure(title: Sequence[str], body_mm: float) -> Figure:
    r"""Empty figure of one column under a title of several lines, each wrapped.

    Examples
    --------
    >>> new_figure(["Lynx-8B, H200", "3 points"], 60.0).get_suptitle()
    'Lynx-8B, H200\n3 points'
    """
    lines = [
        part
        for line in title
        for part in textwrap.wrap(line, _CHARACTERS_PER_LINE, break_on_hyphens=False)
    ]
    height_mm = body_mm + _LINE_MM * len(lines)
    figure = Figure(figsize=(WIDTH_MM * MM_IN, height_mm * MM_IN), layout="constrained")
    if lines:
        figure.suptitle("\n".join(lines), x=0.02, horizontalalignment="left")
    return figure


def legend_mm(entries: int, columns: int, *, titled: bool = False) -> float:
    """Height that a legend under the panels takes, [mm].

    Examples
    --------
    >>> legend_mm(5, 2) > legend_mm(4, 2)
    True
    """
    return _LINE_MM * (-(-entries // columns) + titled) + 1.0


def legend_below(
    figure: Figure, handles: Sequence[Artist], *, columns: int, title: str = ""
) -> None:
    """Legend under all panels, where it covers nothing."""
    figure.legend(
        handles=list(handles),
        loc="outside lower left",
        ncols=columns,
        title=title or None,
        alignment="left",
    )


def legend_above(axes: Axes, handles: Sequence[Artist]) -> None:
    """Legend between the title and a panel, where it covers nothing."""
    letters = sum(len(str(handle.get_label())) + _HANDLE_LETTERS for handle in handles)
    axes.legend(
        handles=list(handles),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        borderpad=0.2,
        ncols=len(handles) if letters <= _CHARACTERS_PER_LINE else -(-len(handles) // 2),
    )


_METADATA: Final[dict[str, dict[str, Any]]] = {
    "png": {},
    "svg": {"Date": None},  # equal figures make equal files
    "pdf": {"CreationDate": None},
}


def figure_format(path: Path | str) -> str:
    """Type of a figure file by its suffix.

    Examples
    --------
    >>> figure_format("fit.SVG")
    'svg'
    >>> figure_format("fit.jpg")
    Traceback (most recent call last):
        ...
    specmodel.errors.ParameterError: plot must be a file ending in .png, .svg or .pdf, got fit.jpg; ...
    """
    suffix = "png" if str(path) == STANDARD_OUTPUT else Path(path).suffix.lower().lstrip(".")
    if suffix not in _METADATA:
        raise ParameterError(
            "plot",
            path,
            "a file ending in .png, .svg or .pdf",
            "the ending chooses the type of the picture",
        )
    return suffix


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure; the old file stays whole when that fails.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "empty.png"
    ...     save_figure(Figure(), file)
    ...     file.read_bytes()[1:4]
    b'PNG'
    """
    kind = figure_format(path)
    rendered = io.BytesIO()
    with figure_style():
        figure.savefig(rendered, format=kind, metadata=_METADATA[kind])
    write_bytes_atomically(path, rendered.getvalue())
