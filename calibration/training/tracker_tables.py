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
    """Places of the columns of a table with one value a row.

    Parameters
    ----------
    name, step, value : int
        Which key, when, how much.
    """

    name: int
    step: int
    value: int


def delimiter_of(header: str) -> str:
    """Return what separates the cells of a table.

    Examples
    --------
    >>> delimiter_of("Step;train/loss"), delimiter_of("Step,train/loss")
    (';', ',')
    """
    return max(_DELIMITERS, key=header.count)


def step_column(header: Sequence[str]) -> int | None:
    """Return the place of the tracker's step, None where there is none.

    Examples
    --------
    >>> step_column(["epoch", "global_step", "Step"]), step_column(["epoch"])
    (2, None)
    """
    names = [name.strip().casefold() for name in header]
    return next((names.index(name) for name in _STEPS if name in names), None)


def run_and_key(column: str) -> tuple[str, str] | None:
    """Return the name of the run (empty where there is none) and the key of a column.

    Parameters
    ----------
    column : str
        As in the header.

    Returns
    -------
    tuple of (str, str) or None
        None for the extremes that wandb puts beside a column.

    Examples
    --------
    >>> run_and_key("bright-moon-7 - train/loss_0"), run_and_key("train/loss_0__MIN")
    (('bright-moon-7', 'train/loss_0'), None)
    """
    column = column.strip()
    if column.endswith(_EXTREMES):
        return None
    run, _, key = column.rpartition(_RUN_SEPARATOR)
    return run.strip(), key.strip()


def long_columns(header: Sequence[str]) -> LongColumns | None:
    """Return the columns of a table with one value a row, None where it is no such table.

    Examples
    --------
    >>> long_columns(["wall_time", "tag", "step", "value"])
    LongColumns(name=1, step=2, value=3)
    """
    names = [name.strip().casefold() for name in header]
    name = next((names.index(known) for known in _NAMES if known in names), None)
    value = next((names.index(known) for known in _VALUES if known in names), None)
    step = step_column(header)
    if name is None or value is None or step is None:
        return None
    return LongColumns(name=name, step=step, value=value)


def key_of_scalar_file(file_name: str, header: Sequence[str]) -> str | None:
    """Return the key that a file of tensorboard is about: it stands in the name of the file.

    Examples
    --------
    >>> key_of_scalar_file("run-.-tag-train_full_acc_0.csv", ["Wall time", "Step", "Value"])
    'train/full_acc_0'
    """
    if {name.strip().casefold() for name in header} != _SCALAR_COLUMNS:
        return None
    found = _SCALAR_FILE.search(file_name)
    if found is None:
        return None
    return f"{found[1].lower()}/{found[2]}" if found[1] else found[3]
