"""What weights, shapes and buffers refuse, in one line each, before a kernel runs."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.layer import LayerBuffers, latent_block
from drafter.kernels.norm_rope import CacheSpace
from drafter.kernels.numerics import Fed
from drafter.kernels.weights import LatentWeights, PackedWeights
from drafter.public_models import example_spec
from drafter.spec import LatentHeads
from specmodel.errors import ParameterError

SPEC = example_spec()
SHAPE = DraftShape(batch_size=1, num_steps=2, capacity=16)


def steps_of(*, rank: int, turned: int) -> DraftSteps:
    latent = LatentHeads(query_rank=4, kv_rank=rank, nope_dim=4, rope_dim=turned, value_dim=4)
    spec = replace(SPEC, latent=latent)
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    return DraftSteps.alone(spec, weights, SHAPE, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: steps_of(rank=513, turned=64), "kv_rank must be between 1 and 512, got 513"),
        (lambda: steps_of(rank=512, turned=66), "rope_dim must be between 2 and 64, got 66"),
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
        (
            lambda: DraftShape(batch_size=1, num_steps=2, topk=2, num_draft_tokens=8),
            "num_draft_tokens must be between 1 and 7, got 8",
        ),
        (
            lambda: DraftShape(batch_size=1, num_steps=2, topk=17, num_draft_tokens=8),
            "topk must be between 1 and 16, got 17",
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
    spec = replace(SPEC, latent=latent)
    options: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    own = PackedWeights.from_canonical(spec, weights, **options).attention
    assert isinstance(own, LatentWeights)
    cache = CacheSpace.empty(spec, batch_size=1, capacity=4, **options)
    place = torch.zeros(1, dtype=torch.int32)
    fed = Fed(place, torch.ones(1, spec.hidden_size), None, place, place, place)
    others = LayerBuffers.empty(SPEC, 1, num_splits=1, **options)
    with pytest.raises(ParameterError, match="buffers must be of the weights' kind"):
        latent_block(spec, own, others, cache, fed)


def test_inputs_of_another_batch_are_refused() -> None:
    weights = random_weights(SPEC, seed=0, dtype=torch.float32)
    steps = DraftSteps.alone(SPEC, weights, SHAPE, dtype=torch.float32, device="cpu")
    counts = torch.ones(1, dtype=torch.int32)
    states = torch.ones(1, 8, SPEC.num_aux_states * SPEC.target_hidden_size)
    with pytest.raises(ParameterError, match=r"tokens must be of shape \(1, 8\), got \(2, 8\)"):
        steps.load(torch.ones(2, 8, dtype=torch.int64), states, counts, counts)
