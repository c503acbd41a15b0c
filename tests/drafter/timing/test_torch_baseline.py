"""The torch baseline drafts what the fp64 reference drafts: it is a fair opponent only if it is right."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from drafter.checkpoint import random_weights
from drafter.kernels.weights import PackedWeights
from drafter.public_models import example_spec
from drafter.reference import DraftModel, draft_chain
from drafter.spec import LatentHeads, Rope
from drafter.timing.works import _NO_KERNEL, TorchBaseline
from specmodel.errors import ParameterError

SWITCHES: list[dict[str, Any]] = [
    {},
    {"norm_before_residual": True, "qk_norm": True},
    {"fc_norm": True, "norm_output": True, "fc_bias": True},
    {"norm_before_fc": True, "rope": Rope(kind="linear", factor=4.0)},
    {"use_aux_hidden_state": False, "target_hidden_size": 24},
    {"num_kv_heads": 4},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda each: " ".join(each) or "none")
@pytest.mark.parametrize("context", [0, 5])
def test_the_baseline_drafts_what_the_reference_drafts(
    switches: dict[str, Any], context: int
) -> None:
    spec = replace(example_spec(), **switches)
    weights = random_weights(spec, seed=4, dtype=torch.float32, ascending=False)
    packed = PackedWeights.from_canonical(spec, weights, dtype=torch.float32, device="cpu")
    model = DraftModel(spec, weights, dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    count = context + 3
    states = spec.num_aux_states if spec.use_aux_hidden_state else 1
    tokens = torch.randint(spec.target_vocab_size, (2, count), generator=generator)
    captured = torch.randn(2, count, states * spec.target_hidden_size, generator=generator)
    baseline = TorchBaseline(
        spec, packed, batch_size=2, context_tokens=context, accepted=3, num_steps=4
    )
    if context:
        start = TorchBaseline(
            spec, packed, batch_size=2, context_tokens=0, accepted=context, num_steps=1
        )
        start.tokens.copy_(tokens[:, :context])
        start.captured.copy_(captured[:, :context])
        start.run(1)
        baseline.keys[:, :, :context] = start.keys[:, :, :context]
        baseline.values[:, :, :context] = start.values[:, :, :context]
    baseline.tokens.copy_(tokens[:, context:])
    baseline.captured.copy_(captured[:, context:])
    baseline.run(4)
    for request in range(2):
        truth = draft_chain(
            model, tokens[request], captured[request].double(), torch.arange(count), num_steps=4
        )
        assert baseline.drafted[request].tolist() == truth.tokens.tolist()


@pytest.mark.parametrize(
    "switches",
    [
        {"sliding_window": 4},
        {"latent": LatentHeads(query_rank=6, kv_rank=5, nope_dim=4, rope_dim=2, value_dim=3)},
    ],
    ids=["window", "latent"],
)
def test_what_the_baseline_does_not_compute_is_refused(switches: dict[str, Any]) -> None:
    spec = replace(example_spec(), **switches)
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    packed = PackedWeights.from_canonical(spec, weights, dtype=torch.float32, device="cpu")
    with pytest.raises(ParameterError, match="grouped heads that see everything"):
        TorchBaseline(spec, packed, batch_size=1, context_tokens=0, accepted=1, num_steps=1)


def a_baseline() -> TorchBaseline:
    spec = example_spec()
    weights = random_weights(spec, seed=0, dtype=torch.float32)
    packed = PackedWeights.from_canonical(spec, weights, dtype=torch.float32, device="cpu")
    return TorchBaseline(spec, packed, batch_size=1, context_tokens=0, accepted=2, num_steps=2)


def test_what_torch_says_without_a_kernel_of_attention_is_known() -> None:
    """Its own words: attention of another device is all that it may use here."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError) as caught:
        a_baseline().run(2)
    assert any(words in str(caught.value).lower() for words in _NO_KERNEL)
