"""What vLLM reads, and acceptance that engines are told."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from calibration.readers.no_points import FORMATS
from calibration.tune.depth_by_batch import DepthRange, DepthSchedule, depth_schedule
from calibration.tune.vllm import (
    ENGINES,
    SCHEDULE_KEY,
    synthetic_settings,
    synthetic_text,
    vllm_config_text,
    vllm_schedule,
    vllm_speculative_config,
    vllm_synthetic_rates,
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


def test_a_made_schedule_comes_back_from_json_and_passes(flat_then_linear: Calibration) -> None:
    schedule = depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40, 4: 2.50})
    value = json.loads(vllm_config_text(vllm_schedule(schedule)))
    check_as_vllm_does(value)
    assert value == [[1, 2, 3], [3, 3, 2], [4, 7, 1], [8, 16, 0]]


def test_a_schedule_covers_every_batch_once_and_is_recognised(
    flat_then_linear: Calibration,
) -> None:
    value = vllm_schedule(depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40}))
    text = vllm_config_text(value)
    assert [one.FORMAT for one in FORMATS if one.recognise(text)] == ["vllm_k_schedule"]
    assert json.loads(text) == value
    assert all(first <= last for first, last, _ in value)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(value))


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


def test_sglang_counts_the_bonus_token() -> None:
    assert synthetic_settings("sglang", 3.24, 4).environment == {
        "SGLANG_SIMULATE_ACC_LEN": "3.24",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }


def test_tensorrt_llm_does_not() -> None:
    # 2.3 - 1 is 1.2999999999999998 in binary
    assert synthetic_settings("tensorrt_llm", 2.3, 3).environment == {
        "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.3"
    }


def test_vllm_and_atom_count_it() -> None:
    config = synthetic_settings("vllm", 2.3, 3).speculative_config
    assert config == {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.3}
    assert synthetic_settings("atom", 2.3, 3).arguments == (
        "--spec-decode-acceptance-length",
        "2.3",
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_accept_lengths_a_depth_cannot_give_are_refused(engine: str) -> None:
    for accept_length in (0.99, 4.01, float("nan")):
        with pytest.raises(ParameterError, match="accept_length must be from 1 to 4"):
            synthetic_settings(engine, accept_length, 3)
    with pytest.raises(ParameterError, match="num_steps must be at least 1"):
        synthetic_settings(engine, 1.0, 0)
    assert synthetic_settings(engine, 4.0, 3).engine == engine


def test_zero_accepted_tokens_would_turn_tensorrt_llm_off() -> None:
    with pytest.raises(ParameterError, match="above 1 for tensorrt_llm"):
        synthetic_settings("tensorrt_llm", 1.0, 3)


def test_an_unknown_engine_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ParameterError, match="atom, sglang, tensorrt_llm, vllm, got llama"):
        synthetic_settings("llama.cpp", 2.0, 3)


def test_rates_are_full_accuracies() -> None:
    assert vllm_synthetic_rates(FullAccuracy([0.7, 0.5]))["synthetic_acceptance_rates"] == [
        0.7,
        0.5,
    ]


def test_the_text_is_what_a_shell_or_vllm_reads() -> None:
    lines = synthetic_text(synthetic_settings("sglang", 2.5, 3)).splitlines()
    assert dict(line.removeprefix("export ").split("=") for line in lines) == (
        synthetic_settings("sglang", 2.5, 3).environment
    )
    assert json.loads(synthetic_text(synthetic_settings("vllm", 2.5, 3))) == (
        synthetic_settings("vllm", 2.5, 3).speculative_config
    )
