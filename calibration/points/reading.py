"""Points of files: read, pooled, matched with their baselines; and what the files say, by group."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.points.baselines import match_baselines
from calibration.points.files import FileGroup, PathLike, read_groups
from calibration.points.loads import without_waiting
from calibration.points.regimes import total_rows
from calibration.points.systems import systems
from calibration.points.table import Points, frame_of, speculative_rows, warn_rows
from calibration.points.unsound import warn_impossible
from calibration.readers import CANONICAL_NAMES, Cell, Reading, Row
from specmodel.errors import FormatError, LeftOut, Note

DEPTH_CHANGED = "depth_changed"
"""Code of the warning that a server was run at several depths."""

_ONE_SERVER = ("vllm_bench_serve", "vllm_log", "vllm_request_metrics")  # say the depth by file
_MOST_FILES = 6
_PAIR_COLUMNS = (
    *("target_model", "workload", "batch_size", "context_tokens", "num_steps", "topk"),
    *("num_draft_tokens", "accept_length", "output_tokens_per_s", "baseline_tokens_per_s"),
    *("step_time_ms", "baseline_step_time_ms"),
)
_PER_PART = (
    "throughput per user or per GPU: it gives round costs, but no step times and no batch curve"
)


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

    Files that were found in a folder and say nothing are named in a note; one that was named is refused.
    """
    broken = [group for group in groups if group.error is not None]
    read = [reading for group in groups for reading in group.readings]
    for group in broken:
        if group.error is not None and (group.named or not read):
            raise group.error
    if read and not any(reading.rows for reading in read):
        raise FormatError(
            read[0].path,
            f"{read[0].format} holds no measured run; name a benchmark result or a server log",
            code="no_points",
        )
    readings, repeated = _without_repeats(read)
    frame, totals = _without_totals(frame_of(readings))
    frame, waiting = without_waiting(frame)
    frame, warnings = match_baselines(frame)
    per_part = frame["throughput_scope"].isin(["per_user", "per_gpu"]).to_numpy()
    points = Points(
        frame=frame,
        dropped=tuple(row for reading in readings for row in reading.dropped) + repeated + totals,
        files=tuple(file for group in groups if group.readings for file in group.files),
        warnings=(
            *(warning for reading in readings for warning in reading.warnings),
            *(
                Note("file_skipped", f"left out: {group.error.reason}", group.error.path)
                for group in broken
                if group.error is not None
            ),
            *waiting,
            *warnings,
            *warn_impossible(frame),
            *warn_rows(frame, per_part, "throughput_scope", _PER_PART),
        ),
    )
    found = systems(points)
    if len(found) < 2:
        return points
    labels = "; ".join(system.label for system in found[:8])
    more = f"; and {len(found) - 8} more" if len(found) > 8 else ""
    message = (
        f"{len(found)} systems, which need one fit each (--system TEXT picks one): {labels}{more}"
    )
    return replace(points, warnings=(*points.warnings, Note("two_systems", message)))


def _without_totals(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[LeftOut, ...]]:
    """Return the table without rows that sum up others."""
    rows = total_rows(frame)
    told = "a total of the other rows, which are used one by one"
    left_out = frame.loc[rows, ["file", "line"]].itertuples(index=False)
    found = tuple(
        LeftOut(path=Path(str(file)), line=int(line), code="total_row", message=told)
        for file, line in left_out
    )
    return frame.loc[~rows].reset_index(drop=True), found


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IngestedGroup:
    """One group of files and what was understood of it."""

    group: FileGroup  # the files, and the error where they cannot be used
    points: Points | None  # their rows with baselines matched; None where there are none

    @property
    def era(self) -> tuple[str, ...]:
        """Layouts found, in the order of appearance."""
        return tuple(dict.fromkeys(era for one in self.group.readings for era in one.era))

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows, lines or requests were left out, by reason."""
        counts: Counter[str] = Counter()
        for read in self.group.readings if self.points is None else (self.points,):
            for row in read.dropped:
                counts[row.code] += row.count
        return dict(counts)

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What should be known about the rows."""
        if self.points is None:
            return tuple(note for one in self.group.readings for note in one.warnings)
        notes = self.points.warnings
        depths = {row["num_steps"] for row in self.rows if row.get("num_steps")}
        by_file = self.group.format in _ONE_SERVER and len(self.group.readings) > 1
        if not by_file or len(depths) < 2 or DEPTH_CHANGED in {note.code for note in notes}:
            return notes
        return (*notes, Note(DEPTH_CHANGED, "the files differ in depth: one row for each"))

    @property
    def conventions(self) -> tuple[str, ...]:
        """What the numbers mean, and what was converted."""
        return tuple(dict.fromkeys(said for one in self.group.readings for said in one.conventions))

    @property
    def cost_table(self) -> tuple[Mapping[str, float], ...]:
        """Probes of a cost table."""
        return tuple(probe for one in self.group.readings for probe in one.cost_table)

    @property
    def rows(self) -> tuple[Mapping[str, Cell], ...]:
        """The rows with the canonical columns that are filled."""
        return () if self.points is None else filled_rows(self.points)

    @property
    def pairs(self) -> tuple[Mapping[str, Cell], ...]:
        """Runs with speculation beside those without at the same load, with cost and speed-up."""
        return () if self.points is None else _pairs(self.points)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ingested:
    """What some files say."""

    groups: tuple[IngestedGroup, ...]  # in the order of their first files
    points: Points | None  # the rows of all groups, pooled; None where no file has one

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What should be known of all groups, files that could not be used included."""
        said = [warning for group in self.groups for warning in group.warnings]
        return tuple(dict.fromkeys([*said, *self.left_out]))

    @property
    def left_out(self) -> tuple[Note, ...]:
        """Which files could not be used, and why."""
        return tuple(_left_out(self.groups))

    @property
    def usable(self) -> bool:
        """Whether any file says something."""
        return any(group.group.readings for group in self.groups)


def _left_out(groups: Sequence[IngestedGroup]) -> list[Note]:
    """Return a warning about files of folders that are of no known format, and one for each other."""
    errors = [one.group for one in groups if one.group.error is not None]
    foreign = [one for one in errors if not one.named and not one.format]
    said = [
        Note(code="file_refused", message=f"refused: {one.error.reason}", path=one.files[0])
        for one in errors
        if one.error is not None and one not in foreign
    ]
    if foreign:
        names = ", ".join(one.files[0].name for one in foreign[:_MOST_FILES])
        more = len(foreign) - _MOST_FILES
        rest = f" and {more} more" if more > 0 else ""
        said.append(Note(code="file_skipped", message=f"no known format, left out: {names}{rest}"))
    return said


def ingest(
    paths: PathLike | Sequence[PathLike], *, progress: Callable[[int], None] | None = None
) -> Ingested:
    r"""Return what files and folders say, by groups of files that belong together.

    Parameters
    ----------
    paths : path or sequence of paths
        Anything a reader knows, or folders of it.
    progress : callable, optional
        Told how many bytes have been read since it was told last.

    Returns
    -------
    Ingested
        Files that cannot be used are groups with an error.

    Raises
    ------
    ParameterError
        If nothing is named.
    FormatError
        If a folder holds no file, or too many.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = pathlib.Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     found = ingest(bench)
    >>> found.groups[0].group.format, dict(found.groups[0].rows[0])["accept_length"]
    ('points_csv', 2.1)
    """
    groups = read_groups(paths, progress=progress)
    with_rows = [group for group in groups if any(reading.rows for reading in group.readings)]
    ingested = tuple(
        IngestedGroup(group=group, points=points_of([group]) if group in with_rows else None)
        for group in groups
    )
    return Ingested(groups=ingested, points=points_of(with_rows) if with_rows else None)


def first_error(ingested: Ingested) -> FormatError | None:
    """Return why nothing could be used, None where something could."""
    errors = [one.group.error for one in ingested.groups if one.group.error is not None]
    return errors[0] if errors and not ingested.usable else None


def filled_rows(points: Points) -> tuple[Mapping[str, Cell], ...]:
    """Return the rows of some points with the columns that are filled, canonical ones first."""
    names = (*CANONICAL_NAMES, *points.extra_columns)
    columns = {name: points.frame[name].tolist() for name in names}
    details = points.frame["_details"].tolist()
    return tuple(
        {
            **{name: cells[row] for name, cells in columns.items() if _is_filled(cells[row])},
            **{f"_{name}": cell for name, cell in details[row].items()},
        }
        for row in range(len(points))
    )


def _pairs(points: Points) -> tuple[Mapping[str, Cell], ...]:
    """Return the rows that were paired with a run without speculation in the same files."""
    frame = points.frame
    paired = speculative_rows(frame) & (frame["baseline_origin"] == "rows").to_numpy()
    pairs = []
    for row in np.flatnonzero(paired):
        cells = {name: frame[name][row] for name in _PAIR_COLUMNS}
        pair = {name: cell for name, cell in cells.items() if _is_filled(cell)}
        if "step_time_ms" in pair and "baseline_step_time_ms" in pair:
            pair["round_cost"] = pair["step_time_ms"] / pair["baseline_step_time_ms"]
        if "output_tokens_per_s" in pair:
            pair["speedup"] = pair["output_tokens_per_s"] / pair["baseline_tokens_per_s"]
        pairs.append(pair)
    return tuple(pairs)


def _is_filled(cell: object) -> bool:
    """Return whether a cell of the table holds something."""
    if isinstance(cell, float):
        return not np.isnan(cell)
    return cell is not None and cell != ""
