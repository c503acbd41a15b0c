"""Random weights are complete, repeatable and of a scale at which activations stay of order one."""

import dataclasses
from pathlib import Path

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.checkpoint_files import check_offsets, expected_shapes
from drafter.spec import DraftSpec, LatentHeads

SPEC = DraftSpec(
    hidden_size=256,
    target_hidden_size=256,
    num_aux_states=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    mlp_width=512,
    target_vocab_size=1000,
    draft_vocab_size=300,
)
LATENT = LatentHeads(query_rank=32, kv_rank=16, nope_dim=16, rope_dim=8, value_dim=16)


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        dataclasses.replace(SPEC, attention_bias=True, fc_bias=True, qk_norm=True, fc_norm=True),
        dataclasses.replace(SPEC, latent=LATENT, norm_before_fc=True),
        dataclasses.replace(SPEC, use_aux_hidden_state=False),
    ],
    ids=["plain", "switches", "latent", "no fusion"],
)
def test_every_tensor_of_the_spec_is_there_in_its_shape(spec: DraftSpec) -> None:
    weights = random_weights(spec, seed=0, dtype=torch.float16)
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    assert shapes == {**expected_shapes(spec), "d2t": (300,), "t2d": (1000,)}
    kinds = {name: value.dtype for name, value in weights.items()}
    assert kinds.pop("d2t") == torch.int64
    assert kinds.pop("t2d") == torch.bool
    assert set(kinds.values()) == {torch.float16}


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (
        random_weights(SPEC, seed=seed, dtype=torch.float32) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("ascending", [True, False])
def test_the_map_of_the_vocabularies_is_sound_in_either_order(ascending: bool) -> None:
    weights = random_weights(SPEC, seed=3, dtype=torch.float32, ascending=ascending)
    offsets = weights["d2t"].numpy()
    check_offsets(offsets, weights["t2d"].numpy(), 1000, Path("random"))
    tokens = weights["d2t"] + torch.arange(300)
    assert bool((tokens.diff() > 0).all()) == ascending


def test_a_projection_keeps_the_scale_of_its_input() -> None:
    weights = random_weights(SPEC, seed=4, dtype=torch.float32)
    inputs = torch.randn(512, generator=torch.Generator().manual_seed(0))
    output = weights["layers.0.self_attn.q_proj.weight"] @ inputs
    # 256 outputs: the spread of their root mean square is about 1/sqrt(512)
    assert float(output.square().mean().sqrt()) == pytest.approx(1.0, abs=0.25)
    assert float(weights["norm.weight"].mean()) == pytest.approx(1.0, abs=0.05)
