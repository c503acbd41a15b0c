"""Weights as kernels read them: packed products, absorbed latent heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from drafter.checkpoint_files import expected_shapes
from drafter.kernels.launch_plan import STORAGE_TYPES, check_tensor
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

PREFIX = "layers.0.self_attn"
"""Canonical prefix of every tensor of attention."""

Take = Callable[..., torch.Tensor]
"""Gives the tensor of a name in the storage type, checked against the shape that the spec says."""


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
    def taken(cls, spec: DraftSpec, take: Take) -> "LatentWeights":
        """Weights by their canonical names, `kv_b_proj` cut into its two uses.

        Both parts of `kv_b_proj` are copies, so that each product reads rows.
        """
        latent = spec.latent
        if latent is None:
            raise ParameterError("attention", "grouped", "latent heads")
        rows = (latent.nope_dim, latent.value_dim)
        made = take(f"{PREFIX}.kv_b_proj.weight").unflatten(0, (spec.num_heads, sum(rows)))
        keys, values = made.split(rows, dim=1)
        return cls(
            query_norm=take(f"{PREFIX}.q_a_layernorm.weight"),
            key_norm=take(f"{PREFIX}.kv_a_layernorm.weight"),
            expand=take(f"{PREFIX}.q_b_proj.weight"),
            absorb=keys.transpose(1, 2).contiguous(),
            value=values.contiguous(),
        )


def head_norms(spec: DraftSpec, take: Take) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Norms of queries and keys of grouped heads: only the qwen3 type of the layer has them."""
    if not spec.qk_norm:
        return None
    query, key = (take(f"{PREFIX}.{name}_norm.weight") for name in "qk")
    return query, key


def first_product(spec: DraftSpec, take: Take) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows that see embedding and hidden state, in one matrix, and their bias.

    No layout gives latent heads a bias. drafter.md 3.
    """
    grouped = ("q_proj", "k_proj", "v_proj")
    names = grouped if spec.latent is None else ("q_a_proj", "kv_a_proj_with_mqa")
    bias = None
    if spec.attention_bias and spec.latent is None:
        bias = torch.cat([take(f"{PREFIX}.{name}.bias") for name in names])
    return torch.cat([take(f"{PREFIX}.{name}.weight") for name in names]), bias


_LAYER = "layers.0"
_GIVEN = (*STORAGE_TYPES, torch.float64)


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
        shapes, place = expected_shapes(spec), torch.device(device)

        def take(name: str, types: Sequence[torch.dtype] = _GIVEN) -> torch.Tensor:
            if name not in weights:
                raise ParameterError("weights", "without it", f"a mapping with {name}")
            wanted = shapes.get(name, (spec.draft_vocab_size,))
            check_tensor(name, weights[name].contiguous(), wanted, types)
            kept = None if torch.int64 in types else dtype
            return weights[name].to(device=place, dtype=kept).contiguous()

        states = range(spec.num_aux_states)
        has_fc, is_grouped = spec.use_aux_hidden_state, spec.latent is None
        state_norm = None
        if has_fc and spec.fc_norm:
            state_norm = torch.stack([take(f"fc_norm.{index}.weight") for index in states])
        elif has_fc and spec.norm_before_fc:
            state_norm = take("input_norm.weight")[None]
        qkv, qkv_bias = first_product(spec, take)
        out_bias = f"{PREFIX}.o_proj.bias" if qkv_bias is not None else ""
        return cls(
            state_norm=state_norm,
            fc=take("fc.weight") if has_fc else None,
            fc_bias=take("fc.bias") if has_fc and spec.fc_bias else None,
            embedding=take("embed_tokens.weight"),
            embed_norm=take(f"{_LAYER}.input_layernorm.weight"),
            hidden_norm=take(f"{_LAYER}.hidden_norm.weight"),
            qkv=qkv,
            qkv_bias=qkv_bias,
            attention=head_norms(spec, take) if is_grouped else LatentWeights.taken(spec, take),
            out=take(f"{PREFIX}.o_proj.weight"),
            out_bias=take(out_bias) if out_bias in weights else None,
            mlp_norm=take(f"{_LAYER}.post_attention_layernorm.weight"),
            gate=take(f"{_LAYER}.mlp.gate_proj.weight"),
            up=take(f"{_LAYER}.mlp.up_proj.weight"),
            down=take(f"{_LAYER}.mlp.down_proj.weight"),
            final_norm=take("norm.weight"),
            head=take("lm_head.weight"),
            offsets=take("d2t", (torch.int64,)),
        )
