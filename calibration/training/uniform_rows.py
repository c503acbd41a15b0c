"""Records of equal columns, gathered and added to a table together: a log has millions of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibration.training.records import MISSING, Array, RawLog, Split, TrainingRecord

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
