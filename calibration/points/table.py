"""The table of points: one row per measurement, in the canonical columns of the file."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    canonical_name,
)
from specmodel.errors import LeftOut, Note, UsageError
from specmodel.files import write_text_atomically
from specmodel.units import MILLI

Key: TypeAlias = tuple[float | str | None, ...]
"""Values of some columns of one row; None for an empty number."""

PROVENANCE_COLUMNS: Final = ("file", "line", *ORIGIN_NAMES, "_load", "_details")
"""Where a row comes from and what it is paired by; not written to files.

``_load`` is the load of a row after the format that gave it, None where it has none; ``_details`` how the
row came about.
"""

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

DRAFT_COLUMNS: Final = ("draft_model", "algorithm", "num_steps", "topk", "num_draft_tokens")
"""What is drafted and verified."""

_ALWAYS_WRITTEN = ("accept_length", "output_tokens_per_s", "baseline_tokens_per_s")
_IDENTITY = 1e-6


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
        """Return the points of some rows in their order, with everything else as it is."""
        return replace(self, frame=self.frame.loc[rows].reset_index(drop=True))


def frame_of(readings: Sequence[Reading]) -> pd.DataFrame:
    """Return the rows of some files as one table, pooled in their order."""
    rows = [row for reading in readings for row in reading.rows]
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
    columns["file"] = _texts(str(reading.path) for reading in readings for _ in reading.rows)
    columns["line"] = pd.Series([row.line for row in rows], dtype=np.int64)
    for name in ORIGIN_NAMES:
        columns[name] = _texts(str(row.cells.get(name, "")) for row in rows)
    loads = [
        None if row.load is None else (reading.format, *map(str, row.load))
        for reading in readings
        for row in reading.rows
    ]
    columns["_load"] = pd.Series(loads, dtype=object)
    columns["_details"] = pd.Series([row.details for row in rows], dtype=object)
    return pd.DataFrame(columns)


def _texts(cells: Iterable[str]) -> pd.Series:
    """A column of texts."""
    return pd.Series(list(cells), dtype="str")


def numbers(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """One numeric column as an array; NaN where empty."""
    return np.asarray(frame[name].to_numpy(), dtype=np.float64)


def texts(frame: pd.DataFrame, name: str) -> list[str]:
    """One text column as strings."""
    return [str(value) for value in frame[name].tolist()]


def row_groups(frame: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.intp]:
    """Return a number for each row that rows share where they are equal in some columns.

    Empty numbers are equal, and a throughput counted over the whole is the same as one that does not
    say what it is counted over. Numbers rise in the order of the first rows.

    Examples
    --------
    >>> frame = pd.DataFrame({"gpu": ["H200", "", "H200"], "tp_size": [4.0, np.nan, 4.0]})
    >>> row_groups(frame, ("gpu", "tp_size")).tolist()
    [0, 1, 0]
    """
    cells = {name: frame[name].tolist() for name in columns}
    if "throughput_scope" in cells:
        cells["throughput_scope"] = [
            "" if c == "aggregate" else c for c in cells["throughput_scope"]
        ]
    alike = ([None if c != c else c for c in each] for each in cells.values())  # noqa: PLR0124 - nan
    numbers_of: dict[tuple[object, ...], int] = {}
    groups = [numbers_of.setdefault(key, len(numbers_of)) for key in zip(*alike, strict=True)]
    return np.array(groups, dtype=np.intp)


def row_key(frame: pd.DataFrame, row: int, columns: Sequence[str]) -> Key:
    """Return the values of some columns of one row; None for an empty number."""
    cells = (frame[name].iloc[row] for name in columns)
    return tuple(
        (None if math.isnan(cell) else float(cell)) if isinstance(cell, float) else str(cell)
        for cell in cells
    )


def speculative_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are runs with speculation: all but those at ``num_steps`` 0."""
    return np.asarray(frame["num_steps"].to_numpy() != 0)


_ROUNDING = 5e-3  # of an accept length printed with two decimals


def with_num_steps(points: Points, num_steps: int | None) -> Points:
    """Points whose draft depth is this one where they state none."""
    frame = points.frame
    unstated = frame["num_steps"].isna().to_numpy() & speculative_rows(frame)
    if num_steps is None or not unstated.any():
        return points
    most = float(np.nanmax(frame["accept_length"].to_numpy(dtype=np.float64)[unstated]))
    least = math.ceil(most - 1.0 - _ROUNDING)
    if 1 < num_steps < least:  # one step may draft a whole block
        raise UsageError(
            f"--num-steps of at least {least}",
            f"an accept length of {most:g} is more than a round of depth {num_steps} emits",
        )
    return replace(
        points, frame=frame.assign(num_steps=frame["num_steps"].mask(unstated, num_steps))
    )


def warn_rows(
    frame: pd.DataFrame, rows: NDArray[np.bool_], code: str, message: str
) -> tuple[Note, ...]:
    """Return a note on some rows, one for each file that they are in."""
    if not rows.any():
        return ()
    found = frame.loc[rows, ["file", "line"]]
    return tuple(
        Note(code, message, Path(str(file)), tuple(lines.tolist()))
        for file, lines in found.groupby("file", sort=False)["line"]
    )


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
    batch = numbers(frame, "batch_size")
    tokens = batch * numbers(frame, "accept_length")
    round_s, step_s = (
        numbers(frame, name) * MILLI for name in ("step_time_ms", "baseline_step_time_ms")
    )
    run = numbers(frame, "output_tokens_per_s") * round_s / tokens
    baseline = numbers(frame, "baseline_tokens_per_s") * step_s / batch
    return np.asarray((np.abs(run - 1) < _IDENTITY) & (np.abs(baseline - 1) < _IDENTITY))


def write_points(points: Points, path: Path | str) -> None:
    r"""Write points as a canonical table; the old file stays whole if that is interrupted.

    Parameters
    ----------
    points : Points
        What to write. Columns without a value are left out, and so is where rows come from.
    path : path
        The file.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from calibration import read_points
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench, copy = Path(folder) / "bench.csv", Path(folder) / "copy.csv"
    ...     _ = bench.write_text("tau;tok/s;baseline\n2,1;82,3;90,0\n")
    ...     write_points(read_points(bench), copy)
    ...     print(copy.read_text())
    accept_length,output_tokens_per_s,baseline_tokens_per_s
    2.1,82.3,90
    """
    write_text_atomically(path, format_points(points))


def format_points(points: Points) -> str:
    """Return points as the text of a canonical table; see `write_points`."""
    extra = points.extra_columns
    cells = {n: [_written(c) for c in points.frame[n].tolist()] for n in (*CANONICAL_NAMES, *extra)}
    shadowed = {
        canonical_name(name) for name in extra
    }  # would be read in the place of an absent one
    names = [
        name
        for name in (*CANONICAL_NAMES, *extra)
        if name in extra or name in _ALWAYS_WRITTEN or name in shadowed or any(cells[name])
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*(cells[name] for name in names), strict=True))
    return text.getvalue()


def _written(cell: object) -> str:
    """A cell as it is written: the shortest text that reads back the same."""
    if isinstance(cell, float):
        if math.isnan(cell):
            return ""
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, tuple):
        return ";".join(_written(float(value)) for value in cell)
    return "" if cell is None else str(cell)
