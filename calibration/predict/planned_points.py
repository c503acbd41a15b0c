"""Rows of a points file to be predicted: every row keeps its place, and no throughput is needed."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.points.baselines import match_baselines
from calibration.points.reading import read_points
from calibration.points.table import format_points, frame_of
from calibration.readers import SourceText, canonical_name, points_csv, read_text, recognise_file
from calibration.readers.header import match_header
from calibration.readers.numerals import is_missing
from calibration.readers.text_tables import Table, split_table
from specmodel.errors import FormatError, Note

_ROW = "row of the file to predict"  # an unknown column: numbers the rows, keeps equal ones apart
_STAND_IN = "1"  # a throughput to be read past; it never reaches a prediction
_FIRST_RECORD_LINE = 3  # of the numbered text: separator, header, records


class PlannedPoints(NamedTuple):
    """A points file, row by row.

    `header` and `cells` are as written. `frame` holds the rows that can be used, in canonical
    columns with baselines matched; `places` is the position of each of them among all rows.
    `refused` says of the others why not.
    """

    header: tuple[str, ...]
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame
    places: tuple[int, ...]
    refused: Mapping[int, Note]


def read_planned_points(
    path: Path, *, progress: Callable[[int], None] | None = None
) -> PlannedPoints:
    """Read a table of points whose rows may lack a throughput.

    Parameters
    ----------
    path : path
        A table as `read_points` reads it, or any other file that it reads: then the table that
        `write_points` would write of it.
    progress : callable, optional
        Told how many bytes of a log have been read since it was told last.

    Returns
    -------
    PlannedPoints
        As many rows as the table has, equal ones included.

    Raises
    ------
    FormatError
        If the file cannot be read, is no table of points or has no row.
    """
    source = _table_text(path, progress)
    table = split_table(source.text, _is_known)
    if table is None or not points_csv.recognise(source.text):
        reason = "not a table of points: it needs a header with accept_length"
        raise FormatError(path, reason, code="no_table")
    if not table.records:
        raise FormatError(path, "a header, and no row below it; add rows to predict")
    text, filled = _numbered_text(table)
    reading = points_csv.read(replace(source, text=text))
    frame, _ = match_baselines(frame_of([reading]))
    places = frame[_ROW].astype(int).to_numpy()
    made_up = np.isin(places, list(filled))
    frame.loc[made_up, "output_tokens_per_s"] = np.nan
    frame.loc[made_up & _from_stand_in(frame), "baseline_tokens_per_s"] = np.nan
    real = places < len(table.records)  # the last one was added
    width = len(table.header.cells)
    refused = {
        row.line - _FIRST_RECORD_LINE: Note(
            row.code, f"{row.column}: {row.message}" if row.column else row.message
        )
        for row in reading.dropped
    }
    for place, record in enumerate(table.records):
        if any(record.cells[width:]):
            reason = f"{len(record.cells)} cells, but the header has {width} columns"
            refused[place] = Note("ragged_row", reason)
    return PlannedPoints(
        header=table.header.cells,
        lines=tuple(record.line for record in table.records),
        cells=tuple(_fitted(record.cells, width) for record in table.records),
        frame=frame.loc[real].reset_index(drop=True),
        places=tuple(places[real].tolist()),
        refused=refused,
    )


def _table_text(path: Path, progress: Callable[[int], None] | None) -> SourceText:
    """The text of a table of points; what a reader knows of another format, as such a table."""
    try:
        found = recognise_file(path)
    except FormatError:
        return read_text(path)  # what is wrong with it is said where a table is read
    if found.reader.FORMAT == points_csv.FORMAT and isinstance(found.source, SourceText):
        return found.source
    text = format_points(read_points(path, progress=progress))
    return SourceText(path=path, text=text, encoding="utf-8")


def _is_known(written: str) -> bool:
    """Whether a header cell names a column that is known."""
    return canonical_name(written) is not None


def _fitted(cells: Sequence[str], width: int) -> tuple[str, ...]:
    """As many cells as there are columns."""
    return tuple([*cells, *[""] * (width - len(cells))][:width])


def _from_stand_in(frame: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which baselines were computed from the row's throughput, and not read."""
    by_ratio = (frame["baseline_origin"] == "step_time") & frame["baseline_step_time_ms"].notna()
    return ((frame["baseline_origin"] == "speedup") | by_ratio).to_numpy()


def _numbered_text(table: Table) -> tuple[str, set[int]]:
    """The table with numbered rows and stand-ins for throughputs, and which rows have one.

    A last row is added that the reader keeps whatever the others are.
    """
    header = table.header.cells
    columns = {one.column.name: one.index for one in match_header(header) if one.column is not None}
    names = [*header, _ROW]
    if "output_tokens_per_s" not in columns:
        columns["output_tokens_per_s"] = len(names)
        names.append("output_tokens_per_s")
    width, filled = len(header), set()
    rows: list[list[str]] = []
    for place, record in enumerate(table.records):
        if any(record.cells[width:]):
            rows.append([""])
            continue
        cells = [*_fitted(record.cells, width), str(place), *[""] * (len(names) - width - 1)]
        output = columns["output_tokens_per_s"]
        if _lacks_throughput(cells, columns):
            if _is_baseline(cells, columns):
                cells[output] = cells[columns.get("baseline_tokens_per_s", output)]
            else:
                cells[output] = _STAND_IN
                filled.add(place)
        rows.append(cells)
    last = [""] * len(names)
    last[columns.get("accept_length", columns.get("full_accuracy", 0))] = "1"
    last[columns["output_tokens_per_s"]] = _STAND_IN
    last[width] = str(len(rows))
    text = io.StringIO()
    text.write(f"sep={table.separator}\n")
    writer = csv.writer(text, delimiter=table.separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([" ".join(cell.split()) for cell in row] for row in [names, *rows, last])
    return text.getvalue(), filled


def _missing(cells: Sequence[str], columns: Mapping[str, int], name: str) -> bool:
    """Whether a row has nothing in a column."""
    return name not in columns or is_missing(cells[columns[name]])


def _is_baseline(cells: Sequence[str], columns: Mapping[str, int]) -> bool:
    """Whether a row is a run without speculation."""
    return "num_steps" in columns and cells[columns["num_steps"]] in {"0", "0.0"}


def _lacks_throughput(cells: Sequence[str], columns: Mapping[str, int]) -> bool:
    """Whether a row's throughput is neither given nor follows from its step time."""
    if not _missing(cells, columns, "output_tokens_per_s"):
        return False
    timed = not any(_missing(cells, columns, name) for name in ("step_time_ms", "batch_size"))
    return not (timed and _missing(cells, columns, "baseline_tokens_per_s"))
