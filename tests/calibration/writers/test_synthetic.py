"""Settings that pin acceptance."""

import json
from pathlib import Path

import pytest

from calibration.writers.synthetic import (
    ENGINES,
    synthetic_settings,
    synthetic_text,
    vllm_synthetic_rates,
    write_synthetic_settings,
)
from specmodel.acceptance import FullAccuracy
from specmodel.errors import ParameterError


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
    assert config == {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.3,
    }
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


def test_the_text_is_what_a_shell_or_vllm_reads(tmp_path: Path) -> None:
    write_synthetic_settings(tmp_path / "pinned", synthetic_settings("sglang", 2.5, 3))
    lines = (tmp_path / "pinned").read_text(encoding="utf-8").splitlines()
    assert dict(line.removeprefix("export ").split("=") for line in lines) == (
        synthetic_settings("sglang", 2.5, 3).environment
    )
    assert json.loads(synthetic_text(synthetic_settings("vllm", 2.5, 3))) == (
        synthetic_settings("vllm", 2.5, 3).speculative_config
    )
