"""Stopwatches: of a CUDA device, and a dry one whose times are made up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import triton

from drafter.engine.captured_run import CapturedRun
from drafter.kernels.launch_plan import device_sm
from drafter.timing.device import DeviceFacts
from drafter.timing.refusals import Samples, check_clocks, check_compilations
from specmodel.errors import ParameterError
from specmodel.measurement import Clocks
from specmodel.measurement.draft_record import DRY, MEASURED
from specmodel.units import GIBI, KIBI, MILLI


class Work(NamedTuple):
    """Launches whose time is wanted."""

    name: str
    run: Callable[[], None]
    made_up_s: float


class Prepared(Protocol):
    """A work that can be replayed."""

    @property
    def num_nodes(self) -> int | None:
        """Nodes of its graph; None where nothing was captured or counted, [-]."""

    def replay(self) -> None:
        """Launch it once."""


class Described(NamedTuple):
    """A device in words."""

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

    @property
    def cache_bytes(self) -> int | None:
        """Last-level cache of the device; None where it does not say, [B]."""

    def described(self) -> Described:
        """Return the device in words."""

    def free_bytes(self) -> int:
        """Return the memory that is free, [B]."""

    def prepared(self, work: Work) -> Prepared:
        """Compile and capture a work."""

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Mean time of one replay over several in a row, [s]."""

    def host_s(self) -> float:
        """Clock of the host, [s]."""

    def clocks(self) -> Clocks | None:
        """Clocks of the device now; None where they cannot be read."""

    def compilations(self) -> int:
        """Kernels that this process compiled so far, [-]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlan:
    """How much is sampled."""

    replays: int = 20
    samples: int = 8
    warm_up_s: float = 1.0


class Timed(NamedTuple):
    """Works that were timed in turns."""

    samples: dict[str, Samples]
    nodes: dict[str, int | None]
    clocks: tuple[Clocks, ...]


def timed(what: str, works: Sequence[Work], stopwatch: Stopwatch, plan: SamplePlan) -> Timed:
    r"""Time some works in turns, in two identical runs.

    .. math:: (w_1, \dots, w_n)^{s},\; (w_1, \dots, w_n)^{s}

    Every work is compiled and captured first; then all run for the warm-up. In turns, so that a drift of
    the device meets all works alike. drafter.md 20.
    """
    ready = {work.name: stopwatch.prepared(work) for work in works}
    begun = stopwatch.host_s()
    while True:  # once at least
        for prepared in ready.values():
            stopwatch.sample_s(prepared, plan.replays)
        if stopwatch.host_s() - begun >= plan.warm_up_s:
            break
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


class CudaStopwatch:
    """Times works on one CUDA device.

    It counts compilations through Triton's hook, and gives the hook back with `close`.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            hint = "there is nothing to time without one"
            raise ParameterError("device", device, "a CUDA device", hint)
        self.kind = MEASURED
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.cache_bytes: int | None = getattr(properties, "L2_cache_size", None)
        self.facts = DeviceFacts(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._compilations = 0
        self._hook_before = triton.knobs.runtime.jit_post_compile_hook
        triton.knobs.runtime.jit_post_compile_hook = self._count

    def _count(self, *arguments: object, **facts: object) -> None:
        """Called by Triton after each compilation."""
        self._compilations += 1
        if self._hook_before is not None:
            self._hook_before(*arguments, **facts)

    def close(self) -> None:
        """Stop counting compilations."""
        triton.knobs.runtime.jit_post_compile_hook = self._hook_before

    def described(self) -> Described:
        """The device in words."""
        return Described(
            name=torch.cuda.get_device_name(self.device),
            uuid=self.facts.uuid,
            driver=self.facts.driver(),
            sm=device_sm(self.device),
            state=self.facts.state(),
        )

    def free_bytes(self) -> int:
        """Memory that is free now."""
        torch.cuda.empty_cache()  # what torch keeps for itself is free too
        return int(torch.cuda.mem_get_info(self.device)[0])

    def prepared(self, work: Work) -> Prepared:
        """Compile and capture a work."""
        return CapturedRun(work.run, device=self.device, pool=self._pool)

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Mean time of one replay over several in a row."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            prepared.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * MILLI / replays

    def host_s(self) -> float:
        """Clock of the host."""
        return time.perf_counter()

    def clocks(self) -> Clocks | None:
        """Clocks of the device now."""
        return self.facts.clocks()

    def compilations(self) -> int:
        """Kernels that were compiled since this stopwatch was made."""
        return self._compilations


class DryWork(NamedTuple):
    """A work that ran once, with its made-up time."""

    time_s: float

    @property
    def num_nodes(self) -> int | None:
        """None: nothing is captured, [-]."""
        return None

    def replay(self) -> None:
        """Do nothing: the work ran when it was prepared."""


class DryStopwatch:
    """Runs each work once and shows its made-up time, so that a whole measurement can be rehearsed.

    Its host clock jumps by a minute with every reading: a warm-up is over at once.
    """

    kind = DRY
    """``dry``: a record of it says so, and nothing is predicted from one."""

    cache_bytes: int | None = 32 * KIBI
    """Made up, so that one line of a buffer flushes it, [B]."""

    def __init__(self) -> None:
        self._host_s = 0.0

    def described(self) -> Described:
        """No device."""
        return Described("none: a dry run in Triton's interpreter", None, None, 0, "")

    def free_bytes(self) -> int:
        """Enough for a rehearsal."""
        return GIBI

    def prepared(self, work: Work) -> Prepared:
        """Run a work once."""
        work.run()
        return DryWork(work.made_up_s)

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Made-up time of a work."""
        del replays
        return prepared.time_s if isinstance(prepared, DryWork) else 0.0

    def host_s(self) -> float:
        """A clock that jumps."""
        self._host_s += 60.0
        return self._host_s

    def clocks(self) -> Clocks | None:
        """No clocks."""
        return None

    def compilations(self) -> int:
        """Nothing is compiled."""
        return 0
