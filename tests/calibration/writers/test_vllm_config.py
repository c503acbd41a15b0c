"""What vLLM reads, against the rules that its own checks apply."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from calibration.writers.depth_schedule import depth_schedule
from calibration.writers.schedule import DepthRange, DepthSchedule
from calibration.writers.vllm_config import (
    SCHEDULE_KEY,
    vllm_config_text,
    vllm_schedule,
    vllm_speculative_config,
    write_vllm_config,
)
from specmodel.acceptance import FullAccuracy
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError

MakeSystem = Callable[..., Calibration]


def schedule_of(*ranges: tuple[int, int, int]) -> DepthSchedule:
    return DepthSchedule(
        ranges=tuple(
            DepthRange(first_batch_size=first, last_batch_size=last, num_steps=steps)
            for first, last, steps in ranges
        ),
        choices=(),
        accept_lengths=(),
        context_tokens=None,
        notes=(),
    )


def check_as_vllm_does(value: object) -> None:
    """Lists of three whole numbers from batch 1 on, sorted, without overlap and without gap."""
    assert isinstance(value, list)
    assert value[0][0] == 1
    for first, last, steps in value:
        assert all(type(one) is int for one in (first, last, steps))
        assert 1 <= first <= last
        assert steps >= 0
    assert all(after[0] == before[1] + 1 for before, after in pairwise(value))


def test_the_example_of_the_format() -> None:
    schedule = schedule_of((1, 4, 5), (5, 16, 3), (17, 64, 1))
    assert vllm_config_text(vllm_schedule(schedule)) == "[[1, 4, 5], [5, 16, 3], [17, 64, 1]]\n"


def test_a_made_schedule_comes_back_from_json_and_passes(
    flat_then_linear: Calibration, tmp_path: Path
) -> None:
    schedule = depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40, 4: 2.50})
    path = tmp_path / "speculative_k_schedule.json"
    write_vllm_config(path, vllm_schedule(schedule))
    value = json.loads(path.read_text(encoding="utf-8"))
    check_as_vllm_does(value)
    assert value == [[1, 2, 3], [3, 3, 2], [4, 7, 1], [8, 16, 0]]


def test_a_schedule_comes_back_through_the_reader(flat_then_linear: Calibration) -> None:
    reader = pytest.importorskip("calibration.readers.vllm_schedule")
    value = vllm_schedule(depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40}))
    assert reader.parse_schedule(json.loads(vllm_config_text(value))) == tuple(map(tuple, value))


def test_a_schedule_that_begins_above_1_says_so(make_system: MakeSystem) -> None:
    schedule = depth_schedule(make_system(batches=(8.0, 16.0)), {1: 1.7})
    with pytest.raises(ParameterError, match=r"begins at batch 8.*measure batch 1"):
        vllm_schedule(schedule)
    assert vllm_schedule(schedule, hold_down_to_one=True) == [[1, 16, 1]]
    assert schedule.as_lists() == [[8, 16, 1]]


def test_the_largest_k_of_a_schedule_is_num_speculative_tokens() -> None:
    schedule = schedule_of((1, 4, 5), (5, 16, 0))
    config = vllm_speculative_config("eagle3", model="DRAFT_MODEL", schedule=schedule)
    assert config == {
        "method": "eagle3",
        "model": "DRAFT_MODEL",
        "num_speculative_tokens": 5,
        SCHEDULE_KEY: [[1, 4, 5], [5, 16, 0]],
    }
    with pytest.raises(ParameterError, match="5, the largest of the schedule"):
        vllm_speculative_config("eagle3", 4, schedule=schedule)


@pytest.mark.parametrize("tokens", [None, 0, -1])
def test_no_speculation_is_no_configuration(tokens: int | None) -> None:
    with pytest.raises(ParameterError, match="no --speculative-config at all"):
        vllm_speculative_config("eagle3", tokens)
    with pytest.raises(ParameterError, match="no --speculative-config at all"):
        vllm_speculative_config("eagle3", tokens, schedule=schedule_of((1, 64, 0)))


def test_pinned_acceptance_is_written_with_its_method() -> None:
    config = vllm_speculative_config("mtp", 3, accept_length=3.12)
    assert config["rejection_sample_method"] == "synthetic"
    assert config["synthetic_acceptance_length"] == 3.12
    rates = vllm_speculative_config("mtp", 2, full_accuracy=FullAccuracy([0.8, 0.5]))
    assert rates["synthetic_acceptance_rates"] == [0.8, 0.5]


def test_pinned_acceptance_that_vllm_refuses_is_refused() -> None:
    with pytest.raises(ParameterError, match="from 1 to 4"):
        vllm_speculative_config("mtp", 3, accept_length=4.2)
    with pytest.raises(ParameterError, match="3 values, without accept_length, got 2 values"):
        vllm_speculative_config("mtp", 3, full_accuracy=FullAccuracy([0.8, 0.5]))
    with pytest.raises(ParameterError, match="beside accept_length"):
        vllm_speculative_config("mtp", 2, accept_length=2.0, full_accuracy=FullAccuracy([0.8, 0.5]))
    with pytest.raises(ParameterError, match="one depth at a time"):
        vllm_speculative_config("mtp", schedule=schedule_of((1, 8, 3)), accept_length=2.0)


def test_only_known_keys_and_methods_are_written() -> None:
    config = vllm_speculative_config("eagle3", 3, options={"draft_tensor_parallel_size": 1})
    assert config["draft_tensor_parallel_size"] == 1
    for key in ("tensor_parallel_size", "speculative_token_tree", "num_speculative_tokens"):
        with pytest.raises(ParameterError, match=f"got {key}"):
            vllm_speculative_config("eagle3", 3, options={key: 1})
    assert vllm_speculative_config("deepseek_mtp", 1)["method"] == "deepseek_mtp"
    with pytest.raises(ParameterError, match=r"method must be one of .*, got EAGLE"):
        vllm_speculative_config("EAGLE", 3)
