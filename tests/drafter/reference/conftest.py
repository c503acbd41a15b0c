import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.checkpoint import random_weights
from drafter.public_models import example_spec
from drafter.reference import DraftModel
from drafter.spec import LatentHeads

Request = tuple[DraftModel, Tensor, Tensor, Tensor]
"""A draft model, and tokens, captured states and positions of one request."""

LATENT = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=5)


@pytest.fixture
def make_request() -> Callable[..., Request]:
    """Draft model with changes to the example spec, and seeded rows that fit it."""

    def make(
        rows: int = 5, *, seed: int = 0, weights: dict[str, Tensor] | None = None, **changes: Any
    ) -> Request:
        spec = dataclasses.replace(example_spec(), **changes)
        if weights is None:
            weights = random_weights(spec, seed=seed, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed + 1)
        states = spec.num_aux_states if spec.use_aux_hidden_state else 1
        width = states * spec.target_hidden_size
        return (
            DraftModel(spec, weights),
            torch.randint(spec.target_vocab_size, (rows,), generator=generator),
            torch.randn(rows, width, generator=generator, dtype=torch.float64),
            torch.arange(rows),
        )

    return make


SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "fc_norm": {"fc_norm": True},
    "five_states": {"fc_norm": True, "num_aux_states": 5},
    "norm_before_fc": {"norm_before_fc": True},
    "norm_output": {"norm_output": True},
    "qk_norm": {"qk_norm": True},
    "biases": {"attention_bias": True, "fc_bias": True},
    "window": {"sliding_window": 3},
    "no_fusion": {"use_aux_hidden_state": False, "target_hidden_size": 24},
    "latent": {"latent": LATENT},
    "latent_window_norm_output": {"latent": LATENT, "sliding_window": 3, "norm_output": True},
}


@pytest.fixture(params=list(SWITCHES.values()), ids=list(SWITCHES))
def any_request(request: pytest.FixtureRequest, make_request: Callable[..., Request]) -> Request:
    """A request for each switch."""
    return make_request(**request.param)
