"""Times of works, of a CUDA device or of the interpreter, and the reasons for which a time is refused."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import triton

from drafter.engine.captured_run import CapturedRun
from drafter.kernels.launch_plan import device_sm
from drafter.timing.device import DeviceFacts
from specmodel.errors import ParameterError, SpecModelError
from specmodel.measurement import Clocks, DraftRecord
from specmodel.measurement.draft_record import DRY, MEASURED
from specmodel.units import GIBI, KIBI, MICRO, MILLI, PERCENT

MOST_CLOCK_CHANGE: Final = 3 * PERCENT
"""Relative change of a clock during a measurement, [-]. drafter.md 20."""

MOST_SPREAD: Final = 5 * PERCENT
"""Relative difference of two identical runs, and scatter within one, [-]. A judgement."""

MOST_BEND: Final = 25 * PERCENT
"""Distance of a draft's time from the line over its depths, in slopes, [-]. A judgement."""

LEAST_FLUSHES: Final = 4
"""Bytes that are read to flush a last-level cache, in sizes of that cache, [-]. drafter.md 20."""


class MeasurementError(SpecModelError, RuntimeError):
    """A measurement that would mislead, or that the device ended; `record` holds what was measured before."""

    record: DraftRecord | None = None


class Samples(NamedTuple):
    """Times of one work in two identical runs, between which other works ran.

    Medians, since a launch that was held up is no property of the work.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median of all, [s]."""
        return float(np.median(self.first + self.second))

    @property
    def run_medians_s(self) -> tuple[float, float]:
        """Median of each run, [s]."""
        return float(np.median(self.first)), float(np.median(self.second))

    @property
    def scatter(self) -> float:
        """Distance between the 20th and the 80th percentile over the median, [-]."""
        low, high = np.percentile(self.first + self.second, (20, 80))
        return float((high - low) / self.median_s)

    @property
    def num_samples(self) -> int:
        """Number of samples, [-]."""
        return len(self.first) + len(self.second)


class Difference(NamedTuple):
    """Time of what one work does more than another."""

    time_s: float
    spread: float
    num_samples: int


def relative_difference(one: float, other: float) -> float:
    r"""Distance of two numbers over their mean.

    .. math:: \frac{|a - b|}{(|a| + |b|) / 2}
    """
    scale = (abs(one) + abs(other)) / 2
    return abs(one - other) / scale if scale else 0.0


def difference(whole: Samples, part: Samples) -> Difference:
    """Time of what `whole` does more than `part`: launch of the graph and the flush cancel. drafter.md 20."""
    runs = [a - b for a, b in zip(whole.run_medians_s, part.run_medians_s, strict=True)]
    spread = relative_difference(*runs)
    fewest = min(whole.num_samples, part.num_samples)
    return Difference(whole.median_s - part.median_s, spread, fewest)


def fitted_line(times_s: Mapping[int, float]) -> tuple[float, float]:
    r"""Slope of the least-squares line through times of drafts, and the largest distance from it in slopes.

    .. math:: T_k = a + b\,(k - 1)

    A draft of one step is the extend pass alone, which drafts the first token.
    """
    steps = np.array(sorted(times_s), dtype=np.float64) - 1.0
    times = np.array([times_s[depth] for depth in sorted(times_s)])
    slope, start = np.polyfit(steps, times, 1)
    off = float(np.abs(times - (start + slope * steps)).max())
    return float(slope), off / float(slope) if slope > 0 else np.inf


def step_difference(by_depth: Mapping[int, Samples]) -> Difference:
    """Time of one draft step: the slope over the number of steps.

    Flush, launch and extend pass are in every depth alike and cancel.
    """
    slopes = [
        fitted_line({depth: each.run_medians_s[run] for depth, each in by_depth.items()})[0]
        for run in (0, 1)
    ]
    slope, _ = fitted_line({depth: each.median_s for depth, each in by_depth.items()})
    fewest = min(each.num_samples for each in by_depth.values())
    return Difference(slope, relative_difference(*slopes), fewest)


def clock_change(readings: Sequence[Clocks]) -> dict[str, float]:
    r"""Relative change of each clock over some readings.

    .. math:: \frac{\max f - \min f}{\max f}

    A device that was idle at one of the readings shows as a large change.
    """
    by_name = {
        "multiprocessor": [each.multiprocessor_hz for each in readings],
        "memory": [each.memory_hz for each in readings],
    }
    return {name: (max(hz) - min(hz)) / max(hz) for name, hz in by_name.items() if len(hz) > 1}


def clocks_moved(readings: Sequence[Clocks]) -> str:
    """Why clocks refuse a measurement; empty where they do not. Clocks are read, never set."""
    for name, change in clock_change(readings).items():
        if change > MOST_CLOCK_CHANGE:
            return (
                f"the {name} clock moved by {change / PERCENT:.1f} %, more than "
                f"{MOST_CLOCK_CHANGE / PERCENT:g} %; let the device warm up, cool it or leave it alone"
            )
    return ""


def too_far(spread: float, what: str = "two identical runs differ") -> str:
    """Why a measurement that does not repeat is refused; empty where it repeats."""
    if 0.0 <= spread <= MOST_SPREAD:
        return ""
    return (
        f"{what} by {spread / PERCENT:.1f} %, more than {MOST_SPREAD / PERCENT:g} %; "
        "is anything else running on the device?"
    )


def scattered(*samples: Samples) -> str:
    """Why restless samples are refused, which medians hide; empty where none is."""
    return too_far(max(each.scatter for each in samples), "samples of one work scatter")


def off_line(times_s: Mapping[int, float]) -> str:
    """Why times of drafts that do not rise by one step's time a step are refused; empty where they do.

    Every further step launches the same kernels on the same shapes, so anything but a line is noise.
    """
    slope_s, bend = fitted_line(times_s)
    if not slope_s > 0:
        return f"a further step takes {slope_s / MICRO:.3g} us, which is not positive"
    if bend <= MOST_BEND:
        return ""
    return (
        f"times of {', '.join(map(str, sorted(times_s)))} steps are off a line by "
        f"{bend / PERCENT:.0f} % of a step, more than {MOST_BEND / PERCENT:g} %"
    )


class Work(NamedTuple):
    """Launches whose time is wanted."""

    name: str
    run: Callable[[], None]


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


class CudaStopwatch:
    """Times works on one CUDA device.

    It counts compilations through Triton's hook, and gives the hook back with `close`.
    """

    kind = MEASURED

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            hint = "there is nothing to time without one"
            raise ParameterError("device", device, "a CUDA device", hint)
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.cache_bytes: int | None = getattr(properties, "L2_cache_size", None)
        self.facts = DeviceFacts(device)
        self.name, self.sm = torch.cuda.get_device_name(device), device_sm(device)
        self._pool = torch.cuda.graph_pool_handle()
        self.compilations = 0
        self._hook_before = triton.knobs.runtime.jit_post_compile_hook
        triton.knobs.runtime.jit_post_compile_hook = self._count

    def _count(self, *arguments: object, **facts: object) -> None:
        """Called by Triton after each compilation."""
        self.compilations += 1
        if self._hook_before is not None:
            self._hook_before(*arguments, **facts)

    def close(self) -> None:
        """Stop counting compilations."""
        triton.knobs.runtime.jit_post_compile_hook = self._hook_before

    def free_bytes(self) -> int:
        """Memory that is free now, [B]."""
        torch.cuda.empty_cache()  # what torch keeps for itself is free too
        return int(torch.cuda.mem_get_info(self.device)[0])

    def prepared(self, work: Work) -> Any:
        """Compile and capture a work."""
        return CapturedRun(work.run, device=self.device, pool=self._pool)

    def sample_s(self, prepared: Any, replays: int) -> float:
        """Mean time of one replay over several in a row, [s]."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            prepared.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * MILLI / replays

    def host_s(self) -> float:
        """Clock of the host, [s]."""
        return time.perf_counter()


class _Rehearsed(NamedTuple):
    """A work of a dry run."""

    replay: Callable[[], None]
    num_nodes: int | None = None


class DryStopwatch:
    """Times works by the processor time of this process: a whole measurement can be rehearsed on a CPU.

    What it times are kernels in Triton's interpreter, so its records say that they are dry and nothing is
    predicted from them. Nothing is refused: the interpreter repeats badly.
    """

    kind = DRY
    cache_bytes: int | None = 32 * KIBI  # one line of a buffer flushes it
    name, sm, compilations = "none: a dry run in Triton's interpreter", 0, 0
    facts = DeviceFacts(torch.device("cpu"))

    def free_bytes(self) -> int:
        """Enough for a rehearsal, [B]."""
        return GIBI

    def prepared(self, work: Work) -> Any:
        """A work as it is."""
        return _Rehearsed(work.run)

    def sample_s(self, prepared: Any, replays: int) -> float:
        """Mean processor time of one run over several in a row, [s]."""
        begun = time.process_time()
        for _ in range(replays):
            prepared.replay()
        return max(time.process_time() - begun, MICRO) / replays

    def host_s(self) -> float:
        """Clock of the host, [s]."""
        return time.perf_counter()


Stopwatch = CudaStopwatch | DryStopwatch


def require(watch: Stopwatch, what: str, *reasons: str) -> None:
    """Refuse a measurement for the first reason that is not empty; a rehearsal goes on."""
    said = next(filter(None, reasons), "")
    if said and watch.kind != DRY:
        raise MeasurementError(f"{what}: refused: {said}")


def timed(what: str, works: Sequence[Work], watch: Stopwatch, plan: SamplePlan) -> Timed:
    r"""Time some works in turns, in two identical runs.

    .. math:: (w_1, \dots, w_n)^{s},\; (w_1, \dots, w_n)^{s}

    Every work is compiled and captured first; then all run for the warm-up. In turns, so that a drift of
    the device meets all works alike. A compilation, which takes a second and not microseconds, or a clock
    that moves refuses them. drafter.md 20.
    """
    ready = {work.name: watch.prepared(work) for work in works}
    begun = watch.host_s()
    while True:  # once at least
        for prepared in ready.values():
            watch.sample_s(prepared, plan.replays)
        if watch.host_s() - begun >= plan.warm_up_s:
            break
    compiled = watch.compilations
    readings = [watch.facts.clocks()]
    runs: list[dict[str, list[float]]] = []
    for _ in range(2):
        runs.append({name: [] for name in ready})
        for _ in range(plan.samples):
            for name, prepared in ready.items():
                runs[-1][name].append(watch.sample_s(prepared, plan.replays))
        readings.append(watch.facts.clocks())
    clocks = tuple(each for each in readings if each is not None)
    made = watch.compilations - compiled
    number = "1 kernel was" if made == 1 else f"{made} kernels were"
    why = f"{number} compiled inside the timed region; run the work once before" if made else ""
    require(watch, what, why, clocks_moved(clocks))
    return Timed(
        {name: Samples(*(tuple(run[name]) for run in runs)) for name in ready},
        {name: prepared.num_nodes for name, prepared in ready.items()},
        clocks,
    )
