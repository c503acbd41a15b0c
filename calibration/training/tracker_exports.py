"""Exports of trackers with keys of speculators: a column a key, a row a value, or a file a key.

Format S6 (S7 for block drafters), training_logs.md sections 2 and 3.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from calibration.training.number_text import half_unit, printed_number
from calibration.training.records import MISSING, Array, RawLog
from calibration.training.scalar_series import ScalarSeries
from calibration.training.speculators_keys import (
    BLOCK_FAMILY,
    CONSOLE_ROUNDING,
    KeyPlan,
    key_plans,
)
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
_MEASURED = ("joint_", "conditional_", "marginal_", "mean_marginal")
_SHARED_KEYS = ("epoch", "lr")


@dataclass(slots=True)
class TrackerExports:
    """Reads exports of trackers into a log.

    Parameters
    ----------
    raw : RawLog
        What records are added to.

    Examples
    --------
    >>> raw = RawLog()
    >>> exports = TrackerExports(raw)
    >>> exports.feed(Path("wandb.csv"), ["Step,train/full_acc_0", "7,0.61", "8,"])
    True
    >>> exports.finish()
    >>> raw.num_records
    {'speculators-eagle3': 1}
    """

    raw: RawLog
    _scalars: ScalarSeries = field(init=False, default_factory=ScalarSeries)
    _scalar_rounding: float | None = field(init=False, default=None)

    def feed(self, path: Path, lines: Iterable[str], *, first_line: int = 1) -> bool:
        """Take one file.

        Parameters
        ----------
        path : Path
            The file; tensorboard writes the key into its name.
        lines : iterable of str
            Its lines, read as they come, with or without line ends.
        first_line : int
            Number of the first one.

        Returns
        -------
        bool
            Whether it has keys of speculators; the records of some forms are added by `finish` only.
        """
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
        tables = _wide_tables(header)
        if not tables:
            return False
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
            names = ("line", *table.plan.columns)
            columns = dict(zip(names, np.array(table.rows, dtype=np.float64).T, strict=True))
            self._store(table.plan, {**columns}, len(table.rows), table.rounding, table.run)
            table.rows.clear()

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
            measured = any(plan.family for plan in key_plans((name,)))
            step, value = printed_number(row[place.step]), _number(row[place.value])
            if step is None or not math.isfinite(step):
                continue
            if not (measured or name.startswith((*_SHARED_KEYS, "train/", "val/"))):
                continue
            taken |= measured
            if len(self._scalars.names) < _MOST_NAMES:
                self._scalars.add(name, step, value)
            unit = half_unit(row[place.value]) if measured else None
            if unit is not None:
                self._scalar_rounding = min(unit, self._scalar_rounding or unit)
        return taken or key is not None

    def _add_scalars(self) -> None:
        """Add the records of tables with one value a row."""
        keys = self._scalars.names
        for plan in key_plans(keys):
            if not plan.family:
                continue
            own = [keys[n] for c, n in plan.columns.items() if c.startswith((*_MEASURED, "loss"))]
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
        layout = "S7" if plan.family == BLOCK_FAMILY else "S6"
        rounding = CONSOLE_ROUNDING if rounding is None else rounding
        plan.store(self.raw, columns, length, layout=layout, rounding=rounding, hints=False)


@dataclass(slots=True)
class _WideTable:
    """The columns of one run and split in a table, and rows that are gathered."""

    run: str
    plan: KeyPlan
    cells: list[int]
    """Place of the cell of each column of the plan."""
    measured: list[int]
    """Of these the accuracies."""
    rows: list[list[float]] = field(default_factory=list)
    rounding: float | None = None
    num_rows: int = 0

    def take(self, line: int, row: Sequence[str]) -> None:
        """Take a row, if it has an accuracy."""
        if not any(row[cell].strip() for cell in self.measured):
            return
        self.rows.append([float(line), *(_number(row[cell]) for cell in self.cells)])
        if self.num_rows < _ROWS_FOR_ROUNDING:
            units = [unit for cell in self.measured if (unit := half_unit(row[cell])) is not None]
            if units:
                self.rounding = min(*units, self.rounding or units[0])
        self.num_rows += 1


def _wide_tables(header: Sequence[str]) -> list[_WideTable]:
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
        for plan in key_plans(tuple(known)):
            of_column = {name: cells[number] for name, number in plan.columns.items()}
            if step is not None:
                of_column["step"] = step
            measured = [cell for name, cell in of_column.items() if name.startswith(_MEASURED)]
            own = replace(plan, columns={name: n for n, name in enumerate(of_column)})
            if plan.family:
                label = run if len(runs) > 1 else ""
                tables.append(_WideTable(label, own, list(of_column.values()), measured))
    return tables


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
