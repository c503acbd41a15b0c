"""Plain text for a terminal of 80 columns: numbers, labelled lines, tables."""

import math
import re
from collections.abc import Sequence

from specmodel.question import Estimate
from specmodel.units import MICRO

WIDTH = 80
"""Columns of the text. [characters]"""

LARGEST_PLAIN = 1e7
"""Number from which on no digits are written out."""

_BETWEEN_WORDS = re.compile(" (?!%|ms|tokens/s)")  # a unit stays with its number
_SHORT_US = 20


def number(value: float, digits: int = 2) -> str:
    """A number for a table; ``-`` where there is none, powers of ten where it is beyond any.

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


def microseconds(time_s: float) -> str:
    """A time in microseconds, with a decimal where it is short."""
    value = time_s / MICRO
    return f"{value:.1f}" if value < _SHORT_US else f"{value:.0f}"


def interval(estimate: Estimate, digits: int = 2, *, joint: str = " to ") -> str:
    """Bounds of an estimate."""
    return f"{number(estimate.low, digits)}{joint}{number(estimate.high, digits)}"


def spread(estimate: Estimate, digits: int = 2, *, joint: str = "-", unit: str = "") -> str:
    """Median and bounds of an estimate in a narrow column.

    Examples
    --------
    >>> spread(Estimate(median=1.2, low=1.06, high=1.391))
    '1.20 (1.06-1.39)'
    """
    return f"{number(estimate.median, digits)}{unit} ({interval(estimate, digits, joint=joint)})"


def with_interval(estimate: Estimate, digits: int = 2) -> str:
    """Median and bounds of an estimate in a sentence; the median alone where that is all.

    Examples
    --------
    >>> with_interval(Estimate(median=1.2, low=1.06, high=1.391))
    '1.20 (90 %: 1.06 to 1.39)'
    """
    text = number(estimate.median, digits)
    return text if estimate.low == estimate.high else f"{text} (90 %: {interval(estimate, digits)})"


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent; what is not certain never rounds to 0 or 100.

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
    """A probability in per cent; nothing is certain."""
    return percent(min(max(value, 1e-12), 1.0 - 1e-12))


def plural(count: int, word: str) -> str:
    """A count and its word."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def wrapped(text: str, *, indent: int = 0, first: str = "", width: int = WIDTH) -> str:
    """A text in lines that fit, with a first piece before it; a unit stays with its number.

    Examples
    --------
    >>> print(wrapped("a round costs more than a step", first="note  ", indent=6, width=20))
    note  a round costs
          more than a
          step
    """
    lines: list[str] = []
    line = first
    for word in _BETWEEN_WORDS.split(" ".join(text.split())):
        gap = "" if not line or line.endswith(" ") else " "
        if len(line) + len(gap) + len(word) > width and line.strip():
            lines.append(line.rstrip())
            line, gap = " " * indent, ""
        line += gap + word
    return "\n".join([*lines, line.rstrip()])


def labelled(label: str, text: str, *, column: int = 16) -> str:
    """A label and a wrapped text beside it.

    Examples
    --------
    >>> print(labelled("read", "3 rows", column=8))
    read    3 rows
    """
    return wrapped(text, first=label.ljust(column), indent=column)


def listed(label: str, lines: Sequence[str]) -> str:
    """A label beside several sentences, each on its own line."""
    return "\n".join(labelled("" if index else label, line) for index, line in enumerate(lines))


def noted(text: str) -> str:
    """A wrapped line of a list."""
    return wrapped(text, first="- ", indent=2)


def fits(text: str) -> bool:
    """Whether every line of a text keeps to the width."""
    return all(len(line) <= WIDTH for line in text.splitlines())


def table(rows: Sequence[Sequence[str]], *, align: str, gap: int = 2) -> str:
    """Columns; `align` has ``l`` or ``r`` for each.

    Examples
    --------
    >>> print(table([["depth", "tokens/s"], ["1", "98.0"]], align="rl"))
    depth  tokens/s
        1  98.0
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    lines = []
    for row in rows:
        columns = zip(row, widths, align, strict=True)
        cells = [cell.rjust(w) if side == "r" else cell.ljust(w) for cell, w, side in columns]
        lines.append((" " * gap).join(cells).rstrip())
    return "\n".join(lines)


def long_table(rows: Sequence[Sequence[str]], *, align: str, longest: int) -> str:
    """Columns, a first cell longer than `longest` on a line of its own.

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
