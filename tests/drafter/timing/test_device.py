"""What is asked of a device; on a GPU the stopwatch itself."""

from typing import Any

import pytest
import torch

from drafter.timing.device import DeviceFacts, ReadBuffer, kernel_times, summed
from drafter.timing.stopwatch import CudaStopwatch, SamplePlan, Work, timed
from specmodel.errors import ParameterError
from specmodel.measurement import Clocks

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_nothing_is_known_of_a_device_that_is_none() -> None:
    facts = DeviceFacts(torch.device("cpu"))
    assert (facts.clocks(), facts.driver(), facts.state(), facts.uuid) == (None, None, "", None)


def test_there_is_no_stopwatch_without_a_cuda_device() -> None:
    with pytest.raises(ParameterError, match="there is nothing to time without one"):
        CudaStopwatch(torch.device("cpu"))


def test_a_buffer_is_whole_lines_of_numbers_that_differ() -> None:
    buffer = ReadBuffer(200_000, torch.device("cpu"))
    assert buffer.num_bytes == 2 * 32768 * 4
    assert buffer.source.unique().numel() > 1000


def test_a_trace_gives_calls_of_one_draft_and_the_mean_of_a_launch() -> None:
    rows = [
        ("row_norm", 20, 40.0),
        ("linear", 60, 600.0),
        ("cudaGraphLaunch", 20, 0.0),
        ("once", 1, 9.0),
    ]
    found = summed(rows, replays=20)
    assert [each.name for each in found] == ["linear", "row_norm"]
    assert found[0].calls == 3
    assert found[0].time_s == pytest.approx(1e-5)


def test_without_a_device_there_is_no_trace() -> None:
    if not torch.cuda.is_available():
        assert kernel_times(lambda: None) == ()


class FakeEvent:
    """An event of which every pair is 40 ms apart."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.recorded = False

    def record(self) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        assert self.recorded

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert self.recorded
        assert end.recorded
        return 40.0


def test_a_sample_is_the_mean_of_its_replays_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[int] = []

    class Counted:
        num_nodes = None

        def replay(self) -> None:
            replays.append(1)

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    watch = CudaStopwatch.__new__(CudaStopwatch)
    assert watch.sample_s(Counted(), 20) == pytest.approx(2e-3)
    assert len(replays) == 20


def test_compilations_are_counted_and_an_earlier_hook_is_still_called() -> None:
    seen: list[object] = []
    watch = CudaStopwatch.__new__(CudaStopwatch)
    watch.compilations, watch._hook_before = 0, lambda **facts: seen.append(facts)
    watch._count(key="one")
    watch._count(key="two")
    assert watch.compilations == 2
    assert seen == [{"key": "one"}, {"key": "two"}]


class FakeLibrary:
    """A management library that knows two clocks, a driver and that ECC is on."""

    def nvmlDeviceGetClockInfo(self, _: object, kind: Any, value: Any) -> int:  # noqa: N802
        value._obj.value = {1: 1980, 2: 3201}[kind.value]
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _: object) -> int:  # noqa: N802
        text.value = b"570.1"
        return 0

    def nvmlDeviceGetEccMode(self, _: object, current: Any, __: object) -> int:  # noqa: N802
        current._obj.value = 1
        return 0

    def nvmlDeviceGetMigMode(self, *_: object) -> int:  # noqa: N802
        return 3  # not supported


def test_clocks_are_read_in_hertz_and_what_is_not_supported_is_left_out() -> None:
    facts = DeviceFacts(torch.device("cpu"))
    facts._library = FakeLibrary()  # type: ignore[assignment]
    assert facts.clocks() == Clocks(multiprocessor_hz=1.98e9, memory_hz=3.201e9)
    assert (facts.driver(), facts.state()) == ("570.1", "ECC on")


@pytest.mark.gpu
@on_gpu
def test_reading_twice_as_much_takes_about_twice_as_long() -> None:
    device = torch.device("cuda")
    watch = CudaStopwatch(device)
    try:
        works = [Work(str(share), ReadBuffer(share * 2**29, device).read) for share in (1, 2, 4)]
        found = timed("reading", works, watch, SamplePlan())
    finally:
        watch.close()
    one, two, four = (found.samples[str(share)].median_s for share in (1, 2, 4))
    assert (four - two) / (two - one) == pytest.approx(2.0, rel=0.15)
    assert 2**29 / (two - one) < 1e13


@pytest.mark.gpu
@on_gpu
def test_a_gpu_tells_its_clocks_or_says_that_it_does_not() -> None:
    clocks = DeviceFacts(torch.device("cuda")).clocks()
    assert clocks is None or 1e8 < clocks.multiprocessor_hz < 1e10
