"""A reading of collectives as plain JSON, bandwidths computed again from size and time."""

from collections.abc import Mapping
from typing import Any

from calibration.allreduce.runs import (
    CollectiveReading,
    CollectiveRow,
    CollectiveRun,
    Half,
    bus_factor,
)
from specmodel.units import KILO


def summary(reading: CollectiveReading) -> dict[str, Any]:
    """Return a reading as JSON."""
    return {
        "file": reading.path.name,
        "runs": [_run_summary(run) for run in reading.runs],
        "skipped": [{"line": one.line, "reason": one.code} for one in reading.skipped],
    }


def _run_summary(run: CollectiveRun) -> dict[str, Any]:
    """Return a run as JSON."""
    return {
        "collective": run.collective,
        "library": run.library,
        "library_version": run.library_version,
        "nccl_tests_version": run.nccl_tests_version,
        "num_ranks": run.num_ranks,
        "num_nodes": run.num_nodes,
        "gpu": run.gpu,
        "warmup_iters": run.warmup_iters,
        "iters": run.iters,
        "validated": run.validated,
        "graph_launches": run.graph_launches,
        "complete": run.complete,
        "rows": [_row_summary(run, row) for row in run.rows],
        "warnings": list(run.warnings),
    }


def _row_summary(run: CollectiveRun, row: CollectiveRow) -> dict[str, Any]:
    """Return a row as JSON."""
    return {
        "size_bytes": row.size_bytes,
        "count": row.count,
        "dtype": row.dtype,
        "redop": row.redop,
        "root": row.root,
        "out_of_place": _half_summary(run, row, row.out_of_place),
        "in_place": _half_summary(run, row, row.in_place),
    }


def _half_summary(
    run: CollectiveRun, row: CollectiveRow, half: Half | None
) -> Mapping[str, Any] | None:
    """Return half a row as JSON; the bus bandwidth is None where the ranks are not known."""
    if half is None:
        return None
    algorithm = row.size_bytes / half.time_us / KILO  # bytes per µs to GB/s
    bus = None if run.num_ranks is None else algorithm * bus_factor(run.collective, run.num_ranks)
    return {
        "time_us": half.time_us,
        "algbw_gb_per_s": _significant(algorithm),
        "busbw_gb_per_s": None if bus is None else _significant(bus),
        "num_wrong": half.num_wrong,
    }


def _significant(value: float) -> float:
    """Return a number with six significant digits."""
    return float(f"{value:.6g}")
