"""The table of points: one row per measurement, in the canonical columns of the file."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.readers import (
    CANONICAL_NAMES,
    NUMBER_NAMES,
    ORIGIN_NAMES,
    TEXT_NAMES,
    Reading,
)
from specmodel.errors import LeftOut, Note
from specmodel.units import MILLI

Key: TypeAlias = tuple[float | str | None, ...]
"""Values of some columns of one row; None for an empty number."""

PROVENANCE_COLUMNS: Final = ("file", "line", *ORIGIN_NAMES, "_load", "_details")
"""Where a row comes from and what it is paired by; not written to files."""

SYSTEM_COLUMNS: Final = (
    *("target_model", "engine", "engine_version", "gpu", "num_gpus", "tp_size"),
    *("interconnect", "dtype", "variant", "source_id"),
)
"""What makes a system: rows that differ in one of these cannot be one fit."""

LOAD_COLUMNS: Final = (
    *("workload", "batch_size", "context_tokens", "output_tokens", "temperature"),
    "throughput_scope",
)
"""What was asked of a system, with or without speculation."""

_IDENTITY = 1e-6

DRAFT_COLUMNS: Final = ("draft_model", "algorithm", "num_steps", "topk", "num_draft_tokens")
"""What is drafted and verified."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Measurements in canonical columns, and what was left out.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per measurement. The canonical columns in their order (numbers as float64 with nan
        where empty, texts with ``""`` where empty, ``full_accuracy`` as a tuple or None), then
        columns whose meaning is not known, then `PROVENANCE_COLUMNS`.
    dropped : tuple of LeftOut
        Rows of the files that are not in the frame.
    warnings : tuple of Note
        What should be known about those that are.
    files : tuple of Path
        What was read.
    """

    frame: pd.DataFrame
    dropped: tuple[LeftOut, ...] = ()
    warnings: tuple[Note, ...] = ()
    files: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The columns whose meaning is not known."""
        known = {*CANONICAL_NAMES, *PROVENANCE_COLUMNS}
        return tuple(name for name in self.frame.columns if name not in known)

    def where(self, rows: NDArray[np.bool_]) -> "Points":
        """Return the points of some rows, with everything else as it is.

        Parameters
        ----------
        rows : numpy.ndarray of bool
            One for each row of the frame.

        Returns
        -------
        Points
            Rows in their order, counted from 0.
        """
        return Points(
            frame=self.frame.loc[rows].reset_index(drop=True),
            dropped=self.dropped,
            warnings=self.warnings,
            files=self.files,
        )


def frame_of(readings: Sequence[Reading]) -> pd.DataFrame:
    """Return the rows of some files as one table.

    Parameters
    ----------
    readings : sequence of Reading
        What the readers returned, pooled in their order.

    Returns
    -------
    pandas.DataFrame
        As `Points` describes it.

    Examples
    --------
    >>> from calibration.readers import Row
    >>> row = Row(line=2, cells={"accept_length": 2.1}, extra={"operator": "day shift"})
    >>> frame = frame_of([Reading(path=Path("a.csv"), format="points_csv", rows=(row,))])
    >>> frame[["accept_length", "batch_size", "workload", "operator", "line"]].values.tolist()
    [[2.1, nan, '', 'day shift', 2]]

    ``_load`` is the load of a row after the format that gave it, None where it has none.
    """
    rows = [row for reading in readings for row in reading.rows]
    files = [str(reading.path) for reading in readings for _ in reading.rows]
    columns: dict[str, pd.Series] = {}
    for name in CANONICAL_NAMES:
        cells = [row.cells.get(name) for row in rows]
        if name in NUMBER_NAMES:
            columns[name] = pd.Series(cells, dtype=np.float64)
        elif name in TEXT_NAMES:
            columns[name] = _texts(str(cell or "") for cell in cells)
        else:
            columns[name] = pd.Series(cells, dtype=object)
    for name in dict.fromkeys(name for row in rows for name in row.extra):
        columns[name] = _texts(row.extra.get(name, "") for row in rows)
    columns["file"] = _texts(files)
    columns["line"] = pd.Series([row.line for row in rows], dtype=np.int64)
    for name in ORIGIN_NAMES:
        columns[name] = _texts(str(row.cells.get(name, "")) for row in rows)
    columns["_load"] = pd.Series(_loads(readings), dtype=object)
    columns["_details"] = pd.Series([row.details for row in rows], dtype=object)
    return pd.DataFrame(columns)


def row_keys(frame: pd.DataFrame, columns: Sequence[str]) -> list[Key]:
    """Return the values of some columns, row by row, so that equal cells compare equal.

    Empty numbers become None. A throughput counted over the whole is the same as one that does
    not say what it is counted over.

    Examples
    --------
    >>> row_keys(pd.DataFrame({"gpu": ["H200", ""], "tp_size": [4.0, np.nan]}), ("gpu", "tp_size"))
    [('H200', 4.0), ('', None)]
    """
    values = [[_key_cell(cell) for cell in frame[name].tolist()] for name in columns]
    return list(zip(*values, strict=True)) if values else [()] * len(frame)


def speculative_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are runs with speculation: all but those at ``num_steps`` 0.

    Examples
    --------
    >>> speculative_rows(pd.DataFrame({"num_steps": [0.0, 3.0, np.nan]})).tolist()
    [False, True, True]
    """
    return np.asarray(frame["num_steps"].to_numpy() != 0)


def warn_rows(
    frame: pd.DataFrame, rows: NDArray[np.bool_], code: str, message: str
) -> tuple[Note, ...]:
    """Return a warning about some rows, one for each file that they are in."""
    found = frame.loc[rows, ["file", "line"]]
    return tuple(
        Note(code=code, message=message, path=Path(str(file)), lines=tuple(lines.tolist()))
        for file, lines in found.groupby("file", sort=False)["line"]
    )


def _key_cell(cell: object) -> float | str | None:
    """Return one value of a key."""
    if isinstance(cell, float):
        return None if math.isnan(cell) else cell
    return "" if cell == "aggregate" else str(cell)


def _loads(readings: Sequence[Reading]) -> list[Key | None]:
    """Return the load of every row, told apart by format."""
    return [
        None if row.load is None else (reading.format, *map(str, row.load))
        for reading in readings
        for row in reading.rows
    ]


def decode_only_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows leave out prefill and idle time, in the run and in its baseline.

    A throughput that is batch x accept length / round time, and a baseline that is batch / step
    time, to one part in a million, were computed so: a clock around a whole run gives neither.

    Examples
    --------
    >>> row = {"batch_size": 4.0, "accept_length": 2.0, "step_time_ms": 10.0}
    >>> row |= {"output_tokens_per_s": 800.0, "baseline_step_time_ms": 8.0}
    >>> frame = pd.DataFrame([row | {"baseline_tokens_per_s": rate} for rate in (500.0, 480.0)])
    >>> decode_only_rows(frame).tolist()
    [True, False]
    """
    batch = frame["batch_size"].to_numpy()
    tokens = batch * frame["accept_length"].to_numpy()
    pairs = (
        (tokens, frame["step_time_ms"], frame["output_tokens_per_s"]),
        (batch, frame["baseline_step_time_ms"], frame["baseline_tokens_per_s"]),
    )
    agree = [
        np.abs(rate.to_numpy() * time_ms.to_numpy() * MILLI / emitted - 1) < _IDENTITY
        for emitted, time_ms, rate in pairs
    ]
    return np.asarray(agree[0] & agree[1])


def _texts(cells: Iterable[str]) -> pd.Series:
    """Return a column of texts."""
    return pd.Series(list(cells), dtype="str")
