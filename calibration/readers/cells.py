"""One cell of a table: its value in the unit of its column, or why it is none."""

import math

from calibration.readers.columns import SCOPES, SPEEDUP, Column, Kind, scope_of
from calibration.readers.numerals import NumeralError, parse_list, parse_number
from calibration.readers.reading import Cell
from specmodel.errors import LeftOut
from specmodel.units import PERCENT

_LARGEST = 1e30  # beyond it nothing was measured, and products of three would overflow


def read_cell(
    written: str, column: Column, factor: float = 1.0, *, decimal_comma: bool = False
) -> Cell | LeftOut:
    """Return the value of a cell that is not empty, or why it is none."""
    if column.kind is Kind.TEXT:
        return _read_scope(written) if column.name == "throughput_scope" else written
    if column is SPEEDUP:
        written = written.rstrip("x\N{MULTIPLICATION SIGN} ")
    if factor == PERCENT:  # said by the header; a sign in the cell says the same
        written = written.replace("%", "")
    if "%" in written and not column.share:
        return LeftOut(
            code="not_a_number",
            column=column.name,
            message=f"{written!r} has a percent sign, but {column.name} is no share of anything; "
            "write the number itself",
        )
    try:
        if column.kind is Kind.LIST:
            values = parse_list(written, decimal_comma=decimal_comma)
        else:
            values = (parse_number(written, decimal_comma=decimal_comma),)
    except NumeralError as error:
        return LeftOut(code=error.code, column=column.name, message=error.message)
    values = tuple(value * factor for value in values)
    refusal = bounded(written, column, values)
    if refusal is not None:
        return refusal
    return values if column.kind is Kind.LIST else values[0]


def _read_scope(written: str) -> str | LeftOut:
    """Return what a throughput is counted over."""
    scope = scope_of(written)
    return scope or LeftOut(
        code="unknown_scope",
        column="throughput_scope",
        message=f"{written!r} is not known; write {', '.join(SCOPES[:-1])} or {SCOPES[-1]}, or "
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
