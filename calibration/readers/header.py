"""What the header of a file means: names without case, blanks and units, matched to columns."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calibration.readers.columns import COLUMNS, SPEEDUP, Column, Kind, scope_of
from specmodel.units import KILO, MICRO, MILLI, PERCENT

_UNIT = re.compile(r"\s*[\(\[]([^()\[\]]*)[\)\]]\s*$")
_BLANKS = re.compile(r"[\s\-]+")
_TIME_UNITS = {"ms": 1.0, "s": 1 / MILLI, "sec": 1 / MILLI, "us": MICRO / MILLI}
_TIME_UNITS["\N{MICRO SIGN}s"] = _TIME_UNITS["\N{GREEK SMALL LETTER MU}s"] = MICRO / MILLI
_NOT_TOKENS = ("req", "token/req", "k", "ktok", "ktokens", "kb", "mb")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumn:
    """One column of a file."""

    index: int  # its place in the row
    written: str  # its name as the file writes it
    column: Column | None  # what it means, None where that is not known
    factor: float = 1.0  # from the unit of the file to the unit of the column
    scope: str = ""  # what the throughput is counted over, where the unit says it (``tok/s/user``)


_Meaning = tuple[Column, int, float]  # rank: 0 is the canonical name


def _meanings() -> dict[str, _Meaning]:
    """Return what every known name means; no name may mean two things."""
    known: dict[str, _Meaning] = {}
    for column in (*COLUMNS, SPEEDUP):
        names = [(name, 1.0) for name in (column.name, *column.aliases)]
        for rank, (name, factor) in enumerate([*names, *column.scaled]):
            if known.setdefault(name, (column, rank, factor))[0] is not column:
                raise AssertionError(f"{name} names {known[name][0].name} and {column.name}")
    return known


_MEANINGS: Final = _meanings()


def normalised_name(written: str) -> str:
    """Return a column name in lower case, with underscores and without a unit in brackets."""
    return _BLANKS.sub("_", _UNIT.sub("", written).strip()).casefold()


def canonical_name(written: str) -> str | None:
    """Return the canonical column that a name stands for, None where it is not known."""
    found = _MEANINGS.get(normalised_name(written))
    return found[0].name if found else None


def closest_name(written: str) -> str | None:
    """Return the known name that is spelled most like an unknown one, None where none is close."""
    close = difflib.get_close_matches(normalised_name(written), _MEANINGS, n=1, cutoff=0.8)
    return close[0] if close else None


def match_header(names: Sequence[str]) -> tuple[HeaderColumn, ...]:
    """Return what the columns of a file mean; columns without a name are left out.

    Where two columns mean the same, the one with the better name has it (the canonical name,
    then the aliases in their order, then the first), and the other counts as not known.
    """
    best: dict[str, tuple[int, int]] = {}
    read: list[HeaderColumn] = []
    for index, written in enumerate(names):
        if not written.strip():
            continue
        found = _MEANINGS.get(normalised_name(written))
        unit = _read_unit(written, found[0]) if found else None
        if found is None or unit is None:
            read.append(HeaderColumn(index=index, written=written.strip(), column=None))
            continue
        column, rank, factor = found
        best[column.name] = min(best.get(column.name, (rank, index)), (rank, index))
        read.append(
            HeaderColumn(
                index=index,
                written=written.strip(),
                column=column,
                factor=factor * unit[0],
                scope=unit[1],
            )
        )
    return tuple(
        c
        if c.column is None or best[c.column.name][1] == c.index
        else HeaderColumn(index=c.index, written=c.written, column=None)
        for c in read
    )


def _read_unit(written: str, column: Column) -> tuple[float, str] | None:
    """Return factor and scope of a unit in brackets, None where the column cannot have it."""
    found = _UNIT.search(written)
    unit = found[1].strip().casefold().replace(" ", "") if found else ""
    if column.name.endswith("_ms") and unit:
        factor = _TIME_UNITS.get(unit)
        return None if factor is None else (factor, "")
    if unit == "%" and column.kind is not Kind.TEXT:
        return (PERCENT, "") if column.share else None
    if column.name.endswith("tokens_per_s"):
        scope = scope_of(found[1] if found else "")
        if unit.startswith("req") or (scope is None and unit.count("/") > 1):  # tok/s/node
            return None
        said = scope if scope in {"per_user", "per_gpu"} else ""
        return KILO if unit.startswith("k") else 1.0, said
    if column.name.endswith("tokens") and unit in _NOT_TOKENS:
        return None
    return 1.0, ""
