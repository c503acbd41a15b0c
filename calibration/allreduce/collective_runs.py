"""What a benchmark of collectives says: runs, rows and halves of rows, as frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from specmodel.units import KILO

ALL_REDUCE: Final = "all_reduce"
"""Name of the one collective that enters a curve."""

DIFFERENCE: Final = 0.2
"""Difference of the halves of a row, relative to the smaller one, from which it is said. [-]"""

MOST_WRONG: Final = 10**15
"""Most wrong elements that a count is believed for. [-]"""

MOST_BYTES: Final = 1 << 50
"""Largest message that is believed. [bytes]"""

MOST_RANKS: Final = 100_000
"""Most ranks of a job that are believed. [-]"""

_LEAST_US, _MOST_US = 1e-3, 1e10  # a nanosecond to hours

_SHARES_ALL_BUT_ONE = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
_SIGNIFICANT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One measurement of a row: out of place, or in place.

    Parameters
    ----------
    time_us : float
        As printed, positive, [µs].
    num_wrong : int or None
        Elements that were wrong; None when nobody looked.
    """

    time_us: float
    num_wrong: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One message size.

    Parameters
    ----------
    line : int
        Where it begins, 1-based; the place in the list of results of a JSON file.
    size_bytes : int
        Message per rank; the large side of an all-gather or a reduce-scatter, [bytes].
    count : int or None
        Elements.
    dtype, redop : str or None
        Type of an element; None for no reduction, or where the file does not say.
    root : int or None
        Rank of the root; None where the collective has none.
    out_of_place, in_place : Half or None
        None where it was not measured.
    """

    line: int
    size_bytes: int
    count: int | None = None
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    out_of_place: Half | None = None
    in_place: Half | None = None

    @property
    def halves(self) -> tuple[Half, ...]:
        """The halves that were measured."""
        return tuple(half for half in (self.out_of_place, self.in_place) if half is not None)

    @property
    def halves_differ(self) -> bool:
        """Whether the halves differ by more than `DIFFERENCE`: a warm-up, or noise."""
        times = [half.time_us for half in self.halves]
        return len(times) > 1 and max(times) > (1.0 + DIFFERENCE) * min(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRun:
    """One run of a benchmark.

    Parameters
    ----------
    collective : str
        ``all_reduce``, ``all_gather``, ...; ``unknown`` where nothing tells.
    library : str
        ``nccl``, ``rccl``, or the name that a table gives.
    library_version, nccl_tests_version : str or None
        As major.minor.patch.
    num_ranks, num_nodes : int or None
        None where the file does not say.
    gpu : str or None
        Name of the devices.
    warmup_iters, iters, graph_launches : int or None
        Settings of the run.
    validated : bool
        Whether the values were checked.
    complete : bool
        Whether the run came to its end.
    rows : tuple of CollectiveRow
        In the order of the file.
    warnings : tuple of str
        Codes, sorted; `calibration.allreduce.curve_points` says what they mean.
    largest_planned_bytes : int or None
        Largest size that the run was going to measure, [bytes].
    failure : str
        What the log says went wrong; empty where it says nothing.
    """

    collective: str
    library: str
    library_version: str | None = None
    nccl_tests_version: str | None = None
    num_ranks: int | None = None
    num_nodes: int | None = None
    gpu: str | None = None
    warmup_iters: int | None = None
    iters: int | None = None
    graph_launches: int | None = None
    validated: bool = False
    complete: bool = False
    rows: tuple[CollectiveRow, ...] = ()
    warnings: tuple[str, ...] = ()
    largest_planned_bytes: int | None = None
    failure: str = ""

    @property
    def num_wrong(self) -> int:
        """Wrong elements in all rows together."""
        return sum(half.num_wrong or 0 for row in self.rows for half in row.halves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that was left out.

    Parameters
    ----------
    line : int
        Where it begins, 1-based.
    reason : str
        ``truncated_row``, ``malformed_row``, ``not_measured`` or ``not_positive``.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveReading:
    """Everything that one file says.

    Parameters
    ----------
    path : Path
        The file.
    runs : tuple of CollectiveRun
        In the order of the file.
    skipped : tuple of Skipped
        Rows that were left out.
    """

    path: Path
    runs: tuple[CollectiveRun, ...]
    skipped: tuple[Skipped, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the reading as JSON, bandwidths computed again from size and time.

        Neither hosts nor process ids nor the environment are part of it.

        Examples
        --------
        >>> CollectiveReading(path=Path("nccl.txt"), runs=()).summary()
        {'file': 'nccl.txt', 'runs': [], 'skipped': []}
        """
        return {
            "file": self.path.name,
            "runs": [_run_summary(run) for run in self.runs],
            "skipped": [{"line": one.line, "reason": one.reason} for one in self.skipped],
        }


def bus_factor(collective: str, num_ranks: int) -> float:
    r"""Factor from algorithm to bus bandwidth of nccl-tests.

    .. math:: f = 2 (n - 1)/n

    for an all-reduce, :math:`(n - 1)/n` for gathers, scatters and all-to-all, 1 for the others.

    Parameters
    ----------
    collective : str
        Name without ``_perf``.
    num_ranks : int
        :math:`n`, at least 1.

    Returns
    -------
    float

    Notes
    -----
    PERFORMANCE.md of [nccl-tests]_.

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if collective == ALL_REDUCE:
        return 2.0 * (num_ranks - 1) / num_ranks
    if collective in _SHARES_ALL_BUT_ONE:
        return (num_ranks - 1) / num_ranks
    return 1.0


def is_possible_time(time_us: float) -> bool:
    """Return whether a collective can take such a time, [µs].

    Examples
    --------
    >>> is_possible_time(7.5), is_possible_time(0.0), is_possible_time(1e300)
    (True, False, False)
    """
    return _LEAST_US <= time_us <= _MOST_US


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
    return float(f"{value:.{_SIGNIFICANT}g}")
