"""Points from files and to files: read, pooled, matched with their baselines, written."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from calibration.points.baselines import match_baselines
from calibration.points.files import FileGroup, PathLike, read_groups
from calibration.points.systems import systems
from calibration.points.table import Points, frame_of, warn_rows
from calibration.points.unsound import warn_contradicting_times, warn_round_cost_below_one
from calibration.readers import (
    CANONICAL_NAMES,
    Reading,
    Row,
    canonical_name,
)
from specmodel.errors import FormatError, LeftOut, Note
from specmodel.files import write_text_atomically

__all__ = ["Points", "read_points", "write_points"]

_ALWAYS_WRITTEN = ("accept_length", "output_tokens_per_s", "baseline_tokens_per_s")


def read_points(
    paths: PathLike | Sequence[PathLike], *, progress: Callable[[int], None] | None = None
) -> Points:
    r"""Return the measurements of some files, pooled.

    Parameters
    ----------
    paths : path or sequence of paths
        Canonical tables or any file that a reader knows, by content; or folders of them.
    progress : callable, optional
        Told how many bytes have been read since it was told last.

    Returns
    -------
    Points
        Rows in the order of the files, baselines matched across them; rows that cannot be used are
        in ``dropped`` with line and reason.

    Raises
    ------
    FormatError
        If a file cannot be read, is of no known format or has no usable row.
    ParameterError
        If no file is named.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     points = read_points(bench)
    >>> points.frame.loc[0, ["accept_length", "output_tokens_per_s"]].tolist()
    [2.1, 82.3]
    """
    return points_of(read_groups(paths, progress=progress))


def points_of(groups: Sequence[FileGroup]) -> Points:
    """Return the measurements of some groups of files, pooled; see `read_points`.

    Parameters
    ----------
    groups : sequence of FileGroup
        As `read_groups` returns them.

    Returns
    -------
    Points
        Of every file that says something. Files that were found in a folder and say nothing are
        named in a warning.

    Raises
    ------
    FormatError
        If a file that was named cannot be used, or none can.
    """
    broken = [group for group in groups if group.error is not None]
    read = [reading for group in groups for reading in group.readings]
    for group in broken:
        if group.error is not None and (group.named or not read):
            raise group.error
    _refuse_without_rows(read)
    readings, repeated = _without_repeats(read)
    frame, warnings = match_baselines(frame_of(readings))
    points = Points(
        frame=frame,
        dropped=tuple(row for reading in readings for row in reading.dropped) + repeated,
        files=tuple(file for group in groups if group.readings for file in group.files),
        warnings=(
            *(warning for reading in readings for warning in reading.warnings),
            *(_skipped(group.error) for group in broken if group.error is not None),
            *warnings,
            *warn_round_cost_below_one(frame),
            *warn_contradicting_times(frame),
            *_warn_scope(Points(frame=frame)),
        ),
    )
    return replace(points, warnings=(*points.warnings, *_warn_systems(points)))


def write_points(points: Points, path: PathLike) -> None:
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
    """Return points as the text of a canonical table; see `write_points`.

    Examples
    --------
    >>> from calibration.readers import Row
    >>> row = Row(line=2, cells={"accept_length": 2.2, "full_accuracy": (0.7, 0.5)})
    >>> reading = Reading(path=Path("a.log"), format="log", rows=(row,))
    >>> print(format_points(Points(frame=frame_of([reading]))))
    accept_length,output_tokens_per_s,baseline_tokens_per_s,full_accuracy
    2.2,,,0.7;0.5
    """
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
    """Return a cell as it is written: the shortest text that reads back the same."""
    if isinstance(cell, float):
        if math.isnan(cell):
            return ""
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, tuple):
        return ";".join(_written(float(value)) for value in cell)
    return "" if cell is None else str(cell)


def _refuse_without_rows(readings: Sequence[Reading]) -> None:
    """Raise where the files hold something else than measurements, such as a cost table."""
    if readings and not any(reading.rows for reading in readings):
        raise FormatError(
            readings[0].path,
            f"{readings[0].format} holds no measured run; name a benchmark result or a server log",
            code="no_points",
        )


def _skipped(error: FormatError) -> Note:
    """Return a warning about a file of a folder that says nothing."""
    return Note(code="file_skipped", message=f"left out: {error.reason}", path=error.path)


def _without_repeats(readings: list[Reading]) -> tuple[list[Reading], tuple[LeftOut, ...]]:
    """Return the readings without rows that an earlier file has in every column."""
    seen: dict[object, tuple[Path, int]] = {}
    kept_readings = []
    repeated: list[LeftOut] = []
    for reading in readings:
        kept: list[Row] = []
        for row in reading.rows:
            first = seen.get(row.content)
            if first is None:
                kept.append(row)
                continue
            repeated.append(
                LeftOut(
                    path=reading.path,
                    line=row.line,
                    code="duplicate_row",
                    message=f"equal to {first[0]}, line {first[1]}, in every column",
                )
            )
        for row in kept:  # repeats inside a file are its reader's matter
            seen.setdefault(row.content, (reading.path, row.line))
        kept_readings.append(replace(reading, rows=tuple(kept)))
    return kept_readings, tuple(repeated)


def _warn_scope(points: Points) -> tuple[Note, ...]:
    """Return a warning about throughputs that are not those of the whole batch."""
    scope = points.frame["throughput_scope"]
    return warn_rows(
        points.frame,
        (~scope.isin(["", "aggregate"])).to_numpy(),
        "throughput_scope",
        "throughput per user or per GPU: it gives round costs, but no step times and no batch curve",
    )


def _warn_systems(points: Points) -> tuple[Note, ...]:
    """Return a warning about points that need more than one fit."""
    found = systems(points)
    if len(found) < 2:
        return ()
    labels = "; ".join(system.label for system in found[:8])
    more = f"; and {len(found) - 8} more" if len(found) > 8 else ""
    return (
        Note(
            code="two_systems",
            message=f"{len(found)} systems, which need one fit each (--system TEXT picks one): "
            f"{labels}{more}",
        ),
    )
