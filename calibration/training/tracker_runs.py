"""Runs in one export of a tracker: whether they are one run, or several that must not be mixed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibration.training.records import RecordTable, Split

_NOT_COMPARED: Final = frozenset({"line", "stream", "format"})
_MOST_NAMED: Final = 6
_LONGEST_NAME: Final = 60


@dataclass(slots=True)
class _Run:
    """The records of one run."""

    first_step: float = np.inf
    last_step: float = -np.inf
    records: set[tuple[object, ...]] = field(default_factory=set)


def separate_runs(tables: Mapping[Split, RecordTable], names: Collection[str]) -> tuple[str, ...]:
    """Return the runs whose records stand beside each other; empty where they are one run.

    Runs are one where each repeats records of those before it, or begins after they ended, as one that
    was resumed under another name.
    """
    if len(names) < 2:
        return ()
    runs: dict[str, _Run] = {}
    for split, table in tables.items():
        _gather(split, table, names, runs)
    last_step = -np.inf
    seen: set[tuple[object, ...]] = set()
    for run in sorted(runs.values(), key=lambda one: (one.first_step, -len(one.records))):
        if seen and not (run.records <= seen or last_step < run.first_step < np.inf):
            return tuple(sorted(runs))
        seen |= run.records
        last_step = max(last_step, run.last_step)
    return ()


def said_runs(runs: Collection[str]) -> str:
    """Return names of runs for a message of one line."""
    names = [" ".join(name.split())[:_LONGEST_NAME] for name in list(runs)[:_MOST_NAMED]]
    more = len(runs) - len(names)
    return ", ".join(f"'{name}'" for name in names) + (f" and {more} more" if more else "")


def _gather(
    split: Split, table: RecordTable, names: Collection[str], runs: dict[str, _Run]
) -> None:
    """Add the records of a split to their runs."""
    if not len(table):
        return
    streams = table.column("stream")
    steps = table.column("step")
    columns = sorted(name for name in table.columns if name not in _NOT_COMPARED)
    values = np.stack([table.column(name) for name in columns], axis=1)
    for number, label in enumerate(table.labels):
        own = streams == number
        if label not in names or not own.any():
            continue
        run = runs.setdefault(label, _Run())
        finite = steps[own & np.isfinite(steps)]
        if len(finite):
            run.first_step = min(run.first_step, float(finite.min()))
            run.last_step = max(run.last_step, float(finite.max()))
        run.records |= {(split, row.tobytes()) for row in values[own]}
