"""The records of several files as those of one log."""

from collections.abc import Sequence

import numpy as np

from calibration.training.records import RawLog, RecordTable


def merged(raws: Sequence[RawLog], first_lines: Sequence[int]) -> RawLog:
    """Return the records of several files together, in the order of the files."""
    if len(raws) == 1:
        return raws[0]
    together = RawLog()
    for raw, first_line in zip(raws, first_lines, strict=True):
        for family, tables in raw.tables.items():
            for split, table in tables.items():
                _add(table, together.table(family, split), first_line - 1)
        for code, lines in raw.warnings.items():
            for line in lines:
                together.warn(code, line + first_line - 1)
        together.num_without_metrics += raw.num_without_metrics
        together.loss_only |= raw.loss_only
        together.companion |= raw.companion
        together.runs |= raw.runs
    return together


def _add(table: RecordTable, target: RecordTable, lines_before: int) -> None:
    """Add all records of a table to another one."""
    numbers = np.array([target.label(label) for label in table.labels], dtype=np.float64)
    columns = {name: table.column(name) for name in table.columns}
    for name in ("stream", "format"):
        if name in columns:
            columns[name] = numbers[columns[name].astype(np.intp)]
    if "line" in columns:
        columns["line"] += lines_before
    target.extend(columns, len(table))
    target.first_position = table.first_position
    target.rounding = table.rounding
    target.hints |= table.hints
    if table.total_steps is not None:
        target.total_steps = max(table.total_steps, target.total_steps or 0)
