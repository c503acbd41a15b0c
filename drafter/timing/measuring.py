"""A whole measurement: bandwidth, then every load of a grid, into one record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import torch
import triton

from drafter.checkpoint import ModelToRun
from drafter.engine.draft_engine import PROGRAMMATIC_FROM_SM, SharedState
from drafter.floors import step_work
from drafter.timing.device import first_line, is_device_failure
from drafter.timing.memory_read import ReadBuffer, kernel_times
from drafter.timing.refusals import (
    LEAST_FLUSHES,
    Difference,
    Findings,
    MeasurementCutError,
    MeasurementRefusedError,
    Samples,
    check_cold,
    check_line,
    check_spread,
    difference,
    step_difference,
)
from drafter.timing.stopwatch import Described, Stopwatch, Timed, Work, timed
from drafter.timing.works import (
    FLUSH,
    HOT_STEPS,
    MADE_UP_BYTES_PER_S,
    StepLoad,
    TimeLimit,
    TimingGrid,
    WorkSource,
    baseline_step,
    deepest_draft,
    draft_name,
    extend_name,
    extend_works,
    fill_cache,
    fitting_contexts,
    load_works,
)
from specmodel.measurement import DraftRecord, DraftShapes, DraftTiming, ExtendTiming, StepTiming
from specmodel.measurement.draft_record import COLD, DRY
from specmodel.version import __version__

_ATTEMPTS: Final = 2
_MEMORY_SHARE: Final = 0.8
_READS: Final = 4


def measured_record(
    model: ModelToRun,
    grid: TimingGrid,
    stopwatch: Stopwatch,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    until_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> DraftRecord:
    """Time a draft model at every load of a grid.

    A load that is refused is measured once more before it is left out, if there is time. Kernels are
    traced last, since the trace leaves a tool attached that may slow what follows; where that fails, a
    note says so. drafter.md 20 and 21.
    """
    cache_bytes = stopwatch.cache_bytes
    flush = ReadBuffer(LEAST_FLUSHES * (cache_bytes or 0), device)
    check_cold(model.name, flush.num_bytes, cache_bytes)
    weights = {
        name: value.to(device, dtype if value.is_floating_point() else None)
        for name, value in model.weights.items()
    }
    findings = Findings(tell=tell)
    bandwidth = _read_bandwidth(stopwatch, grid, flush, device, findings)
    tell(f"read bandwidth {bandwidth:.3g} B/s")
    run = _Run(
        model=model,
        weights=weights,
        grid=grid,
        stopwatch=stopwatch,
        described=stopwatch.described(),
        flush=flush,
        bandwidth_bytes_per_s=bandwidth,
        limit=TimeLimit(until_s, stopwatch.host_s),
        device=device,
        dtype=dtype,
        findings=findings,
    )
    with _kept(run):
        for batch_size in sorted(grid.batch_sizes):
            _measure_batch(run, batch_size)
    if not findings.are_recordable:
        why = findings.refused[-1] if findings.refused else "no load fits in memory"
        raise MeasurementRefusedError(model.name, f"nothing is left to record; the last was: {why}")
    if stopwatch.kind != DRY:  # nothing is timed after this
        _trace_kernels(run)
    return _record(run)


@dataclass(kw_only=True)
class _Run:
    """What a measurement has from its begin to its end, and where it is."""

    model: ModelToRun
    weights: Mapping[str, torch.Tensor]
    grid: TimingGrid
    stopwatch: Stopwatch
    described: Described  # read before the loads: a lost device does not say it any more
    flush: ReadBuffer
    bandwidth_bytes_per_s: float
    limit: TimeLimit
    device: torch.device
    dtype: torch.dtype
    findings: Findings
    place: str = ""

    def source(self, batch_size: int, longest: int) -> WorkSource:
        """Weights and a cache of random values for so many requests."""
        state = SharedState(
            self.model.spec,
            self.weights,
            dtype=self.dtype,
            device=self.device,
            capacity=longest + self.grid.spare_slots,
            most_requests=batch_size,
        )
        fill_cache(state)
        multiprocessors = 1
        if self.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            multiprocessors = properties.multi_processor_count
        return WorkSource(
            state,
            self.flush,
            self.grid,
            multiprocessors,
            is_programmatic=self.described.sm >= PROGRAMMATIC_FROM_SM,
        )


@contextmanager
def _kept(run: _Run) -> Iterator[None]:
    """Make an error of the device carry what was measured before it, where that is a record."""
    try:
        yield
    except Exception as error:
        if not (is_device_failure(error) and run.findings.are_recordable):
            raise
        reason = first_line(error)
        run.findings.notes.append(f"{run.place}: ended by an error: {reason}")
        raise MeasurementCutError(run.place, reason, _record(run)) from error


def _measure_batch(run: _Run, batch_size: int) -> None:
    """Rows of every load of so many requests, or notes on why there are none."""
    run.place = f"batch {batch_size}"
    contexts = fitting_contexts(
        run.model.spec,
        run.grid,
        batch_size=batch_size,
        value_bytes=run.dtype.itemsize,
        free_bytes=_MEMORY_SHARE * run.stopwatch.free_bytes(),
    )
    for context in sorted(set(run.grid.contexts) - set(contexts)):
        run.findings.notes.append(f"batch {batch_size}, context {context}: does not fit in memory")
    source = None
    for load in run.grid.loads(batch_size):
        if load.context_tokens not in contexts:
            continue
        step_bytes = step_work(
            run.model.spec,
            context_tokens=load.context_tokens,
            batch_size=batch_size,
            value_bytes=run.dtype.itemsize,
        ).step_bytes
        if not run.limit.allows(load, step_bytes):
            run.findings.say(f"{load}: left out for time")
            continue
        run.place = str(load)
        if source is None:
            source = run.source(batch_size, max(contexts))
        run.findings.tell(run.place)
        may_repeat = partial(run.limit.allows, load, step_bytes)
        measure = partial(_measure_load, run, source, load, may_repeat=may_repeat)
        run.limit.timed(load, step_bytes, measure)


def _read_bandwidth(
    stopwatch: Stopwatch,
    grid: TimingGrid,
    flush: ReadBuffer,
    device: torch.device,
    findings: Findings,
) -> float:
    """Rate of a kernel that only reads, [B/s]."""
    buffer = ReadBuffer(2 * flush.num_bytes, device)  # eight times the cache: it evicts itself

    def several() -> None:
        for _ in range(_READS):
            buffer.read()

    each_s = buffer.num_bytes / MADE_UP_BYTES_PER_S  # what a dry run shows
    works = [Work("one", buffer.read, each_s), Work("several", several, _READS * each_s)]
    found = timed("read bandwidth", works, stopwatch, grid.plan)
    findings.clocks.extend(found.clocks)
    more = difference(found.samples["several"], found.samples["one"])
    check_spread("read bandwidth", more.spread)
    _check_scatter("read bandwidth", found.samples.values())
    return (_READS - 1) * buffer.num_bytes / more.time_s


def _measure_load(
    run: _Run, source: WorkSource, load: StepLoad, *, may_repeat: Callable[[], bool]
) -> None:
    """Rows of one load, or a note on why there are none."""
    findings = run.findings
    for attempt in range(_ATTEMPTS):
        try:
            step, draft, found, no_baseline = _steps(run, source, load)
            is_first = load.topk == source.grid.topks[0]
            extends = _extends(source, load, run.stopwatch) if is_first else []
        except MeasurementRefusedError as error:
            if attempt + 1 == _ATTEMPTS or not may_repeat():
                findings.refused.append(str(error))
                findings.say(str(error))
                return
            continue
        if no_baseline:
            findings.say(f"{load}: no baseline, {no_baseline}")
        findings.steps.append(step)
        findings.drafts.append(draft)
        findings.extends.extend(extends)
        findings.clocks.extend(found.clocks)
        return


def _trace_kernels(run: _Run) -> None:
    """Times of the kernels of the deepest draft at the first load, or a note on why there are none."""
    findings = run.findings
    row = findings.steps[0]
    load = StepLoad(row.batch_size, row.context_tokens, row.topk)
    try:
        work = deepest_draft(run.source(load.batch_size, load.context_tokens), load)
        findings.kernels = kernel_times(run.stopwatch.prepared(work).replay)
    except Exception as error:  # every load is measured by now, and a trace is an extra
        if not is_device_failure(error):
            raise
        findings.say(f"kernels were not traced: {first_line(error)}")
    findings.kernels_of = f"{load}: a flush and a {draft_name(run.grid.num_steps)}"


def _steps(
    run: _Run, source: WorkSource, load: StepLoad
) -> tuple[StepTiming, DraftTiming, Timed, str]:
    """Step and whole draft of a load, and why it has no baseline where it might have one."""
    grid, what = source.grid, str(load)
    works, no_baseline = load_works(source, load)
    found = timed(what, works, run.stopwatch, grid.plan)
    samples = found.samples
    flush = samples[FLUSH]
    by_depth = {depth: samples[draft_name(depth)] for depth in grid.depths}
    step = step_difference(by_depth)
    check_line(what, {depth: each.median_s for depth, each in by_depth.items()})
    check_spread(what, step.spread)
    deepest = draft_name(grid.num_steps)
    name = deepest if load.topk == 1 else "whole tree"
    whole = difference(samples[name], flush)
    check_spread(what, whole.spread)
    _check_scatter(what, (flush, samples[name], *by_depth.values()))
    selection = None if load.topk == 1 else _claimed(difference(samples[name], samples[deepest]))
    baseline = baseline_step(samples, grid.depths)
    nodes = found.nodes[name]
    timing = StepTiming(
        **load._asdict(),
        time_s=step.time_s,
        floor_s=source.work_of(load).step_bytes / run.bandwidth_bytes_per_s,
        hot_time_s=samples["hot steps"].median_s / HOT_STEPS,
        cold_time_s=_claimed(difference(samples["cold step"], flush)),
        baseline_s=None if baseline.step is None else baseline.step.time_s,
        baseline_spread=None if baseline.step is None else baseline.step.spread,
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
        baseline_s=None if baseline.whole is None else baseline.whole.time_s,
        spread=whole.spread,
        num_samples=whole.num_samples,
    )
    no_kernel = no_baseline and f"torch has no kernel of attention: {no_baseline}"
    return timing, draft, found, no_kernel or baseline.why_none


def _extends(source: WorkSource, load: StepLoad, stopwatch: Stopwatch) -> list[ExtendTiming]:
    """Extend passes of a load."""
    what = f"extend passes at {load}"
    works = extend_works(source, load, source.grid.accepted)
    found = timed(what, works, stopwatch, source.grid.plan)
    _check_scatter(what, found.samples.values())
    rows = []
    for count in sorted(source.grid.accepted):
        each = difference(found.samples[extend_name(count)], found.samples[FLUSH])
        check_spread(what, each.spread)
        rows.append(
            ExtendTiming(
                tokens=count,
                batch_size=load.batch_size,
                context_tokens=load.context_tokens,
                time_s=each.time_s,
                spread=each.spread,
                num_samples=each.num_samples,
            )
        )
    return rows


def _check_scatter(what: str, samples: Iterable[Samples]) -> None:
    """Refuse what medians of restless samples hide."""
    check_spread(what, max(each.scatter for each in samples), kind="samples of one work scatter")


def _claimed(found: Difference) -> float | None:
    """A time that is reported beside others; None where noise is larger than it, [s]."""
    return found.time_s if found.time_s > 0 else None


def _record(run: _Run) -> DraftRecord:
    """The record of what was found."""
    model, device, findings, stopwatch = run.model, run.described, run.findings, run.stopwatch
    findings.note_conditions(is_dry=stopwatch.kind == DRY)
    names = {each.name for each in fields(DraftShapes)} - {"attention"}
    counts: dict[str, Any] = {name: getattr(model.spec, name) for name in names}
    attention = "grouped" if model.spec.latent is None else "latent"
    return DraftRecord(
        kind=stopwatch.kind,
        draft_model=model.name,
        layout=model.layout,
        shapes=DraftShapes(**counts, attention=attention),
        dtype=str(run.dtype).removeprefix("torch."),
        substituted=model.substituted,
        device=device.name,
        device_uuid=device.uuid,
        driver=device.driver,
        sm=device.sm,
        device_state=device.state,
        clocks_before=findings.clocks[0] if findings.clocks else None,
        clocks_after=findings.clocks[-1] if findings.clocks else None,
        torch_version=torch.__version__,
        triton_version=triton.__version__,
        package_version=__version__,
        read_bandwidth_bytes_per_s=run.bandwidth_bytes_per_s,
        cache_state=COLD,
        spread=findings.spread,
        steps=tuple(findings.steps),
        extends=tuple(findings.extends),
        drafts=tuple(findings.drafts),
        kernels=findings.kernels,
        kernels_of=findings.kernels_of if findings.kernels else "",
        notes=tuple(findings.notes),
    )
