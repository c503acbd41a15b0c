"""A whole measurement: bandwidth, then every load of a grid, into one record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final

import torch
import triton

from drafter.checkpoint import ModelToRun
from drafter.engine.draft_engine import PROGRAMMATIC_FROM_SM, SharedState
from drafter.floors import step_work
from drafter.timing.device import ReadBuffer, first_line, is_device_failure, kernel_times
from drafter.timing.stopwatch import (
    LEAST_FLUSHES,
    MOST_CLOCK_CHANGE,
    Difference,
    MeasurementError,
    Samples,
    Stopwatch,
    Timed,
    Work,
    clock_change,
    difference,
    off_line,
    require,
    scattered,
    step_difference,
    timed,
    too_far,
)
from drafter.timing.works import (
    FLUSH,
    HOT_STEPS,
    StepLoad,
    TimeLimit,
    TimingGrid,
    WorkSource,
    baseline_name,
    deepest_draft,
    draft_name,
    extend_name,
    extend_works,
    fitting_contexts,
    load_works,
)
from specmodel.measurement import (
    Clocks,
    DraftRecord,
    DraftShapes,
    DraftTiming,
    ExtendTiming,
    KernelTiming,
    StepTiming,
)
from specmodel.measurement.draft_record import COLD, DRY
from specmodel.units import PERCENT
from specmodel.version import __version__

_ATTEMPTS: Final = 2
_MEMORY_SHARE: Final = 0.8
_READS: Final = 4


@dataclass(kw_only=True)
class _Run:
    """What a measurement has from its begin to its end, where it is, and what it found."""

    model: ModelToRun
    weights: Mapping[str, torch.Tensor]
    grid: TimingGrid
    watch: Stopwatch
    flush: ReadBuffer
    limit: TimeLimit
    device: torch.device
    dtype: torch.dtype
    tell: Callable[[str], None]
    driver: str | None
    state: str
    place: str = ""
    bandwidth: float = 0.0
    clocks: list[Clocks] = field(default_factory=list)
    steps: list[StepTiming] = field(default_factory=list)
    extends: list[ExtendTiming] = field(default_factory=list)
    drafts: list[DraftTiming] = field(default_factory=list)
    kernels: tuple[KernelTiming, ...] = ()
    kernels_of: str = ""
    notes: list[str] = field(default_factory=list)
    refused: str = "no load fits in memory"

    def say(self, note: str) -> None:
        """Keep a note for the record, and tell it now."""
        self.notes.append(note)
        self.tell(note)

    def source(self, batch_size: int, longest: int) -> WorkSource:
        """Weights and a cache for so many requests: of random values, since zeros can be faster."""
        state = SharedState(
            self.model.spec,
            self.weights,
            dtype=self.dtype,
            device=self.device,
            capacity=longest + self.grid.spare_slots,
            most_requests=batch_size,
        )
        torch.nn.init.normal_(state.keys)
        torch.nn.init.normal_(state.values)
        multiprocessors = 1
        if self.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            multiprocessors = properties.multi_processor_count
        overlaps = self.watch.sm >= PROGRAMMATIC_FROM_SM
        return WorkSource(state, self.flush, self.grid, multiprocessors, is_programmatic=overlaps)

    def record(self) -> DraftRecord:
        """The record of what was found."""
        model, watch = self.model, self.watch
        names = {each.name for each in fields(DraftShapes)} - {"attention"}
        attention = "grouped" if model.spec.latent is None else "latent"
        timings: tuple[Sequence[StepTiming | ExtendTiming | DraftTiming], ...] = (
            self.steps,
            self.extends,
            self.drafts,
        )
        return DraftRecord(
            kind=watch.kind,
            draft_model=model.name,
            layout=model.layout,
            shapes=DraftShapes(
                **{name: getattr(model.spec, name) for name in names}, attention=attention
            ),
            dtype=str(self.dtype).removeprefix("torch."),
            substituted=model.substituted,
            device=watch.name,
            device_uuid=watch.facts.uuid,
            driver=self.driver,
            sm=watch.sm,
            device_state=self.state,
            clocks_before=self.clocks[0] if self.clocks else None,
            clocks_after=self.clocks[-1] if self.clocks else None,
            torch_version=torch.__version__,
            triton_version=triton.__version__,
            package_version=__version__,
            read_bandwidth_bytes_per_s=self.bandwidth,
            cache_state=COLD,
            spread=max(row.spread for rows in timings for row in rows),
            steps=tuple(self.steps),
            extends=tuple(self.extends),
            drafts=tuple(self.drafts),
            kernels=self.kernels,
            kernels_of=self.kernels_of if self.kernels else "",
            notes=(*self.notes, *self._conditions()),
        )

    def _conditions(self) -> Iterator[str]:
        """What holds for every row: a rehearsal, clocks that were not read or moved."""
        if self.watch.kind == DRY:
            yield "a dry run: every time is of Triton's interpreter, and says nothing of a device"
        elif not self.clocks:
            yield "the clocks could not be read, so they were not checked"
        for name, change in clock_change(self.clocks).items():
            if change > MOST_CLOCK_CHANGE:
                yield f"the {name} clock differs by {change / PERCENT:.1f} % between loads"


def measured_record(
    model: ModelToRun,
    grid: TimingGrid,
    watch: Stopwatch,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    until_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> DraftRecord:
    r"""Time a draft model at every load of a grid.

    Between drafts four times the last-level cache is read: in serving a pass of the target evicts the draft
    model too. A load that is refused is measured once more before it is left out, if there is time. Kernels
    are traced last, since the trace leaves a tool attached that may slow what follows; where that fails, a
    note says so. drafter.md 20 and 21.
    """
    if not watch.cache_bytes:
        raise MeasurementError(
            f"{model.name}: refused: the size of the device's cache is not known"
        )
    run = _Run(
        model=model,
        weights={
            name: value.to(device, dtype if value.is_floating_point() else None)
            for name, value in model.weights.items()
        },
        grid=grid,
        watch=watch,
        flush=ReadBuffer(LEAST_FLUSHES * watch.cache_bytes, device),
        limit=TimeLimit(until_s, watch.host_s),
        device=device,
        dtype=dtype,
        tell=tell,
        driver=watch.facts.driver(),  # now: a lost device does not say it any more
        state=watch.facts.state(),
    )
    run.bandwidth = _read_bandwidth(run)
    tell(f"read bandwidth {run.bandwidth:.3g} B/s")
    with _kept(run):
        for batch_size in sorted(grid.batch_sizes):
            _measure_batch(run, batch_size)
    if not (run.steps and run.extends):
        why = f"nothing is left to record; the last was: {run.refused}"
        raise MeasurementError(f"{model.name}: refused: {why}")
    if watch.kind != DRY:  # nothing is timed after this
        _trace_kernels(run)
    return run.record()


@contextmanager
def _kept(run: _Run) -> Iterator[None]:
    """Make an error of the device carry what was measured before it, where that is a record."""
    try:
        yield
    except Exception as error:
        if not (is_device_failure(error) and run.steps and run.extends):
            raise
        reason = first_line(error)
        run.notes.append(f"{run.place}: ended by an error: {reason}")
        told = f"{run.place}: ended by an error, the loads before it are kept: {reason}"
        cut = MeasurementError(told)
        cut.record = run.record()
        raise cut from error


def _measure_batch(run: _Run, batch_size: int) -> None:
    """Rows of every load of so many requests, or notes on why there are none."""
    run.place = f"batch {batch_size}"
    spec, item = run.model.spec, run.dtype.itemsize
    free = _MEMORY_SHARE * run.watch.free_bytes()
    contexts = fitting_contexts(
        spec, run.grid, batch_size=batch_size, value_bytes=item, free_bytes=free
    )
    for context in sorted(set(run.grid.contexts) - set(contexts)):
        run.notes.append(f"batch {batch_size}, context {context}: does not fit in memory")
    source = None
    for load in run.grid.loads(batch_size):
        if load.context_tokens not in contexts:
            continue
        step_bytes = step_work(
            spec, context_tokens=load.context_tokens, batch_size=batch_size, value_bytes=item
        ).step_bytes
        if not run.limit.allows(load, step_bytes):
            run.say(f"{load}: left out for time")
            continue
        run.place = str(load)
        if source is None:
            source = run.source(batch_size, max(contexts))
        run.tell(run.place)
        may_repeat = partial(run.limit.allows, load, step_bytes)
        run.limit.timed(load, step_bytes, partial(_measure_load, run, source, load, may_repeat))


def _read_bandwidth(run: _Run) -> float:
    """Rate of a kernel that only reads, [B/s]."""
    buffer = ReadBuffer(2 * run.flush.num_bytes, run.device)  # eight times the cache: evicts itself

    def several() -> None:
        for _ in range(_READS):
            buffer.read()

    what, works = "read bandwidth", [Work("one", buffer.read), Work("several", several)]
    found = timed(what, works, run.watch, run.grid.plan)
    run.clocks.extend(found.clocks)
    more = difference(found.samples["several"], found.samples["one"])
    require(run.watch, what, too_far(more.spread), scattered(*found.samples.values()))
    return (_READS - 1) * buffer.num_bytes / more.time_s


def _measure_load(
    run: _Run, source: WorkSource, load: StepLoad, may_repeat: Callable[[], bool]
) -> None:
    """Rows of one load, or a note on why there are none."""
    for attempt in range(_ATTEMPTS):
        try:
            step, draft, found, no_baseline = _steps(run, source, load)
            extends = _extends(run, source, load) if load.topk == run.grid.topks[0] else []
        except MeasurementError as error:
            if attempt + 1 == _ATTEMPTS or not may_repeat():
                run.refused = str(error)
                run.say(run.refused)
                return
            continue
        if no_baseline:
            run.say(f"{load}: no baseline, {no_baseline}")
        run.steps.append(step)
        run.drafts.append(draft)
        run.extends.extend(extends)
        run.clocks.extend(found.clocks)
        return


def _trace_kernels(run: _Run) -> None:
    """Times of the kernels of the deepest draft at the first load, or a note on why there are none."""
    row = run.steps[0]
    load = StepLoad(row.batch_size, row.context_tokens, row.topk)
    try:
        work = deepest_draft(run.source(load.batch_size, load.context_tokens), load)
        run.kernels = kernel_times(run.watch.prepared(work).replay)
    except Exception as error:  # every load is measured by now, and a trace is an extra
        if not is_device_failure(error):
            raise
        run.say(f"kernels were not traced: {first_line(error)}")
    run.kernels_of = f"{load}: a flush and a {draft_name(run.grid.num_steps)}"


def _steps(
    run: _Run, source: WorkSource, load: StepLoad
) -> tuple[StepTiming, DraftTiming, Timed, str]:
    """Step and whole draft of a load, and why it has no baseline where it might have one."""
    grid, what = run.grid, str(load)
    works, no_kernel = load_works(source, load)
    found = timed(what, works, run.watch, grid.plan)
    samples, flush = found.samples, found.samples[FLUSH]
    by_depth = {depth: samples[draft_name(depth)] for depth in grid.depths}
    step = step_difference(by_depth)
    deepest = draft_name(grid.num_steps)
    name = deepest if load.topk == 1 else "whole tree"
    whole = difference(samples[name], flush)
    medians = {depth: each.median_s for depth, each in by_depth.items()}
    restless = scattered(flush, samples[name], *by_depth.values())
    why = (off_line(medians), too_far(step.spread), too_far(whole.spread), restless)
    require(run.watch, what, *why)
    if not min(step.time_s, whole.time_s) > 0:  # not even in a rehearsal
        raise MeasurementError(f"{what}: refused: noise is larger than a draft")
    selection = None if load.topk == 1 else _claimed(difference(samples[name], samples[deepest]))
    base, base_whole, restless = _baseline_times(run, samples)
    nodes = found.nodes[name]
    timing = StepTiming(
        **load._asdict(),
        time_s=step.time_s,
        floor_s=source.work_of(load).step_bytes / run.bandwidth,
        hot_time_s=samples["hot steps"].median_s / HOT_STEPS,
        cold_time_s=_claimed(difference(samples["cold step"], flush)),
        baseline_s=None if base is None else base.time_s,
        baseline_spread=None if base is None else base.spread,
        spread=step.spread,
        num_samples=step.num_samples,
    )
    draft = DraftTiming(
        **load._asdict(),
        num_steps=grid.num_steps,
        num_draft_tokens=source.tree_tokens(load.topk) or grid.num_steps + 1,
        graph_s=whole.time_s,
        graph_nodes=None if nodes is None else nodes - 1,  # without the flush
        selection_s=selection,
        baseline_s=None if base_whole is None else base_whole.time_s,
        spread=whole.spread,
        num_samples=whole.num_samples,
    )
    return timing, draft, found, no_kernel or restless


def _baseline_times(
    run: _Run, samples: Mapping[str, Samples]
) -> tuple[Difference | None, Difference | None, str]:
    r"""Step and whole draft of the baseline, or why it cannot be trusted.

    .. math:: t_b = \frac{T_{k_2} - T_{k_1}}{k_2 - k_1}

    A restless baseline does not refuse the draft that was timed beside it; but nothing is claimed against
    it either. drafter.md 20.
    """
    named = {depth: samples.get(baseline_name(depth)) for depth in run.grid.depths}
    ends = {depth: each for depth, each in named.items() if each is not None}
    if not ends:
        return None, None, ""
    step, whole = step_difference(ends), difference(ends[max(ends)], samples[FLUSH])
    why = too_far(max(step.spread, whole.spread)) or scattered(*ends.values())
    if not (step.time_s > 0 and whole.time_s > 0):
        return None, None, "noise is larger than its step"
    if why and run.watch.kind != DRY:
        return None, None, why
    return step, whole, ""


def _extends(run: _Run, source: WorkSource, load: StepLoad) -> list[ExtendTiming]:
    """Extend passes of a load."""
    what = f"extend passes at {load}"
    found = timed(what, extend_works(source, load, run.grid.accepted), run.watch, run.grid.plan)
    times = {
        count: difference(found.samples[extend_name(count)], found.samples[FLUSH])
        for count in sorted(run.grid.accepted)
    }
    restless = scattered(*found.samples.values())
    require(run.watch, what, restless, *(too_far(each.spread) for each in times.values()))
    batch, context = load.batch_size, load.context_tokens
    return [ExtendTiming(count, batch, context, *each) for count, each in times.items()]


def _claimed(found: Difference) -> float | None:
    """A time that is reported beside others; None where noise is larger than it, [s]."""
    return found.time_s if found.time_s > 0 else None
