"""What launch functions, weights and shapes refuse, in one line each, before a kernel runs."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.head import head
from drafter.kernels.latent_attention import latent_attention
from drafter.kernels.layer import CacheSpace, LayerBuffers, _attend
from drafter.kernels.norm_rope import row_norm
from drafter.kernels.numerics import Fed
from drafter.kernels.products import gate_up, head_product, linear
from drafter.kernels.weights import PackedWeights
from drafter.public_models import example_spec
from drafter.spec import LatentHeads
from specmodel.errors import ParameterError

SPEC = example_spec()
SHAPE = DraftShape(batch_size=1, num_steps=2, capacity=16)


def attend_latents(*, rank: int, turned: int) -> None:
    place = torch.zeros(1, dtype=torch.int32)
    cache = torch.ones(1, 8, 1, rank + turned)
    query = torch.ones(1, 2, rank + turned)
    parts = torch.ones(1, 2, 1, rank), torch.ones(1, 2, 1)
    latent_attention(query, cache, place, place, *parts, scale=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: linear(torch.ones(2, 4).T, torch.ones(3, 2), torch.empty(4, 3)),
            "inputs must be contiguous, got strides (1, 4)",
        ),
        (
            lambda: linear(torch.ones(1, 4), torch.ones(3, 4).double(), torch.empty(1, 3)),
            "weight must be one of bfloat16, float16, float32, got float64",
        ),
        (
            lambda: linear(torch.ones(9, 4).half(), torch.ones(3, 4), torch.empty(9, 3)),
            "inputs must be one of float32, got float16",
        ),
        (
            lambda: gate_up(
                torch.ones(9, 4),
                torch.ones(3, 4),
                torch.ones(3, 4),
                torch.empty(9, 3),
                norm=torch.ones(4),
            ),
            "tokens must be at most 8 with a norm in the product, got 9; normalise the rows before",
        ),
        (
            lambda: head(
                torch.ones(1, 4),
                torch.ones(3, 4),
                torch.ones(1, 1),
                torch.ones(1, 1),
                torch.ones(1, 1, 4, dtype=torch.int64),
            ),
            "topk must be between 1 and 3, got 4",
        ),
        (
            lambda: row_norm(
                torch.ones(1, 4, device="meta"), torch.ones(4), torch.empty(1, 4), eps=0.1
            ),
            "weight must be on meta, got on cpu",
        ),
        (
            lambda: head_product(torch.ones(2, 3, 4), torch.ones(3, 2, 4), torch.ones(2, 3, 3)),
            "out must be of shape (2, 3, 2), got (2, 3, 3)",
        ),
        (lambda: attend_latents(rank=513, turned=64), "kv_rank must be between 1 and 512, got 513"),
        (lambda: attend_latents(rank=512, turned=66), "rope_dim must be between 2 and 64, got 66"),
        (
            lambda: DraftShape(batch_size=0, num_steps=1),
            "batch_size must be between 1 and 1024, got 0",
        ),
        (
            lambda: DraftShape(batch_size=1, num_steps=10, topk=8, num_draft_tokens=9),
            "slots of the tree must be between 0 and 64, got 72; fewer steps or fewer branches",
        ),
        (
            lambda: DraftShape(batch_size=1, num_steps=2, topk=2),
            "num_draft_tokens must be given for a tree, got None",
        ),
    ],
)
def test_what_a_kernel_would_misread_is_refused(call: Callable[[], None], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        call()


def test_a_missing_or_misshapen_weight_is_named() -> None:
    weights = random_weights(SPEC, seed=0, dtype=torch.float32)
    lacking = {name: tensor for name, tensor in weights.items() if name != "norm.weight"}
    with pytest.raises(ParameterError, match=r"a mapping with norm\.weight"):
        DraftSteps.alone(SPEC, lacking, SHAPE, dtype=torch.float32, device="cpu")
    wrong = weights | {"lm_head.weight": torch.ones(2, 2)}
    with pytest.raises(ParameterError, match=r"^lm_head\.weight must be of shape"):
        DraftSteps.alone(SPEC, wrong, SHAPE, dtype=torch.float32, device="cpu")
    with pytest.raises(ParameterError, match="dtype must be bfloat16, float16 or float32"):
        DraftSteps.alone(SPEC, weights, SHAPE, dtype=torch.float64, device="cpu")


def test_weights_of_the_other_kind_of_heads_are_refused() -> None:
    latent = LatentHeads(query_rank=4, kv_rank=4, nope_dim=4, rope_dim=4, value_dim=4)
    of_latents = replace(SPEC, latent=latent)
    weights = random_weights(SPEC, seed=0, dtype=torch.float32)
    with pytest.raises(ParameterError, match=r"a mapping with layers\.0\.self_attn\.q_a_proj"):
        PackedWeights.from_canonical(of_latents, weights, dtype=torch.float32, device="cpu")


def test_buffers_of_the_other_kind_of_heads_are_refused() -> None:
    latent = LatentHeads(query_rank=4, kv_rank=4, nope_dim=4, rope_dim=4, value_dim=4)
    options: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    weights = random_weights(SPEC, seed=0, dtype=torch.float32)
    packed = PackedWeights.from_canonical(SPEC, weights, **options)
    cache = CacheSpace.empty(SPEC, batch_size=1, capacity=4, **options)
    place = torch.zeros(1, dtype=torch.int32)
    fed = Fed(place, torch.ones(1, SPEC.hidden_size), None, place, place, place)
    others = LayerBuffers.empty(replace(SPEC, latent=latent), 1, num_splits=1, **options)
    with pytest.raises(ParameterError, match="buffers must be of the weights' kind"):
        _attend(SPEC, packed, others, cache, fed, programmatic=False)


def test_inputs_of_another_batch_are_refused() -> None:
    weights = random_weights(SPEC, seed=0, dtype=torch.float32)
    steps = DraftSteps.alone(SPEC, weights, SHAPE, dtype=torch.float32, device="cpu")
    counts = torch.ones(1, dtype=torch.int32)
    states = torch.ones(1, 8, SPEC.num_aux_states * SPEC.target_hidden_size)
    with pytest.raises(ParameterError, match=r"tokens must be of shape \(1, 8\), got \(2, 8\)"):
        steps.load(torch.ones(2, 8, dtype=torch.int64), states, counts, counts)
