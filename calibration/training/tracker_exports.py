"""Exports of trackers: a column a key, a row a value, or a file a key.

Format S6 (S7 for block drafters) of speculators, `TRACKER_FORMAT` of others, training_logs.md sections
2, 3, 5.3 and 5.4.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from calibration.training.dict_records import finest, list_numbers
from calibration.training.number_text import half_unit, printed_number
from calibration.training.records import MISSING, Array, Kind, RawLog
from calibration.training.scalar_series import ScalarSeries
from calibration.training.speculators_keys import (
    BLOCK_FAMILY,
    CONSOLE_ROUNDING,
    EAGLE3_FAMILY,
    KeyPlan,
)
from calibration.training.tracker_keys import LISTED, MEASURED, TRACKER_FORMAT, tracker_plans
from calibration.training.tracker_tables import (
    LongColumns,
    delimiter_of,
    key_of_scalar_file,
    long_columns,
    run_and_key,
    step_column,
)

_MOST_ROWS: Final = 4096
_MOST_NAMES: Final = 4096
_ROWS_FOR_ROUNDING: Final = 64
_SHARED_KEYS = ("epoch", "lr", "learning_rate", "train/", "val/", "eval/", "test/")
_LAYOUTS: Final = {EAGLE3_FAMILY: "S6", BLOCK_FAMILY: "S7"}


@dataclass(slots=True)
class TrackerExports:
    """Reads exports of trackers into a log."""

    raw: RawLog  # what records are added to
    # the one that the user names; decides where several trainers log the keys of an export
    family: str | None = None
    _scalars: ScalarSeries = field(init=False, default_factory=ScalarSeries)
    _scalar_rounding: float | None = field(init=False, default=None)

    def feed(self, path: Path, lines: Iterable[str], *, first_line: int = 1) -> bool:
        """Take one file."""
        source = iter(lines)
        first = next((line for line in source if line.strip()), "")
        first = first.removeprefix("\N{BYTE ORDER MARK}")
        delimiter = delimiter_of(first)
        header = next(_rows([first], delimiter), (0, []))[1]
        rows = ((number + first_line, row) for number, row in _rows(source, delimiter))
        key = key_of_scalar_file(path.name, header)
        if key is not None:
            names = [name.strip().casefold() for name in header]
            place = LongColumns(name=-1, step=names.index("step"), value=names.index("value"))
            return self._long(place, rows, key)
        found = long_columns(header)
        if found is not None:
            return self._long(found, rows, None)
        return self._wide(header, rows)

    def finish(self) -> None:
        """Add the records of what has one value a row: they may be spread over several files."""
        if self._scalars.names:
            self._add_scalars()
            self._scalars = ScalarSeries()

    def _wide(self, header: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> bool:
        """Take a table with a column for each key."""
        tables = _wide_tables(header, self.family)
        if not tables:
            return False
        self.raw.runs |= {table.run for table in tables if table.run}
        for line, row in rows:
            if len(row) < len(header):
                self.raw.warn("truncated-record", line)
                continue
            for table in tables:
                table.take(line, row)
                if len(table.rows) >= _MOST_ROWS:
                    self._flush(table)
        for table in tables:
            self._flush(table)
        return True

    def _flush(self, table: "_WideTable") -> None:
        """Add the rows that a table has gathered."""
        if table.rows:
            columns = table.taken()
            self._store(table.plan, columns, len(columns["line"]), table.rounding, table.run)

    def _long(
        self, place: LongColumns, rows: Iterator[tuple[int, list[str]]], key: str | None
    ) -> bool:
        """Take a table with one value a row."""
        last = max(place.name, place.step, place.value)
        taken = False
        for number, row in rows:
            if len(row) <= last:
                self.raw.warn("truncated-record", number)
                continue
            name = key if key is not None else row[place.name].strip()
            measured = bool(tracker_plans((name,), self.family))
            step = printed_number(row[place.step])
            if step is None or not math.isfinite(step):
                continue
            if not (measured or name.startswith(_SHARED_KEYS)):
                continue
            taken |= measured
            if len(self._scalars.names) < _MOST_NAMES:
                for key_of_depth, value in _scalars_of(name, row[place.value]):
                    self._scalars.add(key_of_depth, step, value)
            unit = half_unit(row[place.value]) if measured else None
            if unit is not None:
                self._scalar_rounding = min(unit, self._scalar_rounding or unit)
        return taken or key is not None

    def _add_scalars(self) -> None:
        """Add the records of tables with one value a row."""
        keys = self._scalars.names
        for plan in tracker_plans(keys, self.family):
            own = [keys[n] for c, n in plan.columns.items() if c.startswith((*MEASURED, "loss"))]
            steps = self._scalars.steps(own)
            columns: dict[str, Sequence[float] | Array] = {
                name: self._scalars.at(keys[number], steps) for name, number in plan.columns.items()
            }
            columns["step"] = steps
            columns["line"] = np.arange(1.0, len(steps) + 1)
            self._store(plan, columns, len(steps), self._scalar_rounding)

    def _store(
        self,
        plan: KeyPlan,
        columns: dict[str, Sequence[float] | Array],
        length: int,
        rounding: float | None,
        stream: str = "",
    ) -> None:
        """Add records."""
        label = self.raw.table(plan.family, plan.split).label(stream)
        columns["stream"] = np.full(length, float(label))
        layout = _LAYOUTS.get(plan.family, TRACKER_FORMAT)
        rounding = CONSOLE_ROUNDING if rounding is None else rounding
        hints = layout == TRACKER_FORMAT
        plan.store(self.raw, columns, length, layout=layout, rounding=rounding, hints=hints)


@dataclass(slots=True)
class _WideTable:
    """The columns of one run and split in a table, and rows that are gathered."""

    run: str
    plan: KeyPlan
    # Place of the cell of each column of the plan.
    cells: list[int]
    # Of these the accuracies and accept lengths.
    measured: list[int]
    # Place of the cell with a list of the marginal accuracies.
    listed: int | None = None
    rows: list[list[float]] = field(default_factory=list)
    rounding: float | None = None
    num_rows: int = 0

    def take(self, line: int, row: Sequence[str]) -> None:
        """Take a row, if it has an accuracy."""
        if not any(row[cell].strip() for cell in self.measured):
            return
        depths = () if self.listed is None else list_numbers(row[self.listed])
        self.rows.append([float(line), *(_number(row[cell]) for cell in self.cells), *depths])
        if self.num_rows < _ROWS_FOR_ROUNDING:
            units = [unit for cell in self.measured if (unit := half_unit(row[cell])) is not None]
            units += [unit] if (unit := finest(depths)) is not None else []
            if units:
                self.rounding = min(*units, self.rounding or units[0])
        self.num_rows += 1

    def taken(self) -> dict[str, Sequence[float] | Array]:
        """Return the rows that are gathered as columns, and forget them."""
        names = ["line", *self.plan.columns]
        longest = max(map(len, self.rows))
        names += [f"{Kind.MARGINAL}_{depth}" for depth in range(longest - len(names))]
        rows = [row + [MISSING] * (longest - len(row)) for row in self.rows]
        self.rows.clear()
        return dict(zip(names, np.array(rows, dtype=np.float64).T, strict=True))


def _wide_tables(header: Sequence[str], family: str | None) -> list[_WideTable]:
    """Return what a table has for each run and split that has accuracies."""
    by_run: dict[str, dict[str, int]] = {}
    for place, column in enumerate(header):
        found = run_and_key(column)
        if found is not None:
            by_run.setdefault(found[0], {}).setdefault(found[1], place)
    step = step_column(header)
    shared = by_run.get("", {})
    runs = [run for run in by_run if run] or [""]
    tables = []
    for run in runs:
        known = shared | by_run.get(run, {})
        cells = list(known.values())
        for plan in tracker_plans(tuple(known), family):
            of_column = {name: cells[number] for name, number in plan.columns.items()}
            if step is not None:
                of_column["step"] = step
            measured = [cell for name, cell in of_column.items() if name.startswith(MEASURED)]
            listed = of_column.pop(LISTED, None)
            own = replace(plan, columns={name: n for n, name in enumerate(of_column)})
            label = run if len(runs) > 1 else ""
            tables.append(_WideTable(label, own, list(of_column.values()), measured, listed))
    return tables


def _scalars_of(name: str, text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a cell; those of a list have the depth behind their name."""
    if not text.lstrip().startswith("["):
        yield name, _number(text)
        return
    for depth, value in enumerate(list_numbers(text)):
        yield f"{name}_{depth}", value


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of the rows that are not blank."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell of more than 128 KiB
            continue
        if any(cell.strip() for cell in row):
            yield reader.line_num, row


def _number(text: str) -> float:
    """Return the number of a cell, `MISSING` where it is empty or none."""
    number = printed_number(text.replace(",", ".") if "," in text else text)
    return MISSING if number is None else number
