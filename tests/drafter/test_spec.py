"""The spec refuses what no draft model can be."""

import dataclasses
from typing import Any

import pytest

from drafter.spec import DraftSpec, LatentHeads, Rope
from specmodel.errors import ParameterError

SPEC = DraftSpec(
    hidden_size=64,
    target_hidden_size=64,
    num_aux_states=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    mlp_width=96,
    target_vocab_size=100,
    draft_vocab_size=40,
)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_aux_states": -1}, "num_aux_states"),
        ({"draft_vocab_size": 101}, "draft_vocab_size"),
        ({"num_kv_heads": 3}, "num_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"fc_norm": True, "norm_before_fc": True}, "fc_norm"),
        ({"use_aux_hidden_state": False, "target_hidden_size": 128}, "hidden_size"),
        ({"sliding_window": 0}, "sliding_window"),
    ],
)
def test_an_impossible_spec_is_refused_naming_the_field(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        dataclasses.replace(SPEC, **changes)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"kind": "longrope"}, "rope kind"),
        ({"theta": 0.0}, "rope theta"),
        ({"factor": float("inf")}, "rope factor"),
        ({"kind": "llama3", "factor": 8.0}, "rope original_max_positions"),
        ({"kind": "yarn", "factor": 4.0}, "rope original_max_positions"),
        (
            {"kind": "llama3", "original_max_positions": 8192, "low_freq_factor": 4.0},
            "rope low_freq_factor",
        ),
        ({"kind": "yarn", "original_max_positions": 8, "beta_slow": 64.0}, "rope beta_slow"),
        ({"attention_factor": 0.0}, "rope attention_factor"),
    ],
)
def test_an_impossible_rope_is_refused_naming_the_field(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Rope(**changes)
    assert caught.value.name == name


def test_equal_ends_of_the_yarn_ramp_are_possible_as_kimi_heads_have_them() -> None:
    rope = Rope(kind="yarn", factor=64.0, original_max_positions=4096, beta_fast=1.0, beta_slow=1.0)
    assert rope.beta_fast == rope.beta_slow


def test_an_odd_rotated_width_of_latent_heads_is_refused() -> None:
    with pytest.raises(ParameterError, match="rope_dim"):
        LatentHeads(query_rank=8, kv_rank=8, nope_dim=8, rope_dim=7, value_dim=8)


def test_with_latent_heads_the_grouped_counts_are_free() -> None:
    latent = LatentHeads(query_rank=8, kv_rank=8, nope_dim=8, rope_dim=6, value_dim=8)
    assert dataclasses.replace(SPEC, num_kv_heads=3, head_dim=15, latent=latent).latent == latent
