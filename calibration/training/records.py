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
