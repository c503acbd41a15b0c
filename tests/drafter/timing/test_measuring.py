"""A whole measurement on a fake clock: arithmetic of the rows, and what becomes of refused loads."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from drafter.checkpoint import ModelToRun, random_weights
from drafter.engine.draft_engine import SharedState
from drafter.public_models import example_spec
from drafter.timing import measuring, works
from drafter.timing.measuring import measured_record
from drafter.timing.stopwatch import MeasurementError, SamplePlan
from drafter.timing.works import StepLoad, TimingGrid, TorchBaseline, WorkSource
from specmodel.measurement import Clocks, DraftRecord, KernelTiming, load_record, save_record

GRID = TimingGrid(
    batch_sizes=(1, 4),
    contexts=(16, 64),
    topks=(1, 2),
    depths=(1, 3, 5),
    accepted=(2, 1),
    num_draft_tokens=6,
    plan=SamplePlan(replays=2, samples=3, warm_up_s=0.0),
)
FLUSH_S, STEP_S, EXTEND_S, READ_S = 1e-4, 2e-4, 3e-4, 5e-5
TIMES = {
    "flush": FLUSH_S,
    "one": READ_S,
    "several": 4 * READ_S,
    "whole tree": FLUSH_S + EXTEND_S + 4 * STEP_S + 7e-6,
    "cold step": FLUSH_S + 2.2e-4,
    "hot steps": 4 * 1.5e-4,
    **{f"draft of {k}": FLUSH_S + EXTEND_S + (k - 1) * STEP_S for k in (1, 3, 5)},
    **{f"baseline of {k}": FLUSH_S + 5e-4 + (k - 1) * 3e-4 for k in (1, 3, 5)},
    **{f"extend of {m}": FLUSH_S + EXTEND_S + 1e-6 * m for m in (1, 2)},
}
Measure = Callable[..., DraftRecord]


@pytest.fixture
def measure(fake: Any) -> Measure:
    spec = example_spec()
    model = ModelToRun(
        name="example",
        layout="none",
        spec=spec,
        weights=random_weights(spec, seed=0, dtype=torch.float32),
        substituted=("embed_tokens.weight: random",),
    )

    def run(
        *,
        tell: Callable[[str], None] = lambda _: None,
        until_s: float | None = None,
        **behaviour: Any,
    ) -> DraftRecord:
        behaviour = {"time_s": lambda work, _: TIMES[work.name]} | behaviour
        return measured_record(
            model, GRID, fake(**behaviour), device=torch.device("cpu"), until_s=until_s, tell=tell
        )

    return run


def test_every_load_of_the_grid_has_its_rows(measure: Measure) -> None:
    record = measure()
    loads = {(row.batch_size, row.context_tokens, row.topk) for row in record.steps}
    assert loads == {(b, c, t) for b in (1, 4) for c in (16, 64) for t in (1, 2)}
    assert len(record.drafts) == len(record.steps) == 8
    extends = {(row.tokens, row.batch_size, row.context_tokens) for row in record.extends}
    assert extends == {(m, b, c) for m in (1, 2) for b in (1, 4) for c in (16, 64)}


def test_a_step_is_the_slope_and_flush_and_launch_are_in_no_row(measure: Measure) -> None:
    record = measure()
    for row in record.steps:
        assert row.time_s == pytest.approx(STEP_S)
        assert row.cold_time_s == pytest.approx(2.2e-4)
        assert row.hot_time_s == pytest.approx(1.5e-4)
        assert row.baseline_s == (pytest.approx(3e-4) if row.topk == 1 else None)
        assert row.num_samples == 6
    for extend in record.extends:
        assert extend.time_s == pytest.approx(EXTEND_S + 1e-6 * extend.tokens)
    for draft in record.drafts:
        selection_s = 7e-6 if draft.topk == 2 else 0.0
        assert draft.graph_s == pytest.approx(EXTEND_S + 4 * STEP_S + selection_s)
        assert draft.selection_s == (pytest.approx(7e-6) if draft.topk == 2 else None)
        assert draft.graph_nodes == 11  # of 12 one is the flush
        assert draft.num_draft_tokens == 6


def test_the_floor_is_the_bytes_of_the_step_at_the_measured_bandwidth(measure: Measure) -> None:
    record = measure()
    # two of the lines of which one flushes 1000 bytes: 32768 numbers of 4 bytes each
    assert record.read_bandwidth_bytes_per_s == pytest.approx(2 * 32768 * 4 / READ_S)
    # P of drafter.md 9 for the example's counts, 2 bytes each, and its cache
    parameters = 2 * 24 * (4 + 2 * 2) * 8 + 4 * 8 * 24 + 3 * 24 * 40 + 29 * 24
    for row in record.steps:
        num_bytes = 2 * parameters + row.batch_size * row.context_tokens * 2 * 2 * 8 * 2
        assert row.floor_s == pytest.approx(num_bytes / record.read_bandwidth_bytes_per_s)


def test_the_record_says_what_was_measured_on_what(measure: Measure, tmp_path: Any) -> None:
    record = measure()
    assert (record.kind, record.cache_state) == ("measured", "cold")
    assert (record.device, record.device_uuid, record.sm) == ("a fake", "GPU-0", 90)
    assert record.substituted == ("embed_tokens.weight: random",)
    assert record.clocks_before is not None
    assert record.shapes.mlp_width == 40
    assert record.notes == ()
    save_record(record, tmp_path / "drafter.json")
    assert load_record(tmp_path / "drafter.json") == record


def test_a_load_that_does_not_repeat_is_left_out_and_named(measure: Measure) -> None:
    told: list[str] = []

    def restless(work: Any, number: int) -> float:
        # a whole tree of one load takes 20 % longer in every second run of three samples
        late = work.name == "whole tree" and (number // 7) < 2 and (number % 7) > 3
        return TIMES[work.name] * (1.2 if late else 1.0)

    record = measure(time_s=restless, tell=told.append)
    assert (1, 16, 2) not in {(r.batch_size, r.context_tokens, r.topk) for r in record.steps}
    assert len(record.steps) == 7
    (note,) = record.notes
    assert note.startswith("batch 1, context 16, topk 2: refused: two identical runs differ")
    assert note in told


@pytest.mark.parametrize("work", ["draft of 5", "extend of 2", "several"])
def test_samples_that_scatter_around_equal_medians_are_refused(measure: Measure, work: str) -> None:
    def restless(each: Any, number: int) -> float:
        off: float = 0.2 * (number % 3 - 1) if each.name == work else 0.0
        return TIMES[each.name] * (1.0 + off)

    with pytest.raises(MeasurementError, match=r"samples of one work scatter by 40\.0 %"):
        measure(time_s=restless)


def test_a_load_that_was_disturbed_once_is_measured_again(measure: Measure) -> None:
    def disturbed(work: Any, number: int) -> float:
        late = work.name == "whole tree" and 4 <= number < 7
        return TIMES[work.name] * (1.2 if late else 1.0)

    record = measure(time_s=disturbed)
    assert (len(record.steps), record.notes) == (8, ())


def test_nothing_is_recorded_where_every_load_is_refused(measure: Measure) -> None:
    def flat(work: Any, _: int) -> float:
        return 1e-4 if work.name.startswith("draft") else TIMES[work.name]

    with pytest.raises(MeasurementError, match="nothing is left to record; the last was"):
        measure(time_s=flat)


def test_clocks_that_move_in_every_load_refuse_the_measurement(measure: Measure) -> None:
    def ramp() -> Any:
        yield from [Clocks(multiprocessor_hz=2e9, memory_hz=3e9)] * 3  # the bandwidth
        hertz = 1.0e9
        while True:
            hertz *= 1.02
            yield Clocks(multiprocessor_hz=hertz, memory_hz=3e9)

    with pytest.raises(MeasurementError, match="the multiprocessor clock moved"):
        measure(readings=ramp())


def test_clocks_that_could_not_be_read_are_said(measure: Measure) -> None:
    record = measure(readings=iter([None] * 1000))
    assert record.clocks_before is None
    assert "the clocks could not be read, so they were not checked" in record.notes


def test_clocks_that_differ_between_loads_are_said(measure: Measure) -> None:
    def two_speeds() -> Any:
        for hertz in (2e9, 1.8e9):
            yield from [Clocks(multiprocessor_hz=hertz, memory_hz=3e9)] * 15
        yield from [Clocks(multiprocessor_hz=1.8e9, memory_hz=3e9)] * 1000

    assert (
        "the multiprocessor clock differs by 10.0 % between loads"
        in measure(readings=two_speeds()).notes
    )


def test_a_device_whose_cache_is_unknown_is_refused(measure: Measure) -> None:
    with pytest.raises(MeasurementError, match="size of the device's cache is not known"):
        measure(cache_bytes=None)


def test_contexts_that_do_not_fit_are_named(measure: Measure) -> None:
    # 4 requests x 2 heads x 8 x 2 bytes x 4: 512 bytes a slot; 16 + 11 slots fit, 64 + 11 do not
    record = measure(memory_bytes=int(512 * 40 / 0.8))
    assert record.notes == ("batch 4, context 64: does not fit in memory",)
    with pytest.raises(MeasurementError, match="no load fits in memory"):
        measure(memory_bytes=0)


def test_noise_larger_than_the_selection_leaves_it_out(measure: Measure) -> None:
    times = TIMES | {"whole tree": TIMES["draft of 5"] - 1e-7}
    record = measure(time_s=lambda work, _: times[work.name])
    assert {row.selection_s for row in record.drafts} == {None}


NO_KERNEL = (
    "No viable backend for scaled_dot_product_attention was found.\nException raised from ..."
)


def failing(reason: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise reason

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fail)


def test_where_torch_has_no_kernel_of_attention_the_record_says_what_torch_says(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(RuntimeError(NO_KERNEL), monkeypatch)
    record = measure()
    assert {row.baseline_s for row in record.steps} == {None}
    assert record.notes == tuple(
        f"batch {b}, context {c}, topk 1: no baseline, torch has no kernel of attention: "
        "No viable backend for scaled_dot_product_attention was found."
        for b in (1, 4)
        for c in (16, 64)
    )


def test_any_other_failure_of_the_baseline_is_raised_as_it_is(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(RuntimeError("CUDA error: an illegal access\nmore"), monkeypatch)
    with pytest.raises(RuntimeError, match=r"\ACUDA error: an illegal access"):
        measure()


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (RuntimeError("the device is lost\nmore of it"), "the device is lost"),
        (torch.OutOfMemoryError("CUDA out of memory"), "CUDA out of memory"),
        (OutOfResources(300_000, 232_448, "shared memory"), "Hardware limit: 232448"),
        (PTXASError("no such target"), "PTXASError: no such target"),
        (CompilationError(None, None, "no such type"), "CompilationError: no such type"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_error_at_a_later_load_keeps_what_was_measured_before(
    lost: Exception, words: str, measure: Measure, tmp_path: Path
) -> None:
    def time_s(work: Any, _: int) -> float:
        if told[-1].startswith("batch 4"):
            raise lost
        return TIMES[work.name]

    told: list[str] = [""]
    with pytest.raises(MeasurementError) as caught:
        measure(tell=told.append, time_s=time_s)
    said = str(caught.value)
    assert said.startswith("batch 4, context 16, topk 1: ended by an error")
    assert words in said
    assert len(said.splitlines()) == 1
    kept = caught.value.record
    assert kept is not None
    assert {(row.batch_size, row.context_tokens, row.topk) for row in kept.steps} == {
        (1, context, topk) for context in (16, 64) for topk in (1, 2)
    }
    assert kept.kernels == (), "a lost device is not traced"
    save_record(kept, tmp_path / "drafter.json")
    assert words in load_record(tmp_path / "drafter.json").notes[-1]


def fail_from(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and cache of this batch, and of those after it, find too little memory."""
    made = SharedState
    calls = count(1)

    def make(*arguments: Any, **options: Any) -> SharedState:
        if next(calls) >= number:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return made(*arguments, **options)

    monkeypatch.setattr(measuring, "SharedState", make)


def test_a_later_batch_without_memory_for_its_cache_keeps_those_before(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_from(2, monkeypatch)
    with pytest.raises(MeasurementError, match="batch 4, context 16, topk 1: ended") as caught:
        measure()
    assert caught.value.record is not None
    assert {row.batch_size for row in caught.value.record.steps} == {1}
    assert len(caught.value.record.steps) == 4


def test_a_trace_that_fails_leaves_the_times_and_is_said(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_from(3, monkeypatch)  # two batches, then the trace
    record = measure()
    assert len(record.steps) == 8
    assert (record.kernels, record.kernels_of) == ((), "")
    assert record.notes == ("kernels were not traced: CUDA out of memory",)


def test_the_trace_builds_no_baseline(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[StepLoad] = []
    made = works._baseline

    def build(source: WorkSource, load: StepLoad) -> TorchBaseline:
        built.append(load)
        return made(source, load)

    monkeypatch.setattr(works, "_baseline", build)
    measure()
    assert built == [StepLoad(batch, context, 1) for batch in (1, 4) for context in (16, 64)]


def test_an_error_before_there_is_an_extend_pass_is_raised_as_it_is(measure: Measure) -> None:
    """Extend passes are timed with chains; the only chain before the error is refused."""

    def time_s(work: Any, _: int) -> float:
        if "context 64" in told[-1]:
            raise RuntimeError("the device is lost")
        is_first = told[-1].startswith("batch 1, context 16, topk 1")
        return 1e-4 if is_first and work.name.startswith("draft") else TIMES[work.name]

    told: list[str] = [""]
    with pytest.raises(RuntimeError, match=r"\Athe device is lost\Z"):
        measure(tell=told.append, time_s=time_s)
    assert "batch 1, context 16, topk 2" in told


def test_a_defect_of_our_own_is_no_failure_of_the_device(measure: Measure) -> None:
    def time_s(work: Any, _: int) -> float:
        if told[-1].startswith("batch 4"):
            raise KeyError(work.name)
        return TIMES[work.name]

    told: list[str] = [""]
    with pytest.raises(KeyError):
        measure(tell=told.append, time_s=time_s)


def test_a_device_without_memory_for_the_baseline_says_so_itself(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(torch.OutOfMemoryError("CUDA out of memory"), monkeypatch)
    with pytest.raises(torch.OutOfMemoryError):
        measure()


def test_a_baseline_that_is_lost_in_noise_is_said(measure: Measure) -> None:
    times = TIMES | {"baseline of 5": TIMES["baseline of 1"]}
    record = measure(time_s=lambda work, _: times[work.name])
    assert {row.baseline_s for row in record.steps} == {None}
    assert (
        record.notes[0] == "batch 1, context 16, topk 1: no baseline, noise is larger than its step"
    )


def test_a_restless_baseline_is_left_out_and_the_draft_beside_it_stays(measure: Measure) -> None:
    def scattered(work: Any, number: int) -> float:
        off = 0.2 * (number % 3 - 1) if work.name == "baseline of 1" else 0.0
        return TIMES[work.name] * (1.0 + off)

    record = measure(time_s=scattered)
    assert len(record.steps) == 8
    assert {row.baseline_s for row in record.steps} == {None}
    assert {row.baseline_s for row in record.drafts} == {None}
    said = "batch 1, context 16, topk 1: no baseline, samples of one work scatter by "
    assert record.notes[0].startswith(said)


def test_a_baseline_that_does_not_repeat_is_left_out(measure: Measure) -> None:
    def drifting(work: Any, number: int) -> float:
        # every run of three samples on its own; what is prepared is sampled once for the warm-up
        late = work.name == "baseline of 5" and number > 0 and ((number - 1) // 3) % 2 == 1
        return TIMES[work.name] * (1.04 if late else 1.0)

    record = measure(time_s=drifting)
    assert {row.baseline_s for row in record.steps} == {None}
    assert "no baseline, two identical runs differ by " in record.notes[0]


def test_the_spread_of_the_baseline_is_that_of_its_own_slope(measure: Measure) -> None:
    def slower(work: Any, number: int) -> float:
        # in every second run of three samples a further step takes 1 % more
        late = number > 0 and ((number - 1) // 3) % 2 == 1
        more = 4 * 3e-4 * 0.01 if work.name == "baseline of 5" and late else 0.0
        return TIMES[work.name] + more

    for row in measure(time_s=slower).steps:
        if row.topk == 1:
            assert row.baseline_spread == pytest.approx(0.01, rel=0.01)
            assert row.spread == pytest.approx(0.0, abs=1e-9)


def test_no_load_is_begun_once_the_time_is_up_and_the_record_names_them(measure: Measure) -> None:
    told: list[str] = []
    everything = measure()
    assert len(everything.steps) == 8
    # a sample moves the fake's clock by 0.3 s; the first load ends long after one second
    record = measure(until_s=1.0, tell=told.append)
    assert [(r.batch_size, r.context_tokens, r.topk) for r in record.steps] == [(1, 16, 1)]
    left = [f"batch {b}, context {c}, topk {t}" for b in (1, 4) for c in (16, 64) for t in (1, 2)]
    assert record.notes == tuple(f"{load}: left out for time" for load in left[1:])
    assert set(record.notes) < set(told)
    assert record.steps[0] == everything.steps[0]


def test_a_refused_load_is_not_tried_again_once_the_time_is_up(measure: Measure) -> None:
    def flat(work: Any, _: int) -> float:
        return 1e-4 if work.name.startswith("draft") else TIMES[work.name]

    told: list[str] = []
    with pytest.raises(MeasurementError, match="batch 1, context 16, topk 1: refused"):
        measure(time_s=flat, until_s=1.0, tell=told.append)
    assert sum("refused" in line for line in told) == 1
    assert sum("left out for time" in line for line in told) == 7


def test_kernels_are_traced_once_after_everything_was_timed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracer stays attached to the process, and may slow what is timed after it."""
    order: list[str] = []
    found = (KernelTiming(name="linear", calls=9, time_s=1e-5),)

    def trace(replay: Callable[[], None]) -> tuple[KernelTiming, ...]:
        assert callable(replay)
        order.append("trace")
        return found

    def sample(work: Any, _: int) -> float:
        order.append(work.name)
        return TIMES[work.name]

    monkeypatch.setattr(measuring, "kernel_times", trace)
    record = measure(time_s=sample)
    assert order.count("trace") == 1
    assert order[-1] == "trace"
    assert record.kernels == found
    assert record.kernels_of == "batch 1, context 16, topk 1: a flush and a draft of 5"


def test_a_model_with_a_window_has_no_baseline(fake: Any) -> None:
    spec = replace(example_spec(), sliding_window=8)
    model = ModelToRun(
        name="windowed",
        layout="none",
        spec=spec,
        weights=random_weights(spec, seed=0, dtype=torch.float32),
    )
    watch = fake(time_s=lambda work, _: TIMES[work.name])
    record = measured_record(model, GRID, watch, device=torch.device("cpu"))
    assert {row.baseline_s for row in record.steps} == {None}
