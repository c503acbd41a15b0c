"""One pass of the layer: buffers, either kind of heads, MLP."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from drafter.kernels.attention import (
    AttentionBuffers,
    AttentionWidths,
    attention,
    attention_merge,
    latent_attention,
    latent_cache,
)
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS
from drafter.kernels.norm_rope import CacheSpace, layer_input, rope_cache, row_norm
from drafter.kernels.numerics import Fed
from drafter.kernels.products import gate_up, head_product, input_product, linear
from drafter.kernels.weights import LatentWeights, PackedWeights
from drafter.reference.rope import latent_score_factor
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuffers:
    """What one pass over T tokens writes, in the order in which it does.

    The residual stream stays in fp32; engines round it to the storage type.
    """

    fused_input: torch.Tensor
    residual: torch.Tensor
    qkv: torch.Tensor
    attention: AttentionBuffers
    heads: torch.Tensor
    middle: torch.Tensor
    normed: torch.Tensor
    gated: torch.Tensor
    stream: torch.Tensor
    carry: torch.Tensor

    @classmethod
    def empty(
        cls,
        spec: DraftSpec,
        num_tokens: int,
        *,
        num_splits: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> "LayerBuffers":
        """Space for a pass.

        The parts of the context are the largest: T · NH · P rows of fp32, 67 MB for eight tokens of 64 latent
        heads in 64 parts, else a few MB.
        """
        heads, hidden, latent = spec.num_heads, spec.hidden_size, spec.latent
        widths = AttentionWidths.of(spec)

        def stored(*shape: int) -> torch.Tensor:
            return torch.empty(num_tokens, *shape, dtype=dtype, device=device)

        def exact(*shape: int) -> torch.Tensor:
            return torch.empty(num_tokens, *shape, dtype=torch.float32, device=device)

        attention = AttentionBuffers(
            query=stored(heads, widths.cached),
            part_out=exact(heads, num_splits, widths.attended),
            part_log=exact(heads, num_splits),
        )
        if latent is not None:
            attention = attention._replace(
                compressed=stored(latent.query_rank),
                expanded=exact(heads, latent.nope_dim + latent.rope_dim),
                attended=stored(heads, latent.kv_rank),
            )
        stream = exact(hidden)
        return cls(
            fused_input=stored(2 * hidden),
            residual=exact(hidden),
            qkv=exact(widths.first_rows),
            attention=attention,
            heads=stored(widths.out),
            middle=exact(hidden),
            normed=stored(hidden),
            gated=stored(spec.mlp_width),
            stream=stream,
            carry=exact(hidden) if spec.norm_output else stream,
        )


def grouped_block(
    spec: DraftSpec,
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
) -> None:
    r"""Launch norm and rotation, attention, and the merge of its parts.

    .. math:: (q, k, v) \mapsto \operatorname{attention}(R q, R K, V)

    Three launches. drafter.md 11.
    """
    own, eps = buffers.attention, spec.rms_norm_eps
    rope_cache(buffers.qkv, cache, fed.positions, fed.slots, own.query, norms=norms, eps=eps)
    parts = (own.part_out, own.part_log)
    window = spec.sliding_window
    attention(own.query, cache.keys, cache.values, fed.seen, *parts, sliding_window=window)
    attention_merge(*parts, buffers.heads)


def latent_block(
    spec: DraftSpec, weights: LatentWeights, buffers: LayerBuffers, cache: CacheSpace, fed: Fed
) -> None:
    r"""Launch norms and cache, queries, attention over latents, the merge of its parts, and values.

    .. math::
        (q^n_h, q^r_h) = W_{qb} \operatorname{norm}(q), \quad
        o_h = W^v_h \operatorname{attention}\left([{W^k_h}^T q^n_h, R q^r_h], [C, R K^r], C\right)

    Six launches. drafter.md 3 and 11.
    """
    own, angles = buffers.attention, (cache.cosine, cache.sine)
    query, expanded, attended = own.compressed, own.expanded, own.attended
    if query is None or expanded is None or attended is None:
        raise ParameterError("buffers", "of the other kind of heads", "of the weights' kind")
    norms = (weights.query_norm, weights.key_norm)
    place = (fed.positions, fed.slots)
    latent_cache(buffers.qkv, *angles, *place, *norms, query, cache.keys, eps=spec.rms_norm_eps)
    linear(query, weights.expand, expanded.flatten(1))
    turned = {"positions": fed.positions, "cosine": cache.cosine, "sine": cache.sine}
    head_product(expanded, weights.absorb, own.query, **turned)
    scale = latent_score_factor(spec.rope) / math.sqrt(expanded.shape[-1])
    parts = (own.part_out, own.part_log)
    how: dict[str, Any] = {"scale": scale, "sliding_window": spec.sliding_window}
    latent_attention(own.query, cache.keys, fed.seen, *parts, **how)
    attention_merge(*parts, attended.flatten(1))
    head_product(attended, weights.value, buffers.heads.unflatten(1, (spec.num_heads, -1)))


def layer_pass(
    spec: DraftSpec,
    weights: PackedWeights,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    is_fused: bool,
) -> None:
    """Launch the layer; `buffers.stream` and `buffers.carry` hold the result.

    Grouped heads: seven launches with fused norms, nine without; one more with `norm_output`. Latent
    heads: three more. drafter.md 6 and 11.
    """
    own, eps = buffers, spec.rms_norm_eps
    folds_norms = is_fused and len(fed.tokens) <= FUSED_NORM_TOKENS
    given = (fed.tokens, weights.embedding, fed.hidden, weights.embed_norm, weights.hidden_norm)
    kept = spec.norm_before_residual
    how: dict[str, Any] = {"eps": eps, "normed_residual": kept, "hidden_rows": fed.hidden_rows}
    if folds_norms:
        written = (weights.qkv, own.qkv, own.residual)
        input_product(*given, *written, bias=weights.qkv_bias, **how)
    else:
        layer_input(*given, own.fused_input, own.residual, **how)
        linear(own.fused_input, weights.qkv, own.qkv, bias=weights.qkv_bias)
    if isinstance(weights.attention, LatentWeights):
        latent_block(spec, weights.attention, own, cache, fed)
    else:
        grouped_block(spec, weights.attention, own, cache, fed)
    linear(own.heads, weights.out, own.middle, bias=weights.out_bias, residual=own.residual)
    if folds_norms:
        norm = weights.mlp_norm
        gate_up(own.middle, weights.gate, weights.up, own.gated, norm=norm, eps=eps)
    else:
        row_norm(own.middle, weights.mlp_norm, own.normed, eps=eps)
        gate_up(own.normed, weights.gate, weights.up, own.gated)
    linear(own.gated, weights.down, own.stream, residual=own.middle)
    if spec.norm_output:
        row_norm(own.stream, weights.final_norm, own.carry, eps=eps)
