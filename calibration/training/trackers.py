"""Exports of trackers (wandb, TensorBoard, CSV): their keys, runs and tables, to records."""

import csv
import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from calibration.training.family_facts import FORMATS, OPEN_FAMILY
from calibration.training.lines import finest, half_unit, list_numbers, printed_number
from calibration.training.records import MISSING, Array, Kind, RawLog, RecordTable, Split
from calibration.training.speculators_keys import (
    BLOCK_FAMILY,
    CONSOLE_ROUNDING,
    EAGLE3_FAMILY,
    KeyPlan,
    key_plans,
)


# ---
# Numbers of a tracker, one name and step at a time, put together to columns by step.
@dataclass(slots=True)
class ScalarSeries:
    """Values by name and step: 16 bytes each."""

    _steps: dict[str, "array[float]"] = field(init=False, default_factory=dict)
    _values: dict[str, "array[float]"] = field(init=False, default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order in which they came first."""
        return tuple(self._steps)

    def add(self, name: str, step: float, value: float) -> None:
        """Add one value."""
        if name not in self._steps:
            self._steps[name], self._values[name] = array("d"), array("d")
        self._steps[name].append(step)
        self._values[name].append(value)

    def steps(self, names: list[str]) -> Array:
        """Return the steps, rising, at which any of some names has a value."""
        return np.unique(np.concatenate([np.array(self._steps[name]) for name in names]))

    def at(self, name: str, steps: Array) -> Array:
        """Return the values of a name at rising steps, the last one of each; `MISSING` where none."""
        values = np.full(len(steps), MISSING)
        own = np.array(self._steps[name])
        places = np.searchsorted(steps, own)
        inside = places < len(steps)
        inside[inside] = steps[places[inside]] == own[inside]
        values[places[inside]] = np.array(self._values[name])[inside]
        return values


# ---
# Keys that trainers other than speculators log to trackers, and which of them logs a table.
#
# training_logs.md sections 5.3 and 5.4. SpecForge, the EAGLE-3 repository and TorchSpec share keys: a
# table is of the one that logs all of its keys. TorchSpec logs averages beside ``train/acc_i``; a table of
# train keys without them is none of its own. What is left open is called as on the console: train keys
# alone are ``eagle3``, evaluations alone ``specforge``, both with `OPEN_FAMILY` as hint. A family that the
# user names is taken where it logs all of the keys.
# Id of the format of exports that are not of speculators.
TRACKER_FORMAT: Final = "tracker"

# Column of a plan whose cells hold the marginal accuracies of all depths as a list.
LISTED: Final = "listed"

# How the columns of accuracies and accept lengths begin.
MEASURED: Final = (*(f"{kind}_" for kind in Kind), "mean_marginal", "reported:", LISTED)

_SHARING: Final = ("eagle3", "specforge", "torchspec")  # the first one that may be is taken
_AVERAGE = "average"  # of the first depth in SpecForge, of all in TorchSpec
_NUMBERED = re.compile(r"(.{0,120}\D)(\d{1,2})(_train_acc)?", re.ASCII)
_FIRST_DEPTHS = (0, 1)


@dataclass(frozen=True, slots=True)
class _Key:
    """Who logs a key, and what it is."""

    families: frozenset[str]
    split: Split
    # Of `RecordTable`, without the number of the depth.
    column: str


_KNOWN: Final = {
    key: _Key(frozenset(families.split()), Split(split), column)
    for families, split, column, *keys in FORMATS["tracker"]["keys"]
    for key in keys
}
_RANKS: Final = {key: rank for rank, key in enumerate(_KNOWN)}
_COMMON: Final = {
    **dict.fromkeys(("lr", "train/lr", "learning_rate", "train/learning_rate"), "learning_rate"),
    **dict.fromkeys(("global_step", "step", "train/global_step"), "step"),
    **dict.fromkeys(("epoch", "train/epoch"), "epoch"),
}
_OF_SPLIT: Final = {"loss": "total_loss", "acc": "mean_marginal"}  # where nothing else says them


@dataclass(slots=True)
class _SplitKeys:
    """Places of the keys of one family and split."""

    single: dict[str, int] = field(default_factory=dict)
    # By column, key and depth.
    depths: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)

    def add(self, key: str, column: str, depth: int | None, place: int) -> None:
        """Add a key."""
        if depth is None:
            self.single.setdefault(column, place)
        else:
            self.depths.setdefault(column, {}).setdefault(key, {}).setdefault(depth, place)


@lru_cache(maxsize=256)
def tracker_plans(keys: tuple[str, ...], family: str | None = None) -> tuple[KeyPlan, ...]:
    """Return where the numbers of a table of a tracker go: a plan for each family and split."""
    own = tuple(plan for plan in key_plans(keys) if plan.family)
    found = [(place, *known) for place, key in enumerate(keys) if (known := _known(key))]
    if not found:
        return own
    plans = list(own)
    for name, is_open in _families([_KNOWN[key].families for _, key, _ in found], family).items():
        splits: dict[Split, _SplitKeys] = {}
        for place, key, depth in found:
            entry = _KNOWN[key]
            if name in entry.families and entry.column:
                splits.setdefault(entry.split, _SplitKeys()).add(key, entry.column, depth, place)
        for split, of_split in splits.items():
            plan = _plan(name, split, of_split, keys, is_open=is_open)
            if plan is not None:
                plans.append(plan)
    return tuple(plans)


def _known(key: str) -> tuple[str, int | None] | None:
    """Return a key as `_KNOWN` has it, and the depth; None where it is not there."""
    if key in _KNOWN:
        return (key, None) if "#" not in key else None
    numbered = _NUMBERED.fullmatch(key)
    if numbered is None:
        return None
    pattern = f"{numbered[1]}#{numbered[3] or ''}"
    return (pattern, int(numbered[2])) if pattern in _KNOWN else None


def _families(of_keys: Iterable[frozenset[str]], named: str | None) -> dict[str, bool]:
    """Return the families that some keys are of, and whether each might be another one."""
    sharing = [families for families in of_keys if families & set(_SHARING)]
    alone = {name for families in of_keys if len(families) == 1 for name in families}
    found = dict.fromkeys(sorted(alone - set(_SHARING)), False)
    if not sharing:
        return found
    candidates = frozenset.intersection(*sharing)
    if not candidates:  # keys of several trainers: each has its records
        return found | dict.fromkeys(sorted(alone & set(_SHARING)), False)
    if named in candidates:
        return found | {str(named): False}
    has_train_keys = any(families >= {"eagle3", "specforge"} for families in sharing)
    if has_train_keys and len(candidates) > 1:
        candidates -= {"torchspec"}
    name = next(name for name in _SHARING if name in candidates)
    return found | {name: len(candidates) > 1}


def _plan(
    family: str, split: Split, found: _SplitKeys, keys: tuple[str, ...], *, is_open: bool
) -> KeyPlan | None:
    """Return the plan of a family and split, None where it has neither accuracy nor accept length."""
    columns = dict(found.single)
    first_position = 0
    for column, by_key in found.depths.items():
        depths = by_key[min(by_key, key=_RANKS.__getitem__)]
        first = min(depths)
        if "@" not in next(iter(by_key)) or first not in _FIRST_DEPTHS:
            first = 0
        columns |= {f"{column}_{k - first}": place for k, place in depths.items() if k >= first}
        first_position = max(first_position, first)
    if any(name.startswith("marginal_") for name in columns):
        columns.pop(LISTED, None)
    average = columns.pop(_AVERAGE, None)
    if average is not None and family == "torchspec":
        columns["mean_marginal"] = average
    elif average is not None and not is_open:
        per_depth = LISTED in columns or "marginal_0" in columns
        columns |= {} if per_depth else {"marginal_0": average}
    if not any(name.startswith(MEASURED) for name in columns):
        return None
    hints = {OPEN_FAMILY} if is_open else set()
    if family == "specforge" and "overlap_0" in columns:
        hints.add("acceptance_rate")
    return KeyPlan(
        family=family,
        split=split,
        columns=_shared(keys, family, split) | columns,
        first_position=first_position,
        hints=frozenset(hints),
    )


def _shared(keys: tuple[str, ...], family: str, split: Split) -> dict[str, int]:
    """Return the places of what any trainer logs."""
    columns: dict[str, int] = {}
    for place, key in enumerate(keys):
        above, _, name = key.rpartition("/")
        if key in _COMMON:
            columns.setdefault(_COMMON[key], place)
        elif above == split and (name == "loss" or (name == "acc" and family == "automodel")):
            columns.setdefault(_OF_SPLIT[name], place)
    return columns


# ---
# Tables that trackers export: which column holds which key, run or step, in wandb, tensorboard, mlflow.
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


# ---
# Runs in one export of a tracker: whether they are one run, or several that must not be mixed.
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
        if not len(table):
            continue
        streams, steps = table.column("stream"), table.column("step")
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


# ---
# Exports of trackers: a column a key, a row a value, or a file a key.
#
# Format S6 (S7 for block drafters) of speculators, `TRACKER_FORMAT` of others, training_logs.md sections
# 2, 3, 5.3 and 5.4.
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
        delimiter = max(_DELIMITERS, key=first.count)
        header = next(_rows([first], delimiter), (0, []))[1]
        rows = ((number + first_line, row) for number, row in _rows(source, delimiter))
        key = key_of_scalar_file(path.name, header)
        if key is not None:
            names = [name.strip().casefold() for name in header]
            place = LongColumns(name=-1, step=names.index("step"), value=names.index("value"))
            return self._long(place, rows, key)
        found = long_columns(header)
        return self._long(found, rows, None) if found is not None else self._wide(header, rows)

    def finish(self) -> None:
        """Add the records of what has one value a row: they may be spread over several files."""
        keys = self._scalars.names
        for plan in tracker_plans(keys, self.family) if keys else ():
            own = [keys[n] for c, n in plan.columns.items() if c.startswith((*MEASURED, "loss"))]
            steps = self._scalars.steps(own)
            columns: dict[str, Sequence[float] | Array] = {
                name: self._scalars.at(keys[number], steps) for name, number in plan.columns.items()
            }
            columns["step"] = steps
            columns["line"] = np.arange(1.0, len(steps) + 1)
            self._store(plan, columns, len(steps), self._scalar_rounding)
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

    def _store(
        self,
        plan: KeyPlan,
        columns: dict[str, Sequence[float] | Array],
        length: int,
        rounding: float | None,
        stream: str = "",
    ) -> None:
        """Add records."""
        layout = _LAYOUTS.get(plan.family, TRACKER_FORMAT)
        rounding = CONSOLE_ROUNDING if rounding is None else rounding
        hints = layout == TRACKER_FORMAT
        plan.store(
            self.raw, columns, [stream] * length, layout=layout, rounding=rounding, hints=hints
        )


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
