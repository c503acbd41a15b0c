"""What a record allows: impossible rows are refused, made-up times give no prediction."""

import math
from dataclasses import replace
from typing import Any

import pytest

from specmodel.errors import ParameterError
from specmodel.measurement import Clocks, DraftTiming, ExtendTiming, KernelTiming, StepTiming
from tests.specmodel.measurement.example_record import example_record

RECORD = example_record()
STEP, EXTEND, DRAFT = RECORD.steps[0], RECORD.extends[0], RECORD.drafts[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"kind": "dry"}, "of no device"), ({"cache_state": "hot"}, "faster than a draft in serving")],
)
def test_what_was_not_measured_as_in_serving_gives_no_time(
    change: dict[str, str], words: str
) -> None:
    record = replace(RECORD, **change)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=words):
        record.check_usable()


@pytest.mark.parametrize(
    ("row", "change", "name"),
    [
        (STEP, {"time_s": 0.0}, "time_s"),
        (STEP, {"time_s": None}, "time_s"),
        (STEP, {"floor_s": None}, "floor_s"),
        (STEP, {"time_s": math.nan}, "time_s"),
        (STEP, {"baseline_s": -1e-4}, "baseline_s"),
        (STEP, {"cold_time_s": math.inf}, "cold_time_s"),
        (STEP, {"batch_size": 0}, "batch_size"),
        (STEP, {"batch_size": 1.5}, "batch_size"),
        (STEP, {"topk": True}, "topk"),
        (STEP, {"num_samples": 0}, "num_samples"),
        (STEP, {"spread": -0.1}, "spread"),
        (EXTEND, {"tokens": 0}, "tokens"),
        (EXTEND, {"context_tokens": -1}, "context_tokens"),
        (DRAFT, {"num_draft_tokens": 1}, "num_draft_tokens"),
        (DRAFT, {"graph_nodes": 0}, "graph_nodes"),
        (DRAFT, {"graph_s": None}, "graph_s"),
        (RECORD.kernels[0], {"name": ""}, "name"),
        (RECORD.kernels[0], {"calls": 0}, "calls"),
        (RECORD.shapes, {"head_dim": 0}, "head_dim"),
        (RECORD.shapes, {"attention": "sparse"}, "attention"),
        (Clocks(multiprocessor_hz=1.0, memory_hz=1.0), {"memory_hz": 0.0}, "memory_hz"),
        (RECORD, {"kind": "guess"}, "kind"),
        (RECORD, {"cache_state": "warm"}, "cache_state"),
        (RECORD, {"steps": ()}, "steps"),
        (RECORD, {"extends": ()}, "extends"),
        (RECORD, {"steps": (STEP, STEP)}, "steps"),
        (RECORD, {"drafts": (DRAFT, DRAFT)}, "drafts"),
        (RECORD, {"read_bandwidth_bytes_per_s": "4e12"}, "read_bandwidth_bytes_per_s"),
        (RECORD, {"sm": -1}, "sm"),
    ],
    ids=str,
)
def test_an_impossible_row_is_refused_by_name(row: Any, change: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        replace(row, **change)
    assert caught.value.name == name


def test_what_was_not_measured_may_be_left_out() -> None:
    step = replace(STEP, hot_time_s=None, cold_time_s=None, baseline_s=None, baseline_spread=None)
    assert step.baseline_s is None
    assert replace(DRAFT, graph_nodes=None, selection_s=None).selection_s is None


def test_the_ratio_is_time_over_floor() -> None:
    assert replace(STEP, time_s=3e-4, floor_s=2e-4).ratio == pytest.approx(1.5)


def test_rows_carry_no_name_of_a_letter() -> None:
    for row in (StepTiming, ExtendTiming, DraftTiming, KernelTiming):
        assert all(len(name) > 1 for name in row.__dataclass_fields__)
