"""Tables that trackers export: which column holds which key, run or step, in wandb, tensorboard, mlflow."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_DELIMITERS: Final = ",;\t"
_EXTREMES = ("__MIN", "__MAX")
_STEPS: Final = ("step", "_step", "global_step", "trainer/global_step", "train/global_step")
_NAMES: Final = ("tag", "metric", "key", "name")
_VALUES: Final = ("value", "metric_value")
_RUN_SEPARATOR = " - "
_SCALAR_COLUMNS = {"wall time", "step", "value"}
_SCALAR_FILE = re.compile(
    r"(?:^|[-_. ]tag[-_. ])(?:(train|val|eval|test)[_/.-]([\w@]+)|(\w+@\d+|tau_\w+))\.csv",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongColumns:
    """Places of the columns of a table with one value a row."""

    name: int  # which key, when, how much
    step: int
    value: int


def delimiter_of(header: str) -> str:
    """Return what separates the cells of a table."""
    return max(_DELIMITERS, key=header.count)


def step_column(header: Sequence[str]) -> int | None:
    """Return the place of the tracker's step, None where there is none."""
    names = [name.strip().casefold() for name in header]
    return next((names.index(name) for name in _STEPS if name in names), None)


def run_and_key(column: str) -> tuple[str, str] | None:
    """Return the name of the run (empty where there is none) and the key of a column."""
    column = column.strip()
    if column.endswith(_EXTREMES):
        return None
    run, _, key = column.rpartition(_RUN_SEPARATOR)
    return run.strip(), key.strip()


def long_columns(header: Sequence[str]) -> LongColumns | None:
    """Return the columns of a table with one value a row, None where it is no such table."""
    names = [name.strip().casefold() for name in header]
    name = next((names.index(known) for known in _NAMES if known in names), None)
    value = next((names.index(known) for known in _VALUES if known in names), None)
    step = step_column(header)
    if name is None or value is None or step is None:
        return None
    return LongColumns(name=name, step=step, value=value)


def key_of_scalar_file(file_name: str, header: Sequence[str]) -> str | None:
    """Return the key that a file of tensorboard is about: it stands in the name of the file."""
    if {name.strip().casefold() for name in header} != _SCALAR_COLUMNS:
        return None
    found = _SCALAR_FILE.search(file_name)
    if found is None:
        return None
    return f"{found[1].lower()}/{found[2]}" if found[1] else found[3]
