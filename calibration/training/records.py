"""What a trainer printed, as columns: one table for each family and split, in the order of the file.

A record is not a line (one may be wrapped over several) and a line is not a step (several processes
may print one). Readers fill tables; nothing is removed here.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What stands for a number that a record does not print; a printed nan is `PRINTED_NAN`.
MISSING: Final = float("nan")

# A printed nan or infinity, which makes a record not finite.
PRINTED_NAN: Final = float("inf")


_MOST_LINES = 1000  # that a warning keeps


class Kind(StrEnum):
    """What an accuracy is the probability of; see training_logs.md section 1."""

    JOINT = "joint"
    CONDITIONAL = "conditional"
    MARGINAL = "marginal"
    OVERLAP = "overlap"


class Split(StrEnum):
    """Which data a record is about."""

    TRAIN = "train"
    VAL = "val"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """One record as it was printed."""

    format: str  # id of the layout (``S2``, ``F4`` ...)
    split: Split  # which data it is about
    line: int  # line on which it begins, 1-based
    # by depth, as fractions, the first drafted token first; `PRINTED_NAN` where nan or inf was
    # printed
    accuracies: Mapping[Kind, Sequence[float]] = field(default_factory=dict)
    losses: Sequence[float] = ()  # by depth; empty where not printed
    total_loss: float | None = None  # none where not printed
    mean_marginal: float | None = None
    learning_rate: float | None = None
    epoch: float | None = None
    step: int | None = None  # number of the optimiser step or the bar; None where not printed
    # accept lengths printed by the trainer, by their key
    reported: Mapping[str, float] = field(default_factory=dict)
    stream: str = ""  # label of the process or container that printed it; empty where there is none
    first_position: int = 0  # index that is printed for the first depth
    total_steps: int | None = None  # the trainer's own total, where the record shows it
    # what tells the version apart (``global_step``, ``profile``, ``error_records``,
    # ``profile_late``)
    hints: frozenset[str] = frozenset()
    rounding: float = 0.0005  # half a unit of the last printed digit of its accuracies


@dataclass(slots=True)
class RecordTable:
    """All records of one family and split, as columns of doubles: 8 bytes a number.

    Columns are made when a record first has them; earlier records have `MISSING` there. Names:
    ``line``, ``step``, ``epoch``, ``learning_rate``, ``total_loss``, ``mean_marginal``, ``stream`` and
    ``format`` (numbers of `labels`), ``joint_0`` ..., ``loss_0`` ..., ``reported:<key>``.
    """

    columns: dict[str, "array[float]"] = field(init=False, default_factory=dict)
    labels: list[str] = field(init=False, default_factory=list)
    first_position: int = field(init=False, default=0)
    total_steps: int | None = field(init=False, default=None)
    hints: set[str] = field(init=False, default_factory=set)
    rounding: float = field(init=False, default=0.0005)
    _length: int = field(init=False, default=0)
    _label_numbers: dict[str, int] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        return self._length

    def append(self, record: TrainingRecord) -> None:
        """Add one record."""
        row: dict[str, float] = {
            "line": float(record.line),
            "stream": float(self.label(record.stream)),
            "format": float(self.label(record.format)),
        }
        for name in ("total_loss", "mean_marginal", "learning_rate", "epoch", "step"):
            value = getattr(record, name)
            if value is not None:
                row[name] = float(value)
        for kind, values in record.accuracies.items():
            row |= {f"{kind}_{depth}": float(value) for depth, value in enumerate(values)}
        row |= {f"loss_{depth}": float(value) for depth, value in enumerate(record.losses)}
        row |= {f"reported:{key}": float(value) for key, value in record.reported.items()}
        self.extend({name: [value] for name, value in row.items()}, 1)
        if record.accuracies:
            self.first_position = record.first_position
            self.rounding = record.rounding
        self.hints |= record.hints
        if record.total_steps is not None:
            self.total_steps = max(record.total_steps, self.total_steps or 0)

    def extend(self, columns: Mapping[str, Sequence[float] | Array], length: int) -> None:
        """Add some records at once, by column."""
        for name in columns:
            if name not in self.columns:
                self.columns[name] = array("d", [MISSING]) * self._length
        for name, column in self.columns.items():
            values = columns.get(name)
            if values is None:
                column.extend([MISSING] * length)
            elif isinstance(values, np.ndarray):
                column.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
            else:
                column.extend(values)
        self._length += length

    def label(self, text: str) -> int:
        """Return the number of a label, new where it is."""
        number = self._label_numbers.get(text)
        if number is None:
            number = self._label_numbers[text] = len(self.labels)
            self.labels.append(text)
        return number

    def column(self, name: str) -> Array:
        """Return a copy of a column; all `MISSING` where no record has it."""
        known = self.columns.get(name)
        if known is None:
            return np.full(self._length, MISSING)
        return np.frombuffer(known, dtype=np.float64).copy()

    def view(self, name: str) -> Array:
        """Return a column that some record has, to be read while the table does not grow."""
        values = np.frombuffer(self.columns[name], dtype=np.float64)
        values.flags.writeable = False
        return values

    def depths(self, kind: Kind | str) -> int:
        """Return how many depths an accuracy (or ``loss``) was printed for."""
        depth = 0
        while f"{kind}_{depth}" in self.columns:
            depth += 1
        return depth

    def accuracies(self, kind: Kind | str) -> Array:
        """Return an accuracy (or ``loss``) of all records, shape (records, depths)."""
        depths = self.depths(kind)
        if not depths:
            return np.empty((self._length, 0))
        return np.stack([self.column(f"{kind}_{depth}") for depth in range(depths)], axis=1)

    @property
    def reported(self) -> tuple[str, ...]:
        """Keys of the accept lengths that the trainer printed."""
        return tuple(n.removeprefix("reported:") for n in self.columns if n.startswith("reported:"))


@dataclass(slots=True)
class RawLog:
    """Everything that was found in some files before anything is decided about it.

    Records are counted by family: those of more than one family are not one log.
    """

    tables: dict[str, dict[Split, RecordTable]] = field(init=False, default_factory=dict)
    # Lines by the code of what a reader found there: hard-wrap, interleaved-output ...
    warnings: dict[str, list[int]] = field(init=False, default_factory=dict)
    # Companion files and records that give steps or losses but no accuracy.
    num_without_metrics: int = field(init=False, default=0)
    # Families of which only losses were found.
    loss_only: set[str] = field(init=False, default_factory=set)
    # What a file says that gives only epoch and steps (``training_state.json``).
    companion: dict[str, float] = field(init=False, default_factory=dict)
    # Names of the runs that stand beside each other in one export of a tracker: labels of streams.
    runs: set[str] = field(init=False, default_factory=set)

    def table(self, family: str, split: Split) -> RecordTable:
        """Return the table of a family and split, new where there is none."""
        tables = self.tables.setdefault(family, {})
        if split not in tables:
            tables[split] = RecordTable()
        return tables[split]

    def add(self, family: str, record: TrainingRecord) -> None:
        """Add one record."""
        self.table(family, record.split).append(record)

    def warn(self, code: str, line: int) -> None:
        """Note something about a line."""
        lines = self.warnings.setdefault(code, [])
        if len(lines) < _MOST_LINES:
            lines.append(line)

    @property
    def num_records(self) -> dict[str, int]:
        """How many records each family has."""
        return {
            family: sum(len(table) for table in tables.values())
            for family, tables in self.tables.items()
        }


# ---
# The records of one split as columns that rows can be taken from.
Rows = NDArray[np.intp]

_PLACES: Final = ("line", "stream", "format")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records by column, as `RecordTable` names them; the order of rows is that of the file."""

    values: Mapping[str, Array]  # all of one length
    labels: tuple[str, ...]  # what the numbers of the columns ``stream`` and ``format`` mean

    @classmethod
    def of_table(cls, table: RecordTable) -> "RecordColumns":
        """Return the columns of a table, which must not grow as long as they are used."""
        values = {name: table.view(name) for name in table.columns}
        return cls(values=values, labels=tuple(table.labels))

    def __len__(self) -> int:
        return len(self.values["line"]) if self.values else 0

    def column(self, name: str) -> Array:
        """Return a column; all nan where there is none."""
        known = self.values.get(name)
        return np.full(len(self), np.nan) if known is None else known

    def take(self, rows: Rows | NDArray[np.bool_]) -> "RecordColumns":
        """Return some rows."""
        if len(rows) == len(self):
            every = rows.all() if rows.dtype == np.bool_ else (rows == np.arange(len(rows))).all()
            if every:
                return self
        taken = {name: column[rows] for name, column in self.values.items()}
        return RecordColumns(values=taken, labels=self.labels)

    def with_column(self, name: str, values: Array) -> "RecordColumns":
        """Return the records with a column, new or other than before."""
        return RecordColumns(values=dict(self.values) | {name: values}, labels=self.labels)

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the columns that hold metrics: accuracies, losses, accept lengths."""
        known = (*_PLACES, "step", "epoch", "learning_rate")
        return tuple(name for name in self.values if name not in known)

    @property
    def accuracies(self) -> tuple[str, ...]:
        """Names of the columns that hold accuracies, of a depth or their mean."""
        kinds = ("joint_", "conditional_", "marginal_", "overlap_", "mean_marginal")
        return tuple(name for name in self.values if name.startswith(kinds))

    def label_texts(self, name: str) -> NDArray[np.object_]:
        """Return the label of each row in the column ``stream`` or ``format``."""
        texts = np.array([*self.labels, ""], dtype=object)
        numbers = self.column(name)
        return texts[np.where(np.isfinite(numbers), numbers, -1).astype(np.intp)]

    def labels_in(self, name: str) -> frozenset[str]:
        """Return the labels that occur in the column ``stream`` or ``format``."""
        numbers = np.unique(self.column(name))
        return frozenset(self.labels[int(number)] for number in numbers if np.isfinite(number))

    def stacked(self, kind: str) -> Array:
        """Return an accuracy (or ``loss``) by depth, shape (records, depths)."""
        depth = 0
        while f"{kind}_{depth}" in self.values:
            depth += 1
        if not depth:
            return np.empty((len(self), 0))
        return np.stack([self.values[f"{kind}_{number}"] for number in range(depth)], axis=1)

    def finite(self) -> NDArray[np.bool_]:
        """Return which records print no nan or infinity in an accuracy or a loss."""
        finite = np.ones(len(self), dtype=bool)
        for name in self.measured:
            if not name.startswith("reported:"):
                finite &= self.values[name] != PRINTED_NAN
        return finite


# ---
# Records of equal columns, gathered and added to a table together: a log has millions of them.
# Most records that are kept back.
MOST_ROWS: Final = 512

_PLACE = ("line", "stream", "format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is equal in the records of one layout."""

    format: str  # id of the layout, ``F4``
    split: Split  # which data the records are about
    # names of the columns of `RecordTable` that the values are for, beside those of place
    columns: tuple[str, ...]
    hints: frozenset[str] = frozenset()  # what tells the version apart


@dataclass(slots=True)
class UniformRows:
    """The records of one family on their way into its tables."""

    raw: RawLog  # where they go
    family: str  # id of the family
    _gathered: dict[Split, "_Gathered"] = field(init=False, default_factory=dict)

    def add(
        self,
        layout: Layout,
        line: int,
        stream: str,
        values: Sequence[float],
        *,
        rounding: float | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Add a record."""
        table = self.raw.table(self.family, layout.split)
        gathered = self._gathered.get(layout.split)
        if gathered is None:
            gathered = self._gathered[layout.split] = _Gathered()
        number = gathered.number(layout)
        table.hints |= layout.hints
        place = (float(line), float(table.label(stream)), float(table.label(layout.format)))
        gathered.rows.append((*place, *values))
        gathered.numbers.append(number)
        if total_steps is not None:
            table.total_steps = max(total_steps, table.total_steps or 0)
        if rounding is not None:
            table.rounding = rounding
        if len(gathered.rows) >= MOST_ROWS:
            self._flush(layout.split)

    def extend(
        self,
        layout: Layout,
        columns: dict[str, Sequence[float] | Array],
        streams: Sequence[str],
        *,
        rounding: float | None = None,
    ) -> None:
        """Add some records of one layout, in their turn."""
        self._flush(layout.split)
        table = self.raw.table(self.family, layout.split)
        numbers = {stream: float(table.label(stream)) for stream in dict.fromkeys(streams)}
        columns["stream"] = [numbers[stream] for stream in streams]
        columns["format"] = np.full(len(streams), float(table.label(layout.format)))
        table.hints |= layout.hints
        if rounding is not None:
            table.rounding = rounding
        table.extend(columns, len(streams))

    def add_record(self, record: TrainingRecord) -> None:
        """Add a record of its own layout, in its turn."""
        self._flush(record.split)
        self.raw.add(self.family, record)

    def flush(self) -> None:
        """Give everything to the tables."""
        for split in tuple(self._gathered):
            self._flush(split)

    def _flush(self, split: Split) -> None:
        """Give what is gathered of a split to its table."""
        gathered = self._gathered.pop(split, None)
        if gathered is not None:
            table = self.raw.table(self.family, split)
            table.extend(gathered.columns(), len(gathered.rows))


@dataclass(slots=True)
class _Gathered:
    """The records of one split that wait, in their order, with the number of the layout of each."""

    layouts: list[Layout] = field(init=False, default_factory=list)
    rows: list[tuple[float, ...]] = field(init=False, default_factory=list)
    numbers: list[int] = field(init=False, default_factory=list)

    def number(self, layout: Layout) -> int:
        """Return the number of a layout, new where it is."""
        for number, known in enumerate(self.layouts):
            if known is layout:
                return number
        if layout not in self.layouts:
            self.layouts.append(layout)
        return self.layouts.index(layout)

    def columns(self) -> dict[str, Sequence[float] | Array]:
        """Return all rows by column."""
        if len(self.layouts) == 1:
            names = (*_PLACE, *self.layouts[0].columns)
            return dict(zip(names, zip(*self.rows, strict=True), strict=True))
        columns: dict[str, Sequence[float] | Array] = {}
        numbers = np.array(self.numbers)
        for number, layout in enumerate(self.layouts):
            places = np.flatnonzero(numbers == number)
            values = np.array([self.rows[place] for place in places])
            for index, name in enumerate((*_PLACE, *layout.columns)):
                column = columns.setdefault(name, np.full(len(self.rows), MISSING))
                column[places] = values[:, index]  # type: ignore[index]
        return columns


# ---
# The records of several files as those of one log.
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
