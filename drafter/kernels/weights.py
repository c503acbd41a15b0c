"""Weights as kernels read them: packed products, absorbed latent heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from drafter.kernels.attention import AttentionWidths
from drafter.kernels.launch_plan import STORAGE_TYPES, check_tensor
from drafter.spec import DraftSpec, LatentHeads
from specmodel.errors import ParameterError

PREFIX = "layers.0.self_attn"
"""Canonical prefix of every tensor of attention."""

Take = Callable[..., torch.Tensor]
"""Gives the tensor of a name and a shape, in the storage type."""


class LatentWeights(NamedTuple):
    r"""Norms and inner products of latent heads.

    Keys and values of a head are never made: :math:`q \cdot (W c) = (W^T q) \cdot c`, and a sum of
    values is a product with a sum of latents. [deepseek-v3-2024]_ section 2.1.1.
    """

    query_norm: torch.Tensor
    key_norm: torch.Tensor
    expand: torch.Tensor
    absorb: torch.Tensor
    value: torch.Tensor

    @classmethod
    def taken(cls, spec: DraftSpec, latent: LatentHeads, take: Take) -> "LatentWeights":
        """Weights by their canonical names, `kv_b_proj` cut into its two uses.

        Both parts of `kv_b_proj` are copies, so that each product reads rows.
        """
        heads, rank = spec.num_heads, latent.kv_rank
        rows = (latent.nope_dim, latent.value_dim)
        made = take(f"{PREFIX}.kv_b_proj.weight", heads * sum(rows), rank)
        keys, values = made.view(heads, sum(rows), rank).split(rows, dim=1)
        return cls(
            query_norm=take(f"{PREFIX}.q_a_layernorm.weight", latent.query_rank),
            key_norm=take(f"{PREFIX}.kv_a_layernorm.weight", rank),
            expand=take(
                f"{PREFIX}.q_b_proj.weight",
                heads * (latent.nope_dim + latent.rope_dim),
                latent.query_rank,
            ),
            absorb=keys.transpose(1, 2).contiguous(),
            value=values.contiguous(),
        )


def head_norms(spec: DraftSpec, take: Take) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Norms of queries and keys of grouped heads: only the qwen3 type of the layer has them."""
    if not spec.qk_norm:
        return None
    query, key = (take(f"{PREFIX}.{name}_norm.weight", spec.head_dim) for name in "qk")
    return query, key


def first_product(spec: DraftSpec, take: Take) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows that see embedding and hidden state, in one matrix, and their bias.

    No layout gives latent heads a bias. drafter.md 3.
    """
    inputs, latent = 2 * spec.hidden_size, spec.latent
    if latent is not None:
        rows = {
            "q_a_proj": latent.query_rank,
            "kv_a_proj_with_mqa": latent.kv_rank + latent.rope_dim,
        }
    else:
        keys = spec.num_kv_heads * spec.head_dim
        rows = {"q_proj": spec.num_heads * spec.head_dim, "k_proj": keys, "v_proj": keys}
    parts = [take(f"{PREFIX}.{name}.weight", count, inputs) for name, count in rows.items()]
    bias = None
    if spec.attention_bias and latent is None:
        bias = torch.cat([take(f"{PREFIX}.{name}.bias", count) for name, count in rows.items()])
    return torch.cat(parts), bias


_LAYER = "layers.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """The weights of a draft model on one device, in one storage type.

    Matrices that need no packing are the given tensors where type and device allow.
    """

    state_norm: torch.Tensor | None
    fc: torch.Tensor | None
    fc_bias: torch.Tensor | None
    embedding: torch.Tensor
    embed_norm: torch.Tensor
    hidden_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    attention: tuple[torch.Tensor, torch.Tensor] | LatentWeights | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    final_norm: torch.Tensor
    head: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def from_canonical(
        cls,
        spec: DraftSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> "PackedWeights":
        """Weights under their canonical names, moved, rounded and packed.

        Refuses before anything is allocated on the device.
        """
        if dtype not in STORAGE_TYPES:
            raise ParameterError("dtype", dtype, "bfloat16, float16 or float32")
        take = _Taker(weights, dtype, torch.device(device))
        hidden, target = spec.hidden_size, spec.target_hidden_size
        states = spec.num_aux_states
        state_norm = None
        if spec.use_aux_hidden_state and spec.fc_norm:
            parts = [take(f"fc_norm.{index}.weight", target) for index in range(states)]
            state_norm = torch.stack(parts)
        elif spec.use_aux_hidden_state and spec.norm_before_fc:
            state_norm = take("input_norm.weight", states * target)[None]
        qkv, qkv_bias = first_product(spec, take)
        out_bias = None
        if qkv_bias is not None and f"{PREFIX}.o_proj.bias" in weights:
            out_bias = take(f"{PREFIX}.o_proj.bias", hidden)
        latent, has_fc = spec.latent, spec.use_aux_hidden_state
        return cls(
            state_norm=state_norm,
            fc=take("fc.weight", hidden, states * target) if has_fc else None,
            fc_bias=take("fc.bias", hidden) if has_fc and spec.fc_bias else None,
            embedding=take("embed_tokens.weight", spec.target_vocab_size, hidden),
            embed_norm=take(f"{_LAYER}.input_layernorm.weight", hidden),
            hidden_norm=take(f"{_LAYER}.hidden_norm.weight", hidden),
            qkv=qkv,
            qkv_bias=qkv_bias,
            attention=head_norms(spec, take)
            if latent is None
            else LatentWeights.taken(spec, latent, take),
            out=take(f"{PREFIX}.o_proj.weight", hidden, AttentionWidths.of(spec).out),
            out_bias=out_bias,
            mlp_norm=take(f"{_LAYER}.post_attention_layernorm.weight", hidden),
            gate=take(f"{_LAYER}.mlp.gate_proj.weight", spec.mlp_width, hidden),
            up=take(f"{_LAYER}.mlp.up_proj.weight", spec.mlp_width, hidden),
            down=take(f"{_LAYER}.mlp.down_proj.weight", hidden, spec.mlp_width),
            final_norm=take("norm.weight", hidden),
            head=take("lm_head.weight", spec.draft_vocab_size, hidden),
            offsets=take.offsets(spec.draft_vocab_size),
        )


@dataclass(frozen=True, slots=True)
class _Taker:
    """Tensors by name, checked, moved and rounded."""

    weights: Mapping[str, torch.Tensor]
    dtype: torch.dtype
    device: torch.device

    def __call__(self, name: str, *shape: int) -> torch.Tensor:
        tensor = self._named(name)
        check_tensor(name, tensor.contiguous(), shape, (*STORAGE_TYPES, torch.float64))
        return tensor.to(device=self.device, dtype=self.dtype).contiguous()

    def offsets(self, num_ids: int) -> torch.Tensor:
        tensor = self._named("d2t")
        check_tensor("d2t", tensor.contiguous(), (num_ids,), (torch.int64,))
        return tensor.to(device=self.device).contiguous()

    def _named(self, name: str) -> torch.Tensor:
        if name not in self.weights:
            raise ParameterError("weights", "without it", f"a mapping with {name}")
        return self.weights[name]
