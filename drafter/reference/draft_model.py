"""The draft model of one request: extend passes, draft steps, and the map to target tokens."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding

from drafter.checkpoint_files import expected_shapes
from drafter.reference.layer import (
    KvCache,
    draft_layer,
    fuse_states,
    linear,
    rms_norm,
    visible_by_position,
)
from drafter.reference.rope import RotaryTable, rotary_frequencies, rotary_magnitude
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError


class DraftPass(NamedTuple):
    """What one pass over T rows gives."""

    logits: Tensor
    carry: Tensor
    cache: KvCache

    def last(self) -> "DraftPass":
        """Only the last row of logits and carry; the cache as it is."""
        return DraftPass(self.logits[-1:], self.carry[-1:], self.cache)


class DraftModel:
    """An EAGLE-3 draft model with every switch of its spec, one request at a time.

    Row t of an extend pass holds token t+1 and the captured states of token t. Positions may start
    anywhere, since the embedding of positions is relative. [li2025]_ section 3.1; drafter.md 6.
    """

    def __init__(
        self,
        spec: DraftSpec,
        weights: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float64,
        context_tokens: int | None = None,
    ) -> None:
        self.spec, self.dtype = spec, dtype
        self.weights = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in weights.items()
        }
        for name, shape in expected_shapes(spec).items():
            found = tuple(self.weights[name].shape) if name in self.weights else "no such tensor"
            if found != shape:
                raise ParameterError(f"shape of {name}", found, f"{shape} as the spec says")
        for name in self.weights:
            if name.endswith(".bias") and name not in expected_shapes(spec):
                raise ParameterError(
                    "weights", f"with {name}", "without biases that the spec has not"
                )
        self._frequencies = rotary_frequencies(
            spec.rope,
            spec.head_dim if spec.latent is None else spec.latent.rope_dim,
            max_positions=spec.max_positions,
            context_tokens=context_tokens,
        )

    def empty_cache(self) -> KvCache:
        """Cache of a request that has not begun."""
        return KvCache.empty(self.spec, dtype=self.dtype)

    def extend(
        self, tokens: Tensor, aux_states: Tensor, positions: Tensor, cache: KvCache | None = None
    ) -> DraftPass:
        """First pass of a round, over tokens that the target has accepted."""
        hidden = fuse_states(self.spec, self.weights, aux_states.to(self.dtype))
        return self.step(tokens, hidden, positions, self.empty_cache() if cache is None else cache)

    def step(
        self,
        tokens: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: KvCache,
        visible: Tensor | None = None,
    ) -> DraftPass:
        """Logits and carry after the layer, for rows that already have a hidden state."""
        spec, weights = self.spec, self.weights
        self._check(tokens, hidden, positions)
        if visible is None:
            visible = visible_by_position(
                positions,
                torch.cat([cache.positions, positions]),
                sliding_window=spec.sliding_window,
            )
        table = RotaryTable.at(
            positions, self._frequencies, magnitude=rotary_magnitude(spec.rope), dtype=self.dtype
        )
        residual, cache = draft_layer(
            spec,
            weights,
            embedding(tokens, weights["embed_tokens.weight"]),
            hidden,
            table=table,
            positions=positions,
            visible=visible,
            cache=cache,
        )
        normed = rms_norm(residual, weights["norm.weight"], spec.rms_norm_eps)
        return DraftPass(
            logits=linear(normed, weights, "lm_head"),
            carry=normed if spec.norm_output else residual,
            cache=cache,
        )

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Ids of the target's vocabulary.

        `d2t` holds offsets in every code base. drafter.md 3.
        """
        return draft_ids + self.weights["d2t"][draft_ids]

    def _check(self, tokens: Tensor, hidden: Tensor, positions: Tensor) -> None:
        """Refuse rows that do not fit together or into the vocabulary."""
        rows = len(tokens)
        if rows == 0 or list(hidden.shape) != [rows, self.spec.hidden_size]:
            allowed = f"[{rows or 'at least 1'}, {self.spec.hidden_size}] for {rows} tokens"
            raise ParameterError("shape of hidden", list(hidden.shape), allowed)
        if list(positions.shape) != [rows]:
            raise ParameterError("shape of positions", list(positions.shape), f"[{rows}]")
        last = self.spec.target_vocab_size - 1
        wrong = tokens[(tokens < 0) | (tokens > last)]
        if len(wrong):
            raise ParameterError("tokens", int(wrong[0]), f"target ids from 0 to {last}")
