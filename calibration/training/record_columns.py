"""The records of one split as columns that rows can be taken from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.training.records import PRINTED_NAN, Array, RecordTable

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
