"""Numbers as people write them: decimal comma, grouped thousands, percent signs, lists."""

import math
import re
from collections.abc import Iterable

from specmodel.units import PERCENT

# What stands for an empty cell, in lower case. ``nan`` does not: it is a result gone wrong.
MISSING = frozenset({"", "-", "\N{EN DASH}", "\N{EM DASH}", "n/a", "na"})

_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_SPACES = re.compile("[ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]")
_COMMA_GROUPS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_POINT_GROUPS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+(?:,\d*)?", re.ASCII)
_SPACE_GROUPS = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:[.,]\d*)?", re.ASCII)
_ONE_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?%?", re.ASCII)
_ONE_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?%?", re.ASCII)
_ONE_GROUP = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)  # or three decimals


class NumeralError(ValueError):
    """A cell is not a usable number."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def is_missing(cell: str) -> bool:
    """Return whether a cell counts as empty."""
    return cell.strip().lower() in MISSING


def parse_number(cell: str, *, decimal_comma: bool = False) -> float:
    """Return the number that a cell holds; ``%`` divides by 100."""
    text = cell.strip().replace("\N{MINUS SIGN}", "-")
    percent = text.endswith("%")
    number = _with_point(text[:-1].rstrip() if percent else text, decimal_comma=decimal_comma)
    if _NOT_FINITE.fullmatch(number):
        raise NumeralError("not_finite", f"{_shown(cell)} is not a finite number")
    if not _PLAIN.fullmatch(number):
        raise NumeralError("not_a_number", _not_a_number(cell, decimal_comma=decimal_comma))
    value = float(number)
    if not math.isfinite(value):
        raise NumeralError("not_finite", f"{_shown(cell)} is too large for a number")
    return value * PERCENT if percent else value


def parse_list(cell: str, *, decimal_comma: bool = False) -> tuple[float, ...]:
    """Return the numbers of a list, separated by semicolons.

    Brackets around the list are ignored. Where the point is the decimal sign, commas separate
    as well, for lists that were copied from a program's output.
    """
    text = cell.strip()
    if text[:1] + text[-1:] in {"[]", "()", "{}"}:
        text = text[1:-1]
    separator = ";" if ";" in text or decimal_comma else ","
    parts = text.split(separator)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return tuple(parse_number(part, decimal_comma=decimal_comma) for part in parts)


def uses_decimal_comma(cells: Iterable[str]) -> bool:
    """Return whether the comma is the decimal sign in these number cells.

    Only to be asked where the comma does not separate columns. ``2,59`` and ``0,502`` can only
    be decimal. ``2,593`` can be either: it is decimal unless another cell shows that the point
    is (``2.59``) or that the comma groups (``1,234.5``).
    """
    either = point_is_decimal = False
    for cell in cells:
        for part in cell.split(";"):
            number = part.strip()
            if _ONE_GROUP.fullmatch(number):
                either = either or "," in number
            elif _ONE_COMMA.fullmatch(number) or (
                "," in number and _POINT_GROUPS.fullmatch(number)
            ):
                return True
            elif _ONE_POINT.fullmatch(number) or _COMMA_GROUPS.fullmatch(number):
                point_is_decimal = True
    return either and not point_is_decimal


def _with_point(number: str, *, decimal_comma: bool) -> str:
    """Return a numeral with a decimal point and no thousands; ``""`` where the signs are wrong."""
    if not decimal_comma and _PLAIN.fullmatch(number):
        return number
    spaced = _SPACES.sub(" ", number)
    if _SPACE_GROUPS.fullmatch(spaced):
        number = spaced.replace(" ", "")
    if not decimal_comma:
        return number.replace(",", "") if _COMMA_GROUPS.fullmatch(number) else number
    if _POINT_GROUPS.fullmatch(number):
        number = number.replace(".", "")
    return "" if "." in number else number.replace(",", ".", 1)


def _shown(cell: str, most: int = 40) -> str:
    """Return a cell in quotes, cut where it is long."""
    text = cell.strip()
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _not_a_number(cell: str, *, decimal_comma: bool) -> str:
    """Return the message for a cell that is no number, with a hint where the slip is plain."""
    text = cell.strip()
    if not text:
        return "an element of the list is empty"
    if decimal_comma and _ONE_POINT.fullmatch(text):
        return (
            f"{_shown(cell)} has a decimal point, but the comma is the decimal sign of this file; "
            "write one of them throughout"
        )
    if not decimal_comma and _ONE_COMMA.fullmatch(text):
        return (
            f"{_shown(cell)} has a decimal comma, but the point is the decimal sign of this file; "
            "write points, or separate the columns with semicolons and write commas throughout"
        )
    return f"{_shown(cell)} is not a number"
