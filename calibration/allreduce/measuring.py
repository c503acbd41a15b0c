"""From log files to measured all-reduces: what can be used, and why the rest cannot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibration.allreduce.allreduce_file import MeasuredAllReduce
from calibration.allreduce.collective_runs import CollectiveReading, CollectiveRun
from calibration.allreduce.curve_points import NoCurveError, curve_points
from calibration.allreduce.fitting import fit_all_reduce
from calibration.allreduce.nccl_tests import read_collectives
from specmodel.cost.allreduce_doubts import curve_doubts
from specmodel.errors import FormatError


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
        line, times = first.get(one.reason, (one.line, 0))
        first[one.reason] = (line, times + 1)
    return [
        f"{reading.path}, line {line}: {reason.replace('_', ' ')}, left out"
        + (f", and {times - 1} more" if times > 1 else "")
        for reason, (line, times) in first.items()
    ]
