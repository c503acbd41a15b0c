"""Rows of an nccl-tests table: which columns each epoch prints, and what stands in them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibration.allreduce.collective_runs import (
    MOST_BYTES,
    MOST_WRONG,
    CollectiveRow,
    Half,
    is_possible_time,
)

_ALIASES: Final = {
    "(b)": "size",
    "bytes": "size",
    "n": "count",
    "op": "redop",
    "cputime": "time",
    "#wrong": "wrong",
    "#wrongs": "wrong",
    "res": "error",
    "delta": "error",
}
_LEADING = ("size", "count", "type", "redop", "root")
_HALF = ("time", "algbw", "busbw")
_CHECKS = ("wrong", "error")
_EXTRA = frozenset({"i_min", "i_max", "i_p99", "i_cv%", "side_work", "copybw"})
_KNOWN = frozenset({*_LEADING, *_HALF, *_CHECKS, *_EXTRA})
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")
_SIZE = re.compile(r"\d[\d_]*(?:,\d{3})*", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_A_NUMBER = frozenset({"n/a", "nan", "-nan", "inf", "-inf", "x"})
_NOTHING_LIKE = frozenset({"none", "-", "n/a"})
_TOLERANCE: Final = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
_LOOSEST = 1e-5

# Columns of a table that was cut down to what people quote.
SHORT: Final = ("size", "time", "algbw", "busbw")


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a table."""

    columns: tuple[str, ...]  # in the order of the table
    # character column at which the time of the second half ends; 0 where not known
    second_place: int = 0
    legacy: bool = False  # whether the table is one of 2017, whose times may be milliseconds


# From 2.13 (2022-08).
WITH_ROOT: Final = Layout(columns=(*_LEADING, *(*_HALF, "wrong") * 2))

# From 2019-04 to 2022-07.
WITHOUT_ROOT: Final = Layout(columns=(*_LEADING[:4], *(*_HALF, "error") * 2))

# From 2.19 with ``-I 1``.
WITH_SPREAD: Final = Layout(
    columns=(*_LEADING, *(*_HALF, "wrong", "i_min", "i_max", "i_p99", "i_cv%") * 2)
)

_BY_NUMBER: Final = {13: WITH_ROOT, 12: WITHOUT_ROOT, 21: WITH_SPREAD, 4: Layout(columns=SHORT)}


def layout_of_head(text: str) -> Layout | None:
    """Return the columns of a line that names them; None for any other line."""
    tokens = text.strip().lstrip("#").split()
    if len(tokens) > 40:
        return None
    names = [_ALIASES.get(token.lower(), token.lower()) for token in tokens]
    if not {"size", "time"} <= set(names) or not {"algbw", "busbw"} & set(names):
        return None
    if set(names) - _KNOWN - {"timestamp"}:
        return None
    times = [place.end() for place in re.finditer(r"\b(?:cpu)?time\b", text)]
    return Layout(
        columns=tuple(name for name in names if name != "timestamp"),
        second_place=times[1] if len(times) > 1 else 0,
        legacy=tokens[0].lower() == "bytes",
    )


def starts_row(text: str) -> bool:
    """Return whether a line begins like a row: with a size."""
    head = text.split(maxsplit=1)
    return bool(head) and _SIZE.fullmatch(head[0]) is not None


def continues_row(text: str) -> bool:
    """Return whether a line holds nothing but numbers of a row that began before it."""
    tokens = text.split()
    return bool(tokens) and all(_is_value(token) for token in tokens)


class NoRowError(ValueError):
    """A line is no row; the message is the reason."""


def read_row(line: int, text: str, layout: Layout | None) -> CollectiveRow:
    """Return a row, with columns as its table or its epoch has them."""
    tokens = _without_timestamp(text.split())
    known = layout if layout is not None else _guessed(tokens)
    if known is None:
        raise NoRowError("truncated_row")
    columns = known.columns
    if len(tokens) > len(columns):
        raise NoRowError("malformed_row")
    first = columns.index("time")
    per_half = (len(columns) - first) // columns.count("time")
    missing = len(columns) - len(tokens)
    only_second = missing == per_half and _ends_late(text, known, tokens[first:])
    if missing and not only_second:
        raise NoRowError("truncated_row")
    row = _leading(line, dict(zip(columns[:first], tokens, strict=False)))
    halves = [tokens[place : place + per_half] for place in range(first, len(tokens), per_half)]
    names = columns[first : first + per_half]
    found = [_half(row, dict(zip(names, values, strict=True))) for values in halves]
    if all(half is None for half in found):
        raise NoRowError("not_measured")
    if only_second:
        return replace(row, in_place=found[0])
    return replace(row, out_of_place=found[0], in_place=found[1] if len(found) > 1 else None)


def printed_ratio(text: str, layout: Layout | None) -> float | None:
    """Return bus over algorithm bandwidth as a row prints them; None where they are too coarse."""
    tokens = _without_timestamp(text.split())
    known = layout if layout is not None else _guessed(tokens)
    if known is None or not {"algbw", "busbw"} <= set(known.columns):
        return None
    try:
        algorithm = _number(tokens[known.columns.index("algbw")])
        bus = _number(tokens[known.columns.index("busbw")])
    except (IndexError, NoRowError):
        return None
    return None if algorithm is None or bus is None or algorithm < 1.0 else bus / algorithm


def _guessed(tokens: Sequence[str]) -> Layout | None:
    """Return the layout that rows of a number of fields have; None for an unknown number."""
    found = _BY_NUMBER.get(len(tokens))
    if found is WITHOUT_ROOT and re.fullmatch(r"-?\d+", tokens[4]) and "." not in tokens[4]:
        return WITH_ROOT  # cut off inside its last field
    return found


def _without_timestamp(tokens: list[str]) -> list[str]:
    """Return the fields without a date and a time at their end."""
    if len(tokens) > 2 and _DATE.fullmatch(tokens[-2]) and _CLOCK.fullmatch(tokens[-1]):
        return tokens[:-2]
    return tokens


def _ends_late(text: str, layout: Layout, values: Sequence[str]) -> bool:
    """Return whether the only half of a row stands where the second one belongs."""
    if not layout.second_place or not values:
        return False
    end = text.find(values[0], _past(text, len(text.split()) - len(values))) + len(values[0])
    return end > layout.second_place - len("time")


def _past(text: str, number: int) -> int:
    """Return where a number of fields ends."""
    place = 0
    for found in list(re.finditer(r"\S+", text))[:number]:
        place = found.end()
    return place


def _leading(line: int, cells: dict[str, str]) -> CollectiveRow:
    """Return what stands before the halves."""
    size = _whole(cells["size"])
    if size is None or size > MOST_BYTES:
        raise NoRowError("malformed_row")
    root = cells.get("root", "-1")
    if not re.fullmatch(r"-?\d{1,9}", root, re.ASCII):
        raise NoRowError("malformed_row")
    redop = cells.get("redop")
    return CollectiveRow(
        line=line,
        size_bytes=size,
        count=_whole(cells["count"]) if "count" in cells else None,
        dtype=cells.get("type"),
        redop=None if redop is None or redop.lower() in _NOTHING_LIKE else redop,
        root=int(root) if int(root) >= 0 else None,
    )


def _half(row: CollectiveRow, cells: dict[str, str]) -> Half | None:
    """Return half a row; None where it was not measured."""
    time_us = _number(cells["time"])
    bandwidths = [_number(cells[name]) for name in ("algbw", "busbw") if name in cells]
    checked = _number(cells["wrong"]) if "wrong" in cells else None
    error = _number(cells["error"]) if "error" in cells else None
    if time_us is None:
        return None
    if time_us <= 0 or any(value is not None and value < 0 for value in bandwidths):
        raise NoRowError("not_positive")
    if not is_possible_time(time_us):
        raise NoRowError("malformed_row")
    if error is not None:  # a relative error, no count: one element at least was wrong beyond it
        checked = float(error > _TOLERANCE.get(row.dtype or "", _LOOSEST))
    if checked is not None and not 0 <= checked <= MOST_WRONG:
        raise NoRowError("malformed_row")
    return Half(time_us=time_us, num_wrong=None if checked is None else int(checked))


def _number(token: str) -> float | None:
    """Return a number, None for what stands for none."""
    if token.lower() in _NOT_A_NUMBER:
        return None
    if token.count(",") == 1 and "." not in token:
        token = token.replace(",", ".")  # the decimal sign of the locale
    if len(token) > 40 or not _NUMBER.fullmatch(token):
        raise NoRowError("malformed_row")
    value = float(token)
    if not math.isfinite(value):
        raise NoRowError("malformed_row")
    return value


def _whole(token: str) -> int | None:
    """Return a whole number, None where there is none."""
    if len(token) > 25 or not _SIZE.fullmatch(token):
        return None
    return int(token.replace("_", "").replace(",", ""))


def _is_value(token: str) -> bool:
    """Return whether a field is a number or stands for one."""
    return token.lower() in _NOT_A_NUMBER or bool(_NUMBER.fullmatch(token.replace(",", ".", 1)))
