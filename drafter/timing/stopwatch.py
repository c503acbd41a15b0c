"""Works to be timed, the stopwatch that times them, and timing in turns until it can be trusted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

from drafter.timing.refusals import check_clocks, check_compilations
from drafter.timing.samples import Samples
from specmodel.measurement import Clocks


class Work(NamedTuple):
    """Launches whose time is wanted.

    Parameters
    ----------
    name : str
        What it is.
    run : callable
        Launches it, on static buffers.
    made_up_s : float
        What a dry stopwatch shows for it, [s].

    Examples
    --------
    >>> Work("nothing", lambda: None, 1e-4).name
    'nothing'
    """

    name: str
    run: Callable[[], None]
    made_up_s: float


class Prepared(Protocol):
    """A work that can be replayed."""

    @property
    def num_nodes(self) -> int | None:
        """Nodes of its graph; None where nothing was captured or counted, [-]."""
        ...

    def replay(self) -> None:
        """Launch it once."""
        ...


class Described(NamedTuple):
    """A device in words.

    Parameters
    ----------
    name : str
        As the device calls itself.
    uuid, driver : str or None
        None where it does not say.
    sm : int
        Compute capability times ten; 0 without a GPU, [-].
    state : str
        Whatever else may move times; empty where nothing is known.

    Examples
    --------
    >>> Described("a CPU", None, None, 0, "").sm
    0
    """

    name: str
    uuid: str | None
    driver: str | None
    sm: int
    state: str


class Stopwatch(Protocol):
    """What times works, and says what else happened meanwhile."""

    @property
    def kind(self) -> str:
        """``measured`` for a device's own clock, ``dry`` for made-up times."""
        ...

    @property
    def cache_bytes(self) -> int | None:
        """Last-level cache of the device; None where it does not say, [B]."""
        ...

    def described(self) -> Described:
        """Return the device in words."""
        ...

    def free_bytes(self) -> int:
        """Return the memory that is free, [B]."""
        ...

    def prepared(self, work: Work) -> Prepared:
        """Compile and capture a work."""
        ...

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Mean time of one replay over several in a row, [s]."""
        ...

    def host_s(self) -> float:
        """Clock of the host, [s]."""
        ...

    def clocks(self) -> Clocks | None:
        """Clocks of the device now; None where they cannot be read."""
        ...

    def compilations(self) -> int:
        """Kernels that this process compiled so far, [-]."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlan:
    """How much is sampled.

    Parameters
    ----------
    replays : int
        Replays of one sample; a pair of events resolves half a microsecond, [-].
    samples : int
        Samples of a work in each of the two runs, [-].
    warm_up_s : float
        Time for the clocks to rise, [s].

    Examples
    --------
    >>> SamplePlan().replays
    20
    """

    replays: int = 20
    samples: int = 8
    warm_up_s: float = 1.0


class Timed(NamedTuple):
    """Works that were timed in turns.

    Parameters
    ----------
    samples : dict of str to Samples
        By name of the work.
    nodes : dict of str to int or None
        Nodes of its graph, [-].
    clocks : tuple of Clocks
        Before, between and after; empty where they cannot be read.

    Examples
    --------
    >>> Timed._fields
    ('samples', 'nodes', 'clocks')
    """

    samples: dict[str, Samples]
    nodes: dict[str, int | None]
    clocks: tuple[Clocks, ...]


def timed(what: str, works: Sequence[Work], stopwatch: Stopwatch, plan: SamplePlan) -> Timed:
    r"""Time some works in turns, in two identical runs.

    .. math:: (w_1, \dots, w_n)^{s},\; (w_1, \dots, w_n)^{s}

    Parameters
    ----------
    what : str
        What they are together, for a refusal.
    works : sequence of Work
        With different names.
    stopwatch : Stopwatch
        What times them.
    plan : SamplePlan
        How much is sampled.

    Returns
    -------
    Timed

    Raises
    ------
    MeasurementRefusedError
        If a clock moved by more than 3 % or a kernel was compiled while works were timed.

    Notes
    -----
    Every work is compiled and captured first; then all run for the warm-up. In turns, so that a drift of
    the device meets all works alike. drafter.md 20.

    Examples
    --------
    >>> from drafter.timing.dry_stopwatch import DryStopwatch
    >>> works = [Work("flush", lambda: None, 1e-4), Work("both", lambda: None, 3e-4)]
    >>> timed("example", works, DryStopwatch(), SamplePlan()).samples["both"].median_s
    0.0003
    """
    ready = {work.name: stopwatch.prepared(work) for work in works}
    _warm_up(ready, stopwatch, plan)
    compiled = stopwatch.compilations()
    readings = [stopwatch.clocks()]
    runs: list[dict[str, list[float]]] = []
    for _ in range(2):
        runs.append({name: [] for name in ready})
        for _ in range(plan.samples):
            for name, prepared in ready.items():
                runs[-1][name].append(stopwatch.sample_s(prepared, plan.replays))
        readings.append(stopwatch.clocks())
    clocks = tuple(each for each in readings if each is not None)
    check_compilations(what, compiled, stopwatch.compilations())
    check_clocks(what, clocks)
    return Timed(
        samples={
            name: Samples(first=tuple(runs[0][name]), second=tuple(runs[1][name])) for name in ready
        },
        nodes={name: prepared.num_nodes for name, prepared in ready.items()},
        clocks=clocks,
    )


def _warm_up(ready: Mapping[str, Prepared], stopwatch: Stopwatch, plan: SamplePlan) -> None:
    """Replay all works in turns, once at least."""
    begun = stopwatch.host_s()
    while True:
        for prepared in ready.values():
            stopwatch.sample_s(prepared, plan.replays)
        if stopwatch.host_s() - begun >= plan.warm_up_s:
            return
