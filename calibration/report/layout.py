"""Plain text for a terminal of 80 columns: tables, labelled lines, numbers."""

import math
from collections.abc import Sequence

from specmodel.question import Estimate

WIDTH = 80
"""Columns of the text. [characters]"""

LARGEST_PLAIN = 1e7
"""Number from which on no digits are written out."""

_UNITS = ("%", "ms", "tokens/s")


def number(value: float, digits: int = 2) -> str:
    """Return a number for a table; ``-`` where there is none, powers of ten where it is beyond any.

    Examples
    --------
    >>> number(2.2965), number(float("nan")), number(1234.5), number(float("inf")), number(3e9)
    ('2.30', '-', '1234', 'inf', '3.0e+09')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    if abs(value) >= LARGEST_PLAIN:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """Return the bounds of an estimate.

    Examples
    --------
    >>> interval(Estimate(median=1.2, low=1.06, high=1.391))
    '1.06 to 1.39'
    """
    return f"{number(estimate.low, digits)} to {number(estimate.high, digits)}"


def percent(share: float, digits: int = 0) -> str:
    """Return a share in per cent; what is not certain never rounds to 0 or 100.

    Examples
    --------
    >>> percent(0.228), percent(0.99999), percent(1.0)
    ('23 %', '> 99 %', '100 %')
    """
    text = f"{share:.{digits}%}"[:-1]
    if float(text) == 100 and share < 1:
        return f"> {100 - 10**-digits:.{digits}f} %"
    if float(text) == 0 and share > 0:
        return f"< {10**-digits:.{digits}f} %"
    return f"{text} %"


def probability(value: float) -> str:
    """Return a probability in per cent; nothing is certain.

    Examples
    --------
    >>> probability(1.0), probability(0.72), probability(0.0)
    ('> 99 %', '72 %', '< 1 %')
    """
    return percent(min(max(value, 1e-12), 1.0 - 1e-12))


def wrapped(text: str, *, indent: int = 0, first: str = "", width: int = WIDTH) -> str:
    """Return a text in lines that fit, with a first piece before it.

    Examples
    --------
    >>> print(wrapped("a round costs more than a step", first="note  ", indent=6, width=20))
    note  a round costs
          more than a
          step
    """
    lines: list[str] = []
    line = first
    for word in _words(text):
        gap = "" if not line or line.endswith(" ") else " "
        if len(line) + len(gap) + len(word) > width and line.strip():
            lines.append(line.rstrip())
            line, gap = " " * indent, ""
        line += gap + word
    return "\n".join([*lines, line.rstrip()])


def _words(text: str) -> list[str]:
    """Words of a text; a unit stays with its number."""
    words: list[str] = []
    for word in text.split():
        if words and word.startswith(_UNITS):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def labelled(label: str, text: str, *, column: int = 16) -> str:
    """Return a label and a wrapped text beside it.

    Examples
    --------
    >>> print(labelled("read", "3 rows", column=8))
    read    3 rows
    """
    return wrapped(text, first=label.ljust(column), indent=column)


def fits(text: str) -> bool:
    """Return whether every line of a text keeps to the width.

    Examples
    --------
    >>> fits("a line"), fits("-" * 81)
    (True, False)
    """
    return all(len(line) <= WIDTH for line in text.splitlines())


def table(rows: Sequence[Sequence[str]], *, align: str, gap: int = 2) -> str:
    """Return columns; `align` has ``l`` or ``r`` for each.

    Examples
    --------
    >>> print(table([["depth", "tokens/s"], ["1", "98.0"]], align="rl"))
    depth  tokens/s
        1  98.0
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    lines = [
        (" " * gap)
        .join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, align, strict=True)
        )
        .rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def long_table(rows: Sequence[Sequence[str]], *, align: str, longest: int) -> str:
    """Return columns, a first cell longer than `longest` on a line of its own.

    Examples
    --------
    >>> print(long_table([["change", "x"], ["a long change", "1"], ["b", "2"]], align="lr", longest=8))
    change  x
    a long change
            1
    b       2
    """
    names = [row[0] if len(row[0]) > longest else "" for row in rows]
    cells = [["" if name else row[0], *row[1:]] for name, row in zip(names, rows, strict=True)]
    lines = table(cells, align=align).splitlines()
    pairs = zip(names, lines, strict=True)
    return "\n".join(f"{name}\n{line}" if name else line for name, line in pairs)
