"""Text for a terminal of 80 columns: labelled lines and tables."""

import textwrap
from collections.abc import Sequence
from typing import Final

from specmodel.units import MICRO

WIDTH: Final = 80
"""Columns of the text. [characters]"""

_SHORT: Final = 20


def labelled(label: str, text: str, *, column: int = 16) -> str:
    """Return a label and a wrapped text beside it."""
    return textwrap.fill(
        " ".join(text.split()),
        width=WIDTH,
        initial_indent=label.ljust(column),
        subsequent_indent=" " * column,
        break_on_hyphens=False,
    )


def noted(text: str) -> str:
    """Return a wrapped line of a list."""
    return textwrap.fill(
        " ".join(text.split()),
        width=WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def table(rows: Sequence[Sequence[str]], *, align: str) -> str:
    """Return columns; `align` has ``l`` or ``r`` for each."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, align, strict=True)
        ).rstrip()
        for row in rows
    )


def microseconds(time_s: float) -> str:
    """Return a time in microseconds, with a decimal where it is short."""
    value = time_s / MICRO
    return f"{value:.1f}" if value < _SHORT else f"{value:.0f}"
