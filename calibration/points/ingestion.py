"""What files say before anything is fitted: canonical points, pairs, drops and warnings by group."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.points.files import FileGroup, PathLike, read_groups
from calibration.points.points import points_of
from calibration.points.table import Points, speculative_rows
from calibration.readers import CANONICAL_NAMES, Cell
from specmodel.errors import FormatError, Note

DEPTH_CHANGED = "depth_changed"
"""Code of the warning that a server was run at several depths."""

_ONE_SERVER = ("vllm_bench_serve", "vllm_log", "vllm_request_metrics")  # say the depth by file
_MOST_FILES = 6
_PAIR_COLUMNS = (
    *("target_model", "workload", "batch_size", "context_tokens", "num_steps", "topk"),
    *("num_draft_tokens", "accept_length", "output_tokens_per_s", "baseline_tokens_per_s"),
    *("step_time_ms", "baseline_step_time_ms"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IngestedGroup:
    """One group of files and what was understood of it.

    Parameters
    ----------
    group : FileGroup
        The files, and the error where they cannot be used.
    points : Points or None
        Their rows with baselines matched; None where there are none.
    """

    group: FileGroup
    points: Points | None

    @property
    def era(self) -> tuple[str, ...]:
        """Layouts found, in the order of appearance."""
        eras = (era for reading in self.group.readings for era in reading.era)
        return tuple(dict.fromkeys(eras))

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows, lines or requests were left out, by reason."""
        read = self.group.readings if self.points is None else (self.points,)
        counts: Counter[str] = Counter()
        for rows in read:
            for row in rows.dropped:
                counts[row.code] += row.count
        return dict(counts)

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What should be known about the rows."""
        if self.points is not None:
            return (*self.points.warnings, *_warn_depths(self))
        return tuple(warning for reading in self.group.readings for warning in reading.warnings)

    @property
    def conventions(self) -> tuple[str, ...]:
        """What the numbers mean, and what was converted."""
        said = (one for reading in self.group.readings for one in reading.conventions)
        return tuple(dict.fromkeys(said))

    @property
    def cost_table(self) -> tuple[Mapping[str, float], ...]:
        """Probes of a cost table."""
        return tuple(probe for reading in self.group.readings for probe in reading.cost_table)

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
    """What some files say.

    Parameters
    ----------
    groups : tuple of IngestedGroup
        In the order of their first files.
    points : Points or None
        The rows of all groups, pooled; None where no file has one.
    """

    groups: tuple[IngestedGroup, ...]
    points: Points | None

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


def _warn_depths(one: IngestedGroup) -> tuple[Note, ...]:
    """Return a warning about files that were read together and differ in depth, once for the group."""
    if one.group.format not in _ONE_SERVER or len(one.group.readings) < 2:
        return ()
    known = any(w.code == DEPTH_CHANGED for reading in one.group.readings for w in reading.warnings)
    depths = {row["num_steps"] for row in one.rows if row.get("num_steps")}
    if known or len(depths) < 2:
        return ()
    return (Note(code=DEPTH_CHANGED, message="the files differ in depth: one row for each"),)


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
    """Return the rows of some points with the columns that are filled, canonical ones first.

    Examples
    --------
    >>> from pathlib import Path
    >>> from calibration.readers import Reading, Row
    >>> from calibration.table import frame_of
    >>> row = Row(line=1, cells={"accept_length": 2.5, "num_steps": 3.0}, details={"lines": 4.0})
    >>> frame = frame_of([Reading(path=Path("a.log"), format="log", rows=(row,))])
    >>> filled_rows(Points(frame=frame))
    ({'accept_length': 2.5, 'num_steps': 3.0, '_lines': 4.0},)
    """
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
