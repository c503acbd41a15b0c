"""From runs to measured all-reduces: the points of a curve, and every reason not to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.allreduce.fitting import FEWEST, MeasuredAllReduce, fit_all_reduce
from calibration.allreduce.reading import read_collectives
from calibration.allreduce.runs import (
    ALL_REDUCE,
    DIFFERENCE,
    CollectiveReading,
    CollectiveRow,
    CollectiveRun,
)
from specmodel.cost.allreduce import curve_doubts
from specmodel.errors import FormatError, SpecModelError
from specmodel.units import MICRO

Array = NDArray[np.float64]

_SLOW_S = 1e-3


class NoCurveError(SpecModelError, ValueError):
    """A run that no curve may come from."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoints:
    """Points of an all-reduce that may be fitted."""

    num_ranks: int  # ranks of the job
    num_nodes: int | None  # none where the file does not say
    size_bytes: Array  # message per rank, rising, [bytes]
    time_s: Array  # the smaller half of each row, the median of rows of one size, [s]
    notes: tuple[str, ...] = ()  # what a user should know about them


def curve_points(
    run: CollectiveRun, *, num_ranks: int | None = None, accept_incomplete: bool = False
) -> CurvePoints:
    """Return the points of a run."""
    ranks = _ranks(run, num_ranks)
    _refuse_wrong(run)
    _refuse_unfinished(run, accept_incomplete=accept_incomplete)
    rows = [row for row in run.rows if row.size_bytes > 0]
    sizes = np.unique([float(row.size_bytes) for row in rows])
    if sizes.size < FEWEST:
        raise NoCurveError(
            "too_few_sizes",
            f"{sizes.size} sizes were measured and a curve needs {FEWEST}; sweep them, as with "
            "-b 1K -e 16M -f 2",
        )
    times = np.array([_time_s(rows, size) for size in sizes])
    return CurvePoints(
        num_ranks=ranks,
        num_nodes=run.num_nodes,
        size_bytes=sizes,
        time_s=times,
        notes=tuple(_notes(run, times)),
    )


def _ranks(run: CollectiveRun, asked: int | None) -> int:
    """Return the ranks of a run, of which there must be two."""
    if run.collective != ALL_REDUCE:
        raise NoCurveError(
            "not_all_reduce", f"{run.collective} is no all-reduce; run all_reduce_perf"
        )
    known = run.num_ranks
    if known is not None and known > 1 and asked is not None and known != asked:
        raise NoCurveError("ranks_differ", f"{known} ranks in the file, {asked} asked for")
    if known == 1:
        several = "independent_ranks" in run.warnings
        cause = "every process printed rank 0: the binary was built without MPI" if several else ""
        raise NoCurveError(
            "single_rank",
            f"one rank reduces nothing{'; ' if cause else ''}{cause}; "
            "start two ranks or more in one job (with -g, -t, or MPI=1 and mpirun)",
        )
    ranks = known if known is not None else asked
    if ranks is None:
        raise NoCurveError("ranks_unknown", "the file does not say how many ranks; give --ranks")
    if ranks < 2:
        raise NoCurveError("single_rank", "one rank reduces nothing; give --ranks of 2 or more")
    return ranks


def _refuse_wrong(run: CollectiveRun) -> None:
    """Refuse a run whose values are wrong, or whose ranks share a device."""
    if run.num_wrong or "wrong_values" in run.warnings:
        raise NoCurveError(
            "wrong_values",
            "values came out wrong, so the times mean nothing; peer access is broken on this machine "
            "(try NCCL_P2P_DISABLE=1, then look at ACS and IOMMU)",
        )
    if "shared_gpu" in run.warnings:
        raise NoCurveError("shared_gpu", "two ranks share one GPU; give every rank its own")
    if "legacy_layout" in run.warnings:
        raise NoCurveError(
            "legacy_layout", "a table of 2017, whose times have no stated unit; measure again"
        )


def _refuse_unfinished(run: CollectiveRun, *, accept_incomplete: bool) -> None:
    """Refuse a run that failed, and one that did not come to its end."""
    if run.failure:
        raise NoCurveError("failed", f"the run failed ({run.failure}); measure again")
    if not run.rows:
        raise NoCurveError(
            "no_rows", "no size was measured: the run hung or ended early (is peer access sound?)"
        )
    largest = max(row.size_bytes for row in run.rows)
    planned = run.largest_planned_bytes
    if run.complete or accept_incomplete or "no_header" in run.warnings:
        return
    if planned is None or largest * 2 <= planned:
        goal = "" if planned is None else f" of {planned}"
        raise NoCurveError(
            "incomplete",
            f"the run stops after {largest}{goal} bytes, hung or cut off; measure again, or take "
            "what is there with --accept-incomplete",
        )


def _time_s(rows: list[CollectiveRow], size: float) -> float:
    """Return the time of a size: smaller halves, the median over rows."""
    times = [min(half.time_us for half in row.halves) for row in rows if row.size_bytes == size]
    return float(np.median(times)) * MICRO


def _notes(run: CollectiveRun, times: Array) -> list[str]:
    """Return what a user should know about the points."""
    found = []
    if "single_process" in run.warnings:
        found.append(
            "one process drives several GPUs, which inflates small messages; measure with one "
            "process per GPU"
        )
    if "not_validated" in run.warnings:
        found.append("the values were not checked (-c 0, or a plain table); check them once")
    differ = [row.size_bytes for row in run.rows if row.halves_differ]
    if differ:
        found.append(
            f"in place and out of place differ by more than {100 * DIFFERENCE:.0f} % at {differ[0]} bytes"
            + (f" and {len(differ) - 1} more" if len(differ) > 1 else "")
            + "; the smaller one counts"
        )
    if "incomplete" in run.warnings:
        found.append("the run has no trailer: it may have been cut off or hung")
    if "ranks_inferred" in run.warnings:
        found.append(f"{run.num_ranks} ranks follow from the bandwidths; no device is named")
    if not run.graph_launches and run.library in {"nccl", "rccl"}:
        found.append("not launched in a CUDA graph (-G); graph decode may differ by some µs")
    if times.min() > _SLOW_S and (run.num_nodes or 1) == 1:
        found.append(
            "more than 1 ms for the smallest message on one node: is it peer access at all?"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What several files say about all-reduces."""

    all_reduces: tuple[MeasuredAllReduce, ...]  # in the order of the files; at least one
    refused: tuple[str, ...] = ()  # runs and rows that were left out, and why


def measure_all_reduces(
    paths: Sequence[Path], *, num_ranks: int | None = None, accept_incomplete: bool = False
) -> Measured:
    """Return the all-reduces of several files."""
    found: list[MeasuredAllReduce] = []
    refused: list[str] = []
    for path in paths:
        reading = read_collectives(path)
        for number, run in enumerate(reading.runs, start=1):
            where = f"{path}, run {number}" if len(reading.runs) > 1 else str(path)
            try:
                found.append(_measured(path, run, num_ranks, accept_incomplete=accept_incomplete))
            except NoCurveError as reason:
                refused.append(f"{where}: {reason}")
        refused += _skipped(reading)
    if not found:
        first = refused[0].removeprefix(f"{paths[0]}").lstrip(",: ") if refused else "nothing"
        raise FormatError(paths[0], f"no all-reduce can be fitted: {first}", code="no_curve")
    return Measured(all_reduces=tuple(found), refused=tuple(refused))


def _measured(
    path: Path, run: CollectiveRun, num_ranks: int | None, *, accept_incomplete: bool
) -> MeasuredAllReduce:
    """Return the fit of a run."""
    points = curve_points(run, num_ranks=num_ranks, accept_incomplete=accept_incomplete)
    fit = fit_all_reduce(points.size_bytes, points.time_s, points.num_ranks)
    return MeasuredAllReduce(
        file=path.name,
        library=run.library,
        library_version=run.library_version,
        gpu=run.gpu,
        num_nodes=run.num_nodes,
        in_graph=None if run.graph_launches is None else run.graph_launches > 0,
        fit=fit,
        notes=(*points.notes, *curve_doubts(fit.curve)),
    )


def _skipped(reading: CollectiveReading) -> list[str]:
    """Return rows that were left out, the first of each reason."""
    first: dict[str, tuple[int, int]] = {}
    for one in reading.skipped:
        line, times = first.get(one.code, (one.line, 0))
        first[one.code] = (line, times + 1)
    return [
        f"{reading.path}, line {line}: {reason.replace('_', ' ')}, left out"
        + (f", and {times - 1} more" if times > 1 else "")
        for reason, (line, times) in first.items()
    ]
