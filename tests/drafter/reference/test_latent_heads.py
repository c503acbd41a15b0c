import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter.checkpoint import random_weights
from drafter.public_models import example_spec
from drafter.reference import DraftModel, draft_chain
from drafter.reference.layer import KvCache, latent_attention, rms_norm
from drafter.reference.rope import (
    RotaryTable,
    rotary_frequencies,
    rotary_magnitude,
    rotate_neighbours,
)
from drafter.spec import LatentHeads, Rope

FOLDER = Path(__file__).parents[2] / "golden" / "drafter"
PREFIX = "layers.0.self_attn"
YARN = Rope(kind="yarn", factor=4.0, original_max_positions=32, mscale=0.7, mscale_all_dim=1.2)


def attention(rope: Rope, tensors: dict[str, Tensor], positions: Tensor) -> tuple[Tensor, KvCache]:
    """Heads and cache of the latent attention whose tensors, shapes and inputs are golden."""
    shapes = tomllib.loads((FOLDER / "latent_attention.toml").read_text(encoding="utf-8"))["shapes"]
    latent = LatentHeads(
        query_rank=shapes["q_lora_rank"],
        kv_rank=shapes["kv_lora_rank"],
        nope_dim=shapes["qk_nope_head_dim"],
        rope_dim=shapes["qk_rope_head_dim"],
        value_dim=shapes["v_head_dim"],
    )
    spec = dataclasses.replace(
        example_spec(),
        num_heads=shapes["num_attention_heads"],
        latent=latent,
        rope=rope,
        rms_norm_eps=1e-6,  # what the inner norms of transformers have
    )
    frequencies = rotary_frequencies(rope, latent.rope_dim, max_positions=128)
    rows = len(positions)
    return latent_attention(
        spec,
        latent,
        {name: values.double() for name, values in tensors.items() if name.startswith(PREFIX)},
        tensors["x"],
        table=RotaryTable.at(positions, frequencies, magnitude=rotary_magnitude(rope)),
        positions=positions,
        visible=torch.ones(rows, rows).tril().bool(),
        cache=KvCache.empty(spec),
    )


@pytest.mark.parametrize(("name", "rope"), [("default", Rope()), ("yarn", YARN)])
def test_heads_are_those_of_transformers(name: str, rope: Rope) -> None:
    golden = load_file(FOLDER / f"latent_attention_{name}.safetensors")
    heads, _ = attention(rope, golden, golden["positions"])
    torch.testing.assert_close(heads, golden["heads"], rtol=0.0, atol=1e-6)


def test_a_temperature_that_is_left_out_is_seen() -> None:
    golden = load_file(FOLDER / "latent_attention_yarn.safetensors")
    for wrong in (dataclasses.replace(YARN, mscale_all_dim=None), Rope()):
        heads, _ = attention(wrong, golden, golden["positions"])
        assert float((heads - golden["heads"]).abs().max()) > 1e-3


@pytest.mark.parametrize("rope", [Rope(), YARN], ids=["default", "yarn"])
def test_the_absorbed_form_gives_the_same_heads(rope: Rope) -> None:
    """One key head of latent and turning part; `kv_b_proj` is taken into queries and outputs."""
    golden = load_file(FOLDER / "latent_attention_default.safetensors")
    heads, cache = attention(rope, golden, golden["positions"])
    weights = {name: values.double() for name, values in golden.items()}
    up = weights[f"{PREFIX}.kv_b_proj.weight"].unflatten(0, (3, 6 + 5))
    compressed = rms_norm(
        golden["x"] @ weights[f"{PREFIX}.q_a_proj.weight"].T,
        weights[f"{PREFIX}.q_a_layernorm.weight"],
        1e-6,
    )
    queries = (compressed @ weights[f"{PREFIX}.q_b_proj.weight"].T).unflatten(-1, (3, 6 + 4))
    frequencies = rotary_frequencies(rope, 4, max_positions=128)
    table = RotaryTable.at(golden["positions"], frequencies, magnitude=rotary_magnitude(rope))
    turning = rotate_neighbours(queries[..., 6:], table)
    absorbed = torch.einsum("thn,hnc->thc", queries[..., :6], up[:, :6])
    latents, keys = cache.values[:, 0], cache.keys[:, 0]
    temperature = (
        1.0 if rope.kind == "default" else (1 + 0.1 * 1.2 * torch.tensor(4.0).double().log()) ** 2
    )
    scores = (absorbed @ latents.T + turning @ keys.T) * temperature / 10**0.5
    later = torch.ones(7, 7).triu(1).bool()[:, None]
    mixed = scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ latents
    expected = torch.einsum("thc,hvc->thv", mixed, up[:, 6:]).flatten(start_dim=1)
    torch.testing.assert_close(heads, expected)


def test_a_latent_that_is_wide_enough_is_grouped_attention_without_position() -> None:
    """Identity instead of a compression: queries, keys and values are those of the inputs."""
    width = 48
    latent = LatentHeads(query_rank=width, kv_rank=width, nope_dim=16, rope_dim=2, value_dim=16)
    spec = dataclasses.replace(example_spec(), num_heads=3, latent=latent)
    weights = random_weights(spec, seed=0, dtype=torch.float64)
    eye, ones = torch.eye(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
    weights[f"{PREFIX}.q_a_proj.weight"] = eye
    weights[f"{PREFIX}.q_a_layernorm.weight"] = ones
    weights[f"{PREFIX}.kv_a_layernorm.weight"] = ones
    # the turning part is switched off, so that only what does not turn is left
    weights[f"{PREFIX}.kv_a_proj_with_mqa.weight"] = torch.cat(
        [eye, torch.zeros(2, width).double()]
    )
    up = weights[f"{PREFIX}.kv_b_proj.weight"].unflatten(0, (3, 32))
    query = weights[f"{PREFIX}.q_b_proj.weight"].unflatten(0, (3, 18))[:, :16]
    x = torch.randn(4, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = rms_norm(x, ones, 0.0)  # so that the inner norms leave it as it is
    spec = dataclasses.replace(spec, rms_norm_eps=1e-12)
    heads, _ = latent_attention(
        spec,
        latent,
        weights,
        x,
        table=RotaryTable.at(torch.arange(4), torch.ones(1)),
        positions=torch.arange(4),
        visible=torch.ones(4, 4).tril().bool(),
        cache=KvCache.empty(spec),
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.einsum("ti,hni->htn", x, query),
        torch.einsum("ti,hni->htn", x, up[:, :16]),
        torch.einsum("ti,hvi->htv", x, up[:, 16:]),
        is_causal=True,
        scale=18**-0.5,
    )
    torch.testing.assert_close(heads, expected.transpose(0, 1).flatten(start_dim=1))


def test_the_cache_keeps_latent_and_turning_part_only(
    make_request: Callable[..., tuple[DraftModel, Tensor, Tensor, Tensor]],
) -> None:
    latent = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=5)
    cache = draft_chain(*make_request(rows=5, latent=latent), num_steps=1).cache
    assert (cache.keys.shape, cache.values.shape) == ((5, 1, 4), (5, 1, 10))
