"""The flags of an SGLang server, read back by a small parser, against the engine's rules."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from calibration.writers.sglang_flags_line import (
    SglangSpeculation,
    sglang_flags_line,
    write_sglang_flags,
)
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


def test_a_file_has_a_line_per_speculation(tmp_path: Path) -> None:
    wanted = [SglangSpeculation(num_steps=one) for one in (1, 0, 3)]
    write_sglang_flags(tmp_path / "flags", wanted)
    lines = (tmp_path / "flags").read_text(encoding="utf-8").split("\n")
    assert lines == [*map(sglang_flags_line, wanted), ""]
