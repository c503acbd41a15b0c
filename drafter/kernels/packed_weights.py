"""Weights as the kernels read them: one storage type, first rows of attention in one matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor
from drafter.kernels.attention_weights import (
    PREFIX,
    GroupedWeights,
    LatentWeights,
    first_product,
)
from drafter.kernels.attention_widths import AttentionWidths
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

_LAYER = "layers.0"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """The weights of a draft model on one device, in one storage type.

    Parameters
    ----------
    state_norm : torch.Tensor or None
        Of the captured states: shape (A, Ht) with `fc_norm`, (1, A Ht) with `norm_before_fc`.
    fc, fc_bias : torch.Tensor or None
        Shapes (H, A Ht) and (H,); None without `use_aux_hidden_state`, or without a bias.
    embedding : torch.Tensor, shape (V, H)
        Of the target's tokens.
    embed_norm, hidden_norm, mlp_norm, final_norm : torch.Tensor, shape (H,)
        Norms of the two halves, before the MLP, and before the head.
    qkv : torch.Tensor, shape ((NH + 2 NKV) D, 2 H)
        Queries, keys and values; for latent heads (query_rank + kv_rank + rope_dim, 2 H), compressed
        queries, latents and the turning part of keys.
    qkv_bias : torch.Tensor or None
        Its bias.
    attention : GroupedWeights or LatentWeights
        What stands between that product and the output projection.
    out : torch.Tensor, shape (H, NH D)
        Output projection; for latent heads (H, NH value_dim).
    out_bias : torch.Tensor or None
        Its bias, which checkpoints with `attention_bias` may carry.
    gate, up : torch.Tensor, shape (I, H)
        First half of the MLP.
    down : torch.Tensor, shape (H, I)
        Second half.
    head : torch.Tensor, shape (Vd, H)
        Head.
    offsets : torch.Tensor, shape (Vd,)
        d2t, int64.

    Notes
    -----
    Matrices that need no packing are the given tensors where type and device allow.

    Examples
    --------
    >>> "qkv" in PackedWeights.__dataclass_fields__
    True
    """

    state_norm: torch.Tensor | None
    fc: torch.Tensor | None
    fc_bias: torch.Tensor | None
    embedding: torch.Tensor
    embed_norm: torch.Tensor
    hidden_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    attention: GroupedWeights | LatentWeights
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

        Parameters
        ----------
        spec : DraftSpec
            Shapes and switches.
        weights : mapping of str to torch.Tensor
            Canonical names.
        dtype : torch.dtype
            Storage type: bf16, fp16 or fp32.
        device : torch.device or str
            Where the kernels run.

        Returns
        -------
        PackedWeights
            Contiguous tensors.

        Raises
        ------
        ParameterError
            If a tensor is missing or misshapen, or the type is no storage type.

        Notes
        -----
        Refuses before anything is allocated on the device.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> weights = random_weights(example_spec(), seed=0, dtype=torch.float32)
        >>> packed = PackedWeights.from_canonical(
        ...     example_spec(), weights, dtype=torch.bfloat16, device="cpu"
        ... )
        >>> packed.qkv.dtype
        torch.bfloat16
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
            attention=GroupedWeights.taken(spec, take)
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


@final
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
