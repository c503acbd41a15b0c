"""A dry run goes the whole way through the interpreter, and its record can be taken for nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.checkpoint import ModelToRun, random_weights
from drafter.reference.example import example_spec
from drafter.spec import DraftSpec, LatentHeads
from drafter.timing.measuring import measured_record
from drafter.timing.memory_read import LINE, memory_read
from drafter.timing.stopwatch import DryStopwatch
from drafter.timing.works import DRY_GRID, BaselineFailedError, TorchBaseline
from specmodel.errors import FormatError, ParameterError
from specmodel.measurement import DraftRecord, load_record, save_record
from tests.extent import sample

LATENT = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=5)


def rehearsed(spec: DraftSpec) -> DraftRecord:
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    model = ModelToRun(name="example", layout="none", spec=spec, weights=weights)
    return measured_record(model, DRY_GRID, DryStopwatch(), device=torch.device("cpu"))


@pytest.fixture(scope="module", params=[None, LATENT], ids=["grouped", "latent"])
def record(request: pytest.FixtureRequest) -> DraftRecord:
    return rehearsed(replace(example_spec(), latent=request.param))


@sample(1)
def test_a_dry_run_shows_its_made_up_times_and_says_so(record: DraftRecord) -> None:
    assert record.kind == "dry"
    assert record.device.startswith("none")
    assert "made up" in record.notes[-1]
    # 30 % over the bytes at one TB/s, which is also the bandwidth that it shows
    assert [row.ratio for row in record.steps] == [pytest.approx(1.3)] * 2
    assert {row.topk for row in record.steps} == {1, 2}
    baseline_s = None if record.shapes.attention == "latent" else 1.5 * record.steps[0].time_s
    assert record.steps[0].baseline_s == (baseline_s and pytest.approx(baseline_s))


def test_a_baseline_that_fails_when_it_is_captured_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound, calls = TorchBaseline.run, iter(range(99))

    def failing_late(self: TorchBaseline, depth: int) -> None:
        if next(calls):  # the run before anything is captured is the first
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        sound(self, depth)

    monkeypatch.setattr(TorchBaseline, "run", failing_late)
    with pytest.raises(BaselineFailedError, match="topk 1: the torch baseline failed: CUDA error"):
        rehearsed(example_spec())


@sample(1)
def test_nothing_is_predicted_from_a_dry_run(record: DraftRecord, tmp_path: Path) -> None:
    save_record(record, tmp_path / "drafter.json")
    with pytest.raises(FormatError, match="its times are made up"):
        load_record(tmp_path / "drafter.json")
    with pytest.raises(ParameterError, match="its times are made up"):
        record.check_usable()


def test_a_reading_reads_every_number_of_the_buffer() -> None:
    source = torch.randn(3, LINE, generator=torch.Generator().manual_seed(1))
    sums = torch.full((3,), float("nan"))
    memory_read(source, sums)
    torch.testing.assert_close(sums.double(), source.double().sum(1), rtol=1e-4, atol=1e-2)
