"""What SGLang reads."""

import json
import shlex
from typing import Any

import pytest

from calibration.tune.depth_by_batch import DepthSchedule, depth_schedule
from calibration.tune.sglang import (
    SglangSpeculation,
    release_of,
    sglang_adaptive_config,
    sglang_adaptive_text,
    sglang_flags_line,
)
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError


def parsed(line: str) -> dict[str, str]:
    """Options of a command line; a switch has an empty value."""
    found: dict[str, str] = {}
    name = ""
    for word in shlex.split(line):
        if word.startswith("--"):
            name, found[word] = word, ""
        else:
            assert found[name] == ""
            found[name] = word
    return found


def test_the_example_of_the_format() -> None:
    assert sglang_flags_line(SglangSpeculation(num_steps=3)) == (
        "--speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )


@pytest.mark.parametrize("num_steps", range(1, 17))
def test_a_chain_verifies_one_token_more_than_it_drafts(num_steps: int) -> None:
    flags = parsed(sglang_flags_line(SglangSpeculation(num_steps=num_steps)))
    assert flags["--speculative-num-draft-tokens"] == str(num_steps + 1)
    with pytest.raises(ParameterError, match=f"{num_steps + 1} for a chain"):
        SglangSpeculation(num_steps=num_steps, num_draft_tokens=num_steps + 2)


def tree_size(num_steps: int, topk: int) -> int:
    """Root and candidates, counted: topk after the first step, topk per kept node after each other."""
    nodes = 1 + topk
    for _ in range(num_steps - 1):
        nodes += topk * topk
    return nodes


@pytest.mark.parametrize(("num_steps", "topk"), [(1, 2), (3, 2), (3, 4), (5, 8)])
def test_a_tree_fits_into_its_pool(num_steps: int, topk: int) -> None:
    most = tree_size(num_steps, topk)
    speculation = SglangSpeculation(num_steps=num_steps, topk=topk, num_draft_tokens=most)
    flags = parsed(sglang_flags_line(speculation))
    assert flags["--speculative-num-draft-tokens"] == str(most)
    for wrong in (most + 1, None):
        with pytest.raises(ParameterError, match=f"at most {most}"):
            SglangSpeculation(num_steps=num_steps, topk=topk, num_draft_tokens=wrong)


def test_no_speculation_has_no_flag() -> None:
    assert sglang_flags_line(SglangSpeculation(num_steps=0, batch_size=64)) == ""


@pytest.mark.parametrize(("batch_size", "cap"), [(1, None), (48, None), (49, "49"), (256, "256")])
def test_above_48_requests_the_cap_is_written(batch_size: int, cap: str | None) -> None:
    flags = parsed(sglang_flags_line(SglangSpeculation(num_steps=2, batch_size=batch_size)))
    assert flags.get("--max-running-requests") == cap
    assert flags["--cuda-graph-max-bs"] == str(batch_size)


@pytest.mark.parametrize(
    "reason",
    [
        {"rejection_sampling": True},
        {"block_verification": True},
        {"attention_backend": "trtllm_mha"},
        {"adaptive_config": "adaptive.json"},
        {"algorithm": "DFLASH"},
        {"algorithm": "DSPARK"},
    ],
    ids=str,
)
def test_a_tree_is_refused_where_the_engine_cannot(reason: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="topk must be 1 with"):
        SglangSpeculation(num_steps=2, topk=2, num_draft_tokens=4, **reason)


def test_what_a_chain_may_have_is_written() -> None:
    speculation = SglangSpeculation(
        num_steps=3,
        draft_model="drafts/my model",
        rejection_sampling=True,
        attention_backend="trtllm_mha",
        adaptive_config="adaptive.json",
    )
    flags = parsed(sglang_flags_line(speculation))
    assert flags["--speculative-draft-model-path"] == "drafts/my model"
    assert flags["--speculative-use-rejection-sampling"] == ""
    assert flags["--attention-backend"] == "trtllm_mha"
    assert flags["--speculative-adaptive"] == ""
    assert flags["--speculative-adaptive-config"] == "adaptive.json"


def test_a_block_drafter_names_its_block() -> None:
    flags = parsed(
        sglang_flags_line(SglangSpeculation(num_steps=1, num_draft_tokens=16, algorithm="DFLASH"))
    )
    assert flags["--speculative-num-draft-tokens"] == "16"
    for num_steps, num_draft_tokens in ((15, 16), (1, None)):
        with pytest.raises(ParameterError, match="1 and the block for DFLASH"):
            SglangSpeculation(
                algorithm="DFLASH", num_steps=num_steps, num_draft_tokens=num_draft_tokens
            )


@pytest.mark.parametrize(
    ("algorithm", "too_old", "enough"),
    [("STANDALONE", "0.4.6.post5", "0.5.3"), ("DFLASH", "0.5.9", "0.5.12")],
)
def test_a_release_without_the_algorithm_is_refused(
    algorithm: str, too_old: str, enough: str
) -> None:
    draft_tokens = 2
    for version in (enough, None):
        SglangSpeculation(
            num_steps=1, num_draft_tokens=draft_tokens, algorithm=algorithm, engine_version=version
        )
    with pytest.raises(ParameterError, match=f"{algorithm} was first seen"):
        SglangSpeculation(
            num_steps=1, num_draft_tokens=draft_tokens, algorithm=algorithm, engine_version=too_old
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_steps": -1},
        {"num_steps": 1, "topk": 0},
        {"num_steps": 1, "topk": 2, "num_draft_tokens": 1},
        {"num_steps": 1, "batch_size": 0},
        {"num_steps": 1, "algorithm": "NGRAM"},
        {"num_steps": 1, "algorithm": "NEXTN", "adaptive_config": "a.json"},
        {"num_steps": 0, "adaptive_config": "a.json"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        SglangSpeculation(**wrong)


@pytest.fixture
def schedule(flat_then_linear: Calibration) -> DepthSchedule:
    """Depth 3 to batch 2, 2 at 3, 1 to 7, 0 to 16."""
    return depth_schedule(flat_then_linear, {1: 1.70, 2: 2.15, 3: 2.40, 4: 2.50})


def candidates_by_batch(config: dict[str, Any], batch_size: int) -> list[int]:
    """The later loader: keys that are numbers are lower bounds, others are skipped."""
    entries = {int(key): entry["candidate_steps"] for key, entry in config.items() if key.isdigit()}
    assert entries
    assert all(isinstance(one, int) and one >= 0 for steps in entries.values() for one in steps)
    return list(entries[max([key for key in entries if key <= batch_size], default=min(entries))])


def candidates_of_all(config: dict[str, Any]) -> list[int]:
    """The first loader: one list, whose ends are its limits."""
    steps = list(config["candidate_steps"])
    assert steps == sorted(set(steps))
    assert steps[0] >= 1
    return steps


def test_each_batch_has_the_depths_that_pay_there(schedule: DepthSchedule) -> None:
    config = json.loads(
        sglang_adaptive_text(sglang_adaptive_config(schedule, engine_version="0.5.23"))
    )
    assert config == {
        "1": {"candidate_steps": [1, 2, 3]},
        "3": {"candidate_steps": [1, 2]},
        "4": {"candidate_steps": [1]},
        "8": {"candidate_steps": [0]},
    }
    for batch_size in range(1, 17):
        steps = candidates_by_batch(config, batch_size)
        assert max(steps) == schedule.choice_at(batch_size).num_steps


def test_a_shallow_depth_that_loses_to_depth_0_is_left_out(flat_then_linear: Calibration) -> None:
    # batch 1, without overhead: depth 1 gives 1.05/1.1 = 0.95, depth 2 2.05/1.2 = 1.71
    schedule = depth_schedule(
        flat_then_linear, {1: 1.05, 2: 2.05}, max_batch_size=1, loaded_overhead=0.0
    )
    config = sglang_adaptive_config(schedule, engine_version="0.5.23")
    assert config == {"1": {"candidate_steps": [2]}}


def test_earlier_releases_read_either_shape(schedule: DepthSchedule) -> None:
    config = sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=3)
    assert candidates_of_all(config) == [1, 2]
    assert candidates_by_batch(config, 1) == [1, 2, 3]
    assert candidates_by_batch(config, 16) == [1]  # no 0 there


def test_one_list_needs_a_batch_at_which_something_pays(schedule: DepthSchedule) -> None:
    with pytest.raises(ParameterError, match="one list for all batches"):
        sglang_adaptive_config(schedule, engine_version="0.5.16")
    with pytest.raises(ParameterError, match="start it without speculation"):
        sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=16)
    with pytest.raises(ParameterError, match="as in the points"):
        sglang_adaptive_config(schedule, engine_version="0.5.16", batch_size=17)
    with pytest.raises(ParameterError, match="engine_version"):
        sglang_adaptive_config(schedule, engine_version="latest")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.5.23", (0, 5, 23)),
        ("v0.4.3.post4", (0, 4, 3)),
        ("0.5.10rc1", (0, 5, 10)),
        ("0.5.9+cu129", (0, 5, 9)),
        ("0.5.9.dev12+g0123abc", (0, 5, 9)),
        (" 0.30.0 ", (0, 30, 0)),
    ],
)
def test_the_numbers_of_a_release_are_read(text: str, release: tuple[int, ...]) -> None:
    assert release_of(text) == release


@pytest.mark.parametrize("text", ["", "main", "V1 main 2025-04", "5", "0.5.x", "0..5"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="engine_version"):
        release_of(text)
