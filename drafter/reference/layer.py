"""A decoder layer in plain torch: norms, linear maps, fused states, what a token sees, the cache, grouped and latent heads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import silu

from drafter.reference.rope import (
    RotaryTable,
    latent_score_factor,
    rotate_halves,
    rotate_neighbours,
)
from drafter.spec import DraftSpec, LatentHeads
from specmodel.errors import ParameterError


def visible_by_position(
    query_positions: Tensor, key_positions: Tensor, *, sliding_window: int | None = None
) -> Tensor:
    r"""True where a key is not after the query, and not further back than the window.

    .. math:: t_q - w < t_k \le t_q

    Rows of one position, as a tree has them, see each other here: their tree decides
    (`visible_in_tree`). In training, speculators leaves the window of a draft where its first row has
    it; served, it moves on with the position, as here. [speculators-eagle3]_
    """
    distance = query_positions[:, None] - key_positions[None, :]
    seen = distance >= 0
    return seen if sliding_window is None else seen & (distance < sliding_window)


def visible_in_tree(
    query_positions: Tensor,
    key_positions: Tensor,
    ancestors: Tensor,
    *,
    sliding_window: int | None = None,
) -> Tensor:
    """True for the rows before the tree by position, and in the tree for ancestors and the row itself."""
    seen = visible_by_position(query_positions, key_positions, sliding_window=sliding_window)
    before = len(key_positions) - ancestors.shape[1]
    seen[:, before:] &= ancestors
    return seen


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Keys and values of one request, in the order in which they were written.

    Nothing is written in place: a round drops the rows of its draft by keeping the cache from before.
    """

    keys: Tensor
    values: Tensor
    positions: Tensor

    @classmethod
    def empty(cls, spec: DraftSpec, *, dtype: torch.dtype = torch.float64) -> Self:
        """Cache before the first row."""
        if spec.latent is None:
            key_shape = value_shape = (0, spec.num_kv_heads, spec.head_dim)
        else:
            key_shape = (0, 1, spec.latent.rope_dim)
            value_shape = (0, 1, spec.latent.kv_rank)
        return cls(
            keys=torch.empty(key_shape, dtype=dtype),
            values=torch.empty(value_shape, dtype=dtype),
            positions=torch.empty(0, dtype=torch.int64),
        )

    def extended(self, keys: Tensor, values: Tensor, positions: Tensor) -> "KvCache":
        """Cache with more rows at its end."""
        return KvCache(
            keys=torch.cat([self.keys, keys]),
            values=torch.cat([self.values, values]),
            positions=torch.cat([self.positions, positions.to(torch.int64)]),
        )

    def __len__(self) -> int:
        return len(self.positions)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, *, visible: Tensor, scale: float
) -> Tensor:
    r"""Means of the values, weighted by how well each key answers the query.

    .. math:: o_{th} = \sum_s \operatorname{softmax}_s(\sigma\, q_{th}\cdot k_{sg})\, v_{sg},
        \qquad g = \lfloor h N_{KV}/N_H \rfloor

    over the visible rows :math:`s`.

    No sinks and no soft cap: no EAGLE-3 layout has them.
    """
    if not bool(visible.any(dim=1).all()):
        row = int((~visible.any(dim=1)).nonzero()[0])
        raise ParameterError("visible", f"none for row {row}", "at least one row for each query")
    heads_per_key = queries.shape[1] // keys.shape[1]
    keys = keys.repeat_interleave(heads_per_key, dim=1)
    values = values.repeat_interleave(heads_per_key, dim=1)
    scores = torch.einsum("thd,shd->hts", queries, keys) * scale
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return torch.einsum("hts,shd->thd", weights, values)


PREFIX = "layers.0.self_attn"
"""Canonical prefix of every tensor of attention."""


def grouped_attention(
    spec: DraftSpec,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    r"""Output of attention before its projection, and the cache with the rows it wrote.

    .. math:: q, k, v = W_q x + b_q,\ W_k x + b_k,\ W_v x + b_v

    then, with `qk_norm`, the norm of each head of q and k, then the rotation, then attention with scale
    :math:`1/\sqrt D`.

    Biases and the q and k norm exist in the speculators layout only. drafter.md 3 and 5;
    [speculators-eagle3]_.
    """
    queries, keys, values = (
        linear(x, weights, f"{PREFIX}.{name}_proj").unflatten(-1, (-1, spec.head_dim))
        for name in "qkv"
    )
    if spec.qk_norm:
        queries = rms_norm(queries, weights[f"{PREFIX}.q_norm.weight"], spec.rms_norm_eps)
        keys = rms_norm(keys, weights[f"{PREFIX}.k_norm.weight"], spec.rms_norm_eps)
    cache = cache.extended(rotate_halves(keys, table), values, positions)
    heads = attend(
        rotate_halves(queries, table),
        cache.keys,
        cache.values,
        visible=visible,
        scale=spec.head_dim**-0.5,
    )
    return torch.flatten(heads, start_dim=1), cache


def latent_attention(
    spec: DraftSpec,
    latent: LatentHeads,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    r"""Output of latent attention before its projection, and the cache with the rows it wrote.

    .. math::
        (q^n_h, q^r_h) = W_{qb}\operatorname{norm}(W_{qa}x), \qquad
        (c, k^r) = W_{kva}x, \qquad (k^n_h, v_h) = W_{kvb}\operatorname{norm}(c)

    Scores are :math:`\sigma(q^n_h\cdot k^n_h + R q^r_h\cdot R k^r)` with
    :math:`\sigma = m^2/\sqrt{d_n+d_r}`; the turning part of the keys is one for all heads.

    This is the definition; kernels, like serving engines, use the equal form where `kv_b_proj` is absorbed
    into queries and outputs. Turning values stand side by side, and the two inner norms use the model's
    eps, as serving engines do. [deepseek-v3-2024]_ section 2.1.1; drafter.md 3.
    """

    def normed(values: Tensor, name: str) -> Tensor:
        return rms_norm(values, weights[f"{PREFIX}.{name}.weight"], spec.rms_norm_eps)

    compressed = normed(linear(x, weights, f"{PREFIX}.q_a_proj"), "q_a_layernorm")
    queries = linear(compressed, weights, f"{PREFIX}.q_b_proj")
    queries = queries.unflatten(-1, (spec.num_heads, latent.nope_dim + latent.rope_dim))
    still, turning = queries.split([latent.nope_dim, latent.rope_dim], dim=-1)
    queries = torch.cat([still, rotate_neighbours(turning, table)], dim=-1)

    rows = linear(x, weights, f"{PREFIX}.kv_a_proj_with_mqa")
    new_latents, new_keys = rows.split([latent.kv_rank, latent.rope_dim], dim=-1)
    cache = cache.extended(
        rotate_neighbours(new_keys[:, None], table),
        normed(new_latents, "kv_a_layernorm")[:, None],
        positions,
    )

    made = linear(cache.values[:, 0], weights, f"{PREFIX}.kv_b_proj")
    made = made.unflatten(-1, (spec.num_heads, latent.nope_dim + latent.value_dim))
    still_keys, values = made.split([latent.nope_dim, latent.value_dim], dim=-1)
    keys = torch.cat([still_keys, cache.keys.expand(-1, spec.num_heads, -1)], dim=-1)

    scale = latent_score_factor(spec.rope) * (latent.nope_dim + latent.rope_dim) ** -0.5
    heads = attend(queries, keys, values, visible=visible, scale=scale)
    return torch.flatten(heads, start_dim=1), cache


def linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Rows through a stored matrix, and its bias where one is stored.

    .. math:: y = x W^T + b
    """
    product = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return product if bias is None else product + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    r"""Rows scaled to a root mean square of one, times a weight.

    .. math:: y_i = w_i \frac{x_i}{\sqrt{\frac1n\sum_j x_j^2 + \epsilon}}

    Nothing is rounded on the way. Implementations in 16 bit differ by one unit in the last place in
    whether they round before or after the weight is applied, so compare with a norm, never bitwise.
    """
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def fuse_states(spec: DraftSpec, weights: Mapping[str, Tensor], aux_states: Tensor) -> Tensor:
    r"""Hidden states for the extend pass.

    .. math:: h = W_{fc}\,(a_1, \dots, a_A) + b

    with a norm of each :math:`a_i` (`fc_norm`), or one norm of their concatenation (`norm_before_fc`),
    before the product. Without `use_aux_hidden_state` the one state given is the hidden state.

    [li2025]_ section 3.1; drafter.md 5 and 6.
    """
    states = spec.num_captured_states
    width = states * spec.target_hidden_size
    if aux_states.ndim != 2 or aux_states.shape[1] != width:
        allowed = f"[T, {width}] ({states} x target_hidden_size {spec.target_hidden_size})"
        raise ParameterError("shape of aux_states", list(aux_states.shape), allowed)
    if not spec.use_aux_hidden_state:
        return aux_states
    if spec.norm_before_fc:
        aux_states = rms_norm(aux_states, weights["input_norm.weight"], spec.rms_norm_eps)
    if spec.fc_norm:
        parts = [
            rms_norm(part, weights[f"fc_norm.{index}.weight"], spec.rms_norm_eps)
            for index, part in enumerate(aux_states.split(spec.target_hidden_size, dim=-1))
        ]
        aux_states = torch.cat(parts, dim=-1)
    return linear(aux_states, weights, "fc")


def draft_layer(
    spec: DraftSpec,
    weights: Mapping[str, Tensor],
    embeddings: Tensor,
    hidden: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    """Residual stream after the layer, and the cache with the rows it wrote.

    Embedding half first. [li2025]_ section 3.1; `norm_before_residual` as in [speculators-eagle3]_.
    """

    def normed(rows: Tensor, name: str) -> Tensor:
        return rms_norm(rows, weights[f"layers.0.{name}.weight"], spec.rms_norm_eps)

    states = normed(hidden, "hidden_norm")
    x = torch.cat([normed(embeddings, "input_layernorm"), states], dim=-1)
    seen: dict[str, Any] = {
        "table": table,
        "positions": positions,
        "visible": visible,
        "cache": cache,
    }
    if spec.latent is None:
        heads, cache = grouped_attention(spec, weights, x, **seen)
    else:
        heads, cache = latent_attention(spec, spec.latent, weights, x, **seen)
    residual = states if spec.norm_before_residual else hidden
    residual = residual + linear(heads, weights, f"{PREFIX}.o_proj")
    y = normed(residual, "post_attention_layernorm")
    gate, up = (linear(y, weights, f"layers.0.mlp.{name}_proj") for name in ("gate", "up"))
    return residual + linear(silu(gate) * up, weights, "layers.0.mlp.down_proj"), cache
