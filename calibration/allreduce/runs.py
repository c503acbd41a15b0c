"""What a benchmark of collectives says: runs, rows and halves of rows, as frozen records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specmodel.errors import LeftOut

# Name of the one collective that enters a curve.
ALL_REDUCE: Final = "all_reduce"

# Difference of the halves of a row, relative to the smaller one, from which it is said. [-]
DIFFERENCE: Final = 0.2

# Most wrong elements that a count is believed for. [-]
MOST_WRONG: Final = 10**15

# Largest message that is believed. [bytes]
MOST_BYTES: Final = 1 << 50

# Most ranks of a job that are believed. [-]
MOST_RANKS: Final = 100_000

_LEAST_US, _MOST_US = 1e-3, 1e10  # a nanosecond to hours

_SHARES_ALL_BUT_ONE = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One measurement of a row: out of place, or in place."""

    time_us: float  # as printed, positive, [µs]
    num_wrong: int | None = None  # elements that were wrong; None when nobody looked


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One message size."""

    line: int  # where it begins, 1-based; the place in the list of results of a JSON file
    # message per rank; the large side of an all-gather or a reduce-scatter, [bytes]
    size_bytes: int
    count: int | None = None  # elements
    # type of an element; None for no reduction, or where the file does not say
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None  # rank of the root; None where the collective has none
    out_of_place: Half | None = None  # none where it was not measured
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
    """One run of a benchmark."""

    collective: str  # ``all_reduce``, ``all_gather``, ...; ``unknown`` where nothing tells
    library: str  # ``nccl``, ``rccl``, or the name that a table gives
    library_version: str | None = None  # as major.minor.patch
    nccl_tests_version: str | None = None
    num_ranks: int | None = None  # none where the file does not say
    num_nodes: int | None = None
    gpu: str | None = None  # name of the devices
    warmup_iters: int | None = None  # settings of the run
    iters: int | None = None
    graph_launches: int | None = None
    validated: bool = False  # whether the values were checked
    complete: bool = False  # whether the run came to its end
    rows: tuple[CollectiveRow, ...] = ()  # in the order of the file
    # codes, sorted; `calibration.allreduce.curves` says what they mean
    warnings: tuple[str, ...] = ()
    # largest size that the run was going to measure, [bytes]
    largest_planned_bytes: int | None = None
    failure: str = ""  # what the log says went wrong; empty where it says nothing

    @property
    def num_wrong(self) -> int:
        """Wrong elements in all rows together."""
        return sum(half.num_wrong or 0 for row in self.rows for half in row.halves)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveReading:
    """Everything that one file says."""

    path: Path  # the file
    runs: tuple[CollectiveRun, ...]  # in the order of the file
    skipped: tuple[LeftOut, ...] = ()  # rows that were left out


def bus_factor(collective: str, num_ranks: int) -> float:
    """Factor from algorithm to bus bandwidth of nccl-tests.

    .. math:: f = 2 (n - 1)/n

    for an all-reduce, :math:`(n - 1)/n` for gathers, scatters and all-to-all, 1 for the others.

    PERFORMANCE.md of [nccl-tests]_.
    """
    if collective == ALL_REDUCE:
        return 2.0 * (num_ranks - 1) / num_ranks
    if collective in _SHARES_ALL_BUT_ONE:
        return (num_ranks - 1) / num_ranks
    return 1.0


def is_possible_time(time_us: float) -> bool:
    """Return whether a collective can take such a time, [µs]."""
    return _LEAST_US <= time_us <= _MOST_US
