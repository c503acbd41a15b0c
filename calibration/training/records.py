"""What a trainer printed, as columns: one table for each family and split, in the order of the file.

A record is not a line (one may be wrapped over several) and a line is not a step (several processes
may print one). Readers fill tables; nothing is removed here.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
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
_MOST_WAITING = 512  # records


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


def by_depth(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return columns of a kind of accuracy (or ``loss``), the first drafted token first."""
    return {f"{name}_{depth}": value for depth, value in enumerate(values)}


@dataclass(slots=True)
class RecordTable:
    """All records of one family and split, as columns of doubles: 8 bytes a number.

    Columns are made when a record first has them; earlier records have `MISSING` there. Names:
    ``line``, ``step``, ``epoch``, ``learning_rate``, ``total_loss``, ``mean_marginal``, ``stream`` and
    ``format`` (numbers of `labels`), ``joint_0`` ..., ``loss_0`` ..., ``reported:<key>``.
    """

    labels: list[str] = field(init=False, default_factory=list)
    first_position: int = field(init=False, default=0)  # index that is printed for the first depth
    total_steps: int | None = field(init=False, default=None)  # the trainer's own total
    # what tells the version apart (``global_step``, ``profile``, ``error_records`` ...)
    hints: set[str] = field(init=False, default_factory=set)
    rounding: float = field(init=False, default=0.0005)  # half a unit of the last printed digit
    _columns: dict[str, "array[float]"] = field(init=False, default_factory=dict)
    _length: int = field(init=False, default=0)
    _label_numbers: dict[str, int] = field(init=False, default_factory=dict)
    # Records that are added together: a log has millions of them.
    _waiting: list[dict[str, float]] = field(init=False, default_factory=list)

    def __len__(self) -> int:
        return self._length + len(self._waiting)

    @property
    def columns(self) -> Mapping[str, "array[float]"]:
        """Columns by name."""
        if self._waiting:
            self.extend({}, 0)
        return self._columns

    def extend(self, columns: Mapping[str, Sequence[float] | Array], length: int) -> None:
        """Add some records at once, by column."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            names = dict.fromkeys(name for row in waiting for name in row)
            rows = {name: [row.get(name, MISSING) for row in waiting] for name in names}
            self.extend(rows, len(waiting))
        for name in columns:
            if name not in self._columns:
                self._columns[name] = array("d", [MISSING]) * self._length
        for name, column in self._columns.items() if length else ():
            values = columns.get(name)
            if values is None:
                column.extend([MISSING] * length)
            elif isinstance(values, np.ndarray):
                column.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
            else:
                column.extend(values)
        self._length += length

    def add(self, values: dict[str, float]) -> None:
        """Add one record by column, in its turn."""
        self._waiting.append(values)
        if len(self._waiting) >= _MOST_WAITING:
            self.extend({}, 0)

    def know(
        self, hints: Collection[str], rounding: float | None, total_steps: int | None = None
    ) -> None:
        """Note what is said of all records; None where nothing is."""
        self.hints.update(hints)
        self.rounding = self.rounding if rounding is None else rounding
        if total_steps is not None:
            self.total_steps = max(total_steps, self.total_steps or 0)

    def join(self, other: "RecordTable", lines_before: int = 0) -> None:
        """Add all records of another table."""
        numbers = np.array([self.label(label) for label in other.labels], dtype=np.float64)
        columns = {name: other.column(name) for name in other.columns}
        for name in {"stream", "format"} & columns.keys():
            columns[name] = numbers[columns[name].astype(np.intp)]
        if "line" in columns:
            columns["line"] += lines_before
        self.extend(columns, len(other))
        self.first_position = other.first_position
        self.know(other.hints, other.rounding, other.total_steps)

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

    def records(self) -> "RecordColumns":
        """Return the records, to be read while the table does not grow."""
        views = {name: np.frombuffer(c, dtype=np.float64) for name, c in self.columns.items()}
        for view in views.values():
            view.flags.writeable = False
        return RecordColumns(values=views, labels=tuple(self.labels))


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

    def add(
        self,
        family: str,
        split: Split,
        layout: str,
        line: int,
        stream: str,
        values: Mapping[str, float | None],
        *,
        hints: Collection[str] = (),
        rounding: float | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Add one record: the id of its layout (``S2``, ``F4``), where it stands, what it prints."""
        table = self.table(family, split)
        table.know(hints, rounding, total_steps)
        row = {name: value for name, value in values.items() if value is not None}
        row["line"] = line
        row["stream"], row["format"] = table.label(stream), table.label(layout)
        table.add(row)

    def extend(
        self,
        family: str,
        split: Split,
        layout: str,
        columns: Mapping[str, Sequence[float] | Array],
        streams: Sequence[str],
        *,
        hints: Collection[str] = (),
        rounding: float | None = None,
    ) -> RecordTable:
        """Add some records of one layout by column; return their table."""
        table = self.table(family, split)
        table.know(hints, rounding)
        numbers = {stream: float(table.label(stream)) for stream in dict.fromkeys(streams)}
        places: dict[str, Sequence[float] | Array] = {
            "stream": [numbers[stream] for stream in streams],
            "format": np.full(len(streams), float(table.label(layout))),
        }
        table.extend({**columns, **places}, len(streams))
        return table

    def without_accuracy(self, family: str) -> None:
        """Note a record that has losses alone."""
        self.num_without_metrics += 1
        self.loss_only.add(family)

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
# The records of several files as those of one log.
def merged(raws: Sequence[RawLog], first_lines: Sequence[int]) -> RawLog:
    """Return the records of several files together, in the order of the files."""
    if len(raws) == 1:
        return raws[0]
    together = RawLog()
    for raw, first_line in zip(raws, first_lines, strict=True):
        for family, tables in raw.tables.items():
            for split, table in tables.items():
                together.table(family, split).join(table, first_line - 1)
        for code, lines in raw.warnings.items():
            for line in lines:
                together.warn(code, line + first_line - 1)
        together.num_without_metrics += raw.num_without_metrics
        together.loss_only |= raw.loss_only
        together.companion |= raw.companion
        together.runs |= raw.runs
    return together
