"""One cell of a table: its value in the unit of its column, or why it is none."""

import math
import re
from typing import NamedTuple

from calibration.readers.columns import RATE, SCOPES, TIME_UNITS, Column, Kind, scope_of
from calibration.readers.numerals import NumeralError, parse_list, parse_number
from calibration.readers.reading import Cell
from specmodel.errors import LeftOut
from specmodel.units import KIBI, KILO, PERCENT

_LARGEST = 1e30  # beyond it nothing was measured, and products of three would overflow

_NUMBER = r"[+-]?(?:\d[\d.,'\u202f ]*\d|\d|\.\d+)(?:[eE][+-]?\d+)?"
_UNIT = r"(?:%|\u00d7|[^\W\d_][^\d\s()]*|)"
_DRESSED = re.compile(
    rf"[~\u2248]?\s*(?P<number>{_NUMBER})\s*(?P<unit>{_UNIT})"
    rf"(?:\s*(?:\u00b1|\+/-)\s*(?P<spread>{_NUMBER})\s*(?P<of_spread>{_UNIT}))?"
    r"\s*(?:\((?P<remark>[^()]*)\))?\s*"
)
_REPEATS = re.compile(r"\s+/\s+|(?<=\d)/(?=\d)")
_FASTER = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>x|\u00d7|%|\u500d)", re.IGNORECASE)
_MOST_CHARACTERS = 80


class Dressed(NamedTuple):
    """A number as people write it in a table."""

    number: str  # the number alone
    unit: str = ""  # behind it, in lower case
    spread: str = ""  # behind a plus-minus sign
    remark: str = ""  # in brackets behind it


def dressed(written: str) -> Dressed | None:
    """Return what a cell says around its number, None where it is something else."""
    text = written.replace("\N{MINUS SIGN}", "-")
    found = _DRESSED.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if found is None:
        return None
    spread = (found["spread"] or "") + ("%" if found["of_spread"] == "%" else "")
    remark = (found["remark"] or "").strip()
    return Dressed(found["number"], found["unit"].casefold(), spread, remark)


def unit_family(written: str) -> str:
    """Return whether a cell has a unit of a ``rate`` or a ``time``, or is a bare ``number``; else empty."""
    found = dressed(written)
    if found is None or not found.unit:
        return "number" if found else ""
    return "time" if found.unit in TIME_UNITS else "rate" if RATE.search(found.unit) else "other"


def repeats(written: str) -> tuple[str, ...]:
    """Return the numbers of several runs in one cell, ``90 / 92``; one where it holds no more."""
    parts = _REPEATS.split(written)
    return tuple(parts) if len(parts) > 1 and all(map(dressed, parts)) else (written,)


def faster(written: str, *, decimal_comma: bool = False) -> float | None:
    """Return the speed-up that a text says, ``1.58x`` or ``+58 %``; None where it says none."""
    text = written.strip().replace("\N{MINUS SIGN}", "-")
    found = _FASTER.fullmatch(text)
    if found is None or (found["unit"] == "%" and text[0] not in "+-"):
        return None
    try:
        value = parse_number(found["number"], decimal_comma=decimal_comma)
    except NumeralError:
        return None
    return 1 + value * PERCENT if found["unit"] == "%" else value


def read_cell(
    written: str, column: Column, factor: float = 1.0, *, decimal_comma: bool = False
) -> Cell | LeftOut:
    """Return the value of a cell that is not empty, or why it is none."""
    if column.kind is Kind.TEXT:
        return _read_scope(written) if column.name == "throughput_scope" else written
    number = written
    found = dressed(written) if column.kind is not Kind.LIST else None
    ratio = faster(written, decimal_comma=decimal_comma) if column.name == "speedup" else None
    if column.name == "gain" and written.rstrip()[-1:] in {"x", "\N{MULTIPLICATION SIGN}"}:
        ratio = (faster(written, decimal_comma=decimal_comma) or 0.0) - 1
    if ratio is not None:
        number, decimal_comma = str(ratio), False
    elif (
        found is not None
        and found.unit == "k"
        and column.name.endswith(("context_tokens", "output_tokens"))
    ):
        number = found.number
        factor = KIBI if number.isdigit() and int(number).bit_count() == 1 else KILO  # 8k is 8192
    elif found is not None and found.unit not in {"", "%"}:
        own = _unit_factor(found.unit, column)
        number, factor = (found.number, own) if own is not None else (written, factor)
    elif found is not None and (found.spread or found.remark or not written[:1].isdigit()):
        number = found.number + found.unit
    if factor == PERCENT:  # said by the header; a sign in the cell says the same
        number = number.replace("%", "")
    if "%" in number and not column.share:
        means = f"{column.name} is no share of anything; write the number itself"
        if column.name == "speedup":
            means = "it can be that much of the baseline or that much more; write 1.2x or +20 %"
        return LeftOut(
            code="not_a_number",
            column=column.name,
            message=f"{written!r} has a percent sign, but {means}",
        )
    try:
        if column.kind is Kind.LIST:
            values = parse_list(number, decimal_comma=decimal_comma)
        else:
            values = (parse_number(number, decimal_comma=decimal_comma),)
    except NumeralError as error:
        return LeftOut(code=error.code, column=column.name, message=error.message)
    values = tuple(value * factor for value in values)
    refusal = bounded(written, column, values)
    if refusal is not None:
        return refusal
    return values if column.kind is Kind.LIST else values[0]


def _unit_factor(unit: str, column: Column) -> float | None:
    """Return the factor from a unit in a cell to that of its column, None where it cannot have it."""
    rate = RATE.search(unit)
    if column.name.endswith("_ms"):
        return TIME_UNITS.get(unit)
    if column.name.endswith("_per_s"):
        return (KILO if rate["kilo"] else 1.0) if rate else None
    return 1.0 if unit.startswith("tok") and not rate else None


def _read_scope(written: str) -> str | LeftOut:
    """Return what a throughput is counted over."""
    scope = scope_of(written)
    return scope or LeftOut(
        code="unknown_scope",
        column="throughput_scope",
        message=f"{written!r} is not known; write {', '.join(SCOPES[:-2])} or {SCOPES[-2]}, or "
        "leave it empty where the throughput is that of the whole batch",
    )


def bounded(written: str, column: Column, values: tuple[float, ...]) -> LeftOut | None:
    """Return why a column cannot have these numbers, None where it can."""
    least, most = min(values), max(values)
    code = message = ""
    if not all(map(math.isfinite, values)):
        code, message = "not_finite", "is not a finite number"
    elif most > _LARGEST:
        code, message = "not_finite", "is too large for a measurement"
    elif least < 0 or (least < 1 / _LARGEST and not column.zero):
        allowed = "zero or above" if column.zero else "above zero"
        code, message = "not_positive", f"must be {allowed}"
    elif column.kind is Kind.WHOLE and not values[0].is_integer():
        code, message = "not_a_number", "must be a whole number"
    elif most > column.most:
        code, message = "out_of_range", f"is above {column.most:g}, the most that is believed"
    elif 0 < least < column.least:
        code, message = "out_of_range", f"is below {column.least:g}, the least that can be"
    return (
        LeftOut(code=code, column=column.name, message=f"{written!r} {message}") if code else None
    )
