"""A dry run goes the whole way through the interpreter, and its record can be taken for nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.checkpoint import ModelToRun, random_weights
from drafter.public_models import example_spec
from drafter.spec import DraftSpec, LatentHeads
from drafter.timing.device import ReadBuffer
from drafter.timing.measuring import measured_record
from drafter.timing.stopwatch import DryStopwatch
from drafter.timing.works import DRY_GRID
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
def test_a_dry_run_times_every_load_in_the_interpreter_and_says_so(record: DraftRecord) -> None:
    assert record.kind == "dry"
    assert record.device.startswith("none")
    assert "says nothing of a device" in record.notes[-1]
    assert {row.topk for row in record.steps} == {1, 2}
    # the interpreter needs milliseconds for what a device reads in some nanoseconds
    assert all(row.time_s > 1e-3 for row in record.steps)
    chain = next(row for row in record.steps if row.topk == 1)
    draft = next(row for row in record.drafts if row.topk == 1)
    # an extend pass and a step
    assert draft.graph_s > chain.time_s


@sample(1)
def test_nothing_is_predicted_from_a_dry_run(record: DraftRecord, tmp_path: Path) -> None:
    save_record(record, tmp_path / "drafter.json")
    with pytest.raises(FormatError, match="its times are of no device"):
        load_record(tmp_path / "drafter.json")
    with pytest.raises(ParameterError, match="its times are of no device"):
        record.check_usable()


def test_a_reading_reads_every_number_of_the_buffer() -> None:
    buffer = ReadBuffer(300_000, torch.device("cpu"))
    assert len(buffer.sums) == 3
    buffer.read()
    torch.testing.assert_close(
        buffer.sums.double(), buffer.source.double().sum(1), rtol=1e-4, atol=1e-2
    )
