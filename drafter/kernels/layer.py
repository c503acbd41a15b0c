"""One pass of the layer: inputs, buffers, either kind of heads, MLP."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.attention import (
    AttentionWidths,
    GroupedBuffers,
    LatentBuffers,
    attention,
    attention_merge,
)
from drafter.kernels.latent_attention import latent_attention, latent_cache
from drafter.kernels.launch_plan import (
    FUSED_NORM_TOKENS,
    INDEX_TYPES,
    STORAGE_TYPES,
    check_tensor,
    power_of_two,
    row_options,
)
from drafter.kernels.norm_rope import rope_cache, rope_table, row_norm
from drafter.kernels.numerics import Fed, rounded
from drafter.kernels.products import gate_up, head_product, input_product, linear
from drafter.kernels.weights import GroupedWeights, LatentWeights, PackedWeights
from drafter.spec import DraftSpec, Rope
from specmodel.errors import ParameterError


class CacheSpace(NamedTuple):
    """The cache of B requests, and the angles of its positions.

    A request's slots lie together; there are no pages.
    """

    keys: torch.Tensor
    values: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor

    @classmethod
    def empty(
        cls,
        spec: DraftSpec,
        *,
        batch_size: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | str,
        context_tokens: int | None = None,
    ) -> "CacheSpace":
        """Cache of zeros, with the angles of every slot.

        Latents take one tensor: a token of latent heads costs kv_rank + rope_dim values.
        """
        widths = AttentionWidths.of(spec)
        shape = (batch_size, capacity, widths.cached_heads, widths.cached)
        keys = torch.zeros(shape, dtype=dtype, device=device)
        is_latent = spec.latent is not None
        values = keys[..., : widths.attended] if is_latent else torch.zeros_like(keys)
        tables = rope_table(
            spec.rope,
            head_dim=widths.turned,
            num_positions=capacity,
            max_positions=spec.max_positions,
            context_tokens=context_tokens,
            device=device,
        )
        return cls(keys, values, *tables)

    def of_requests(self, count: int) -> "CacheSpace":
        """The cache of the first requests.

        Rows of a batch lie together, so what a kernel needs contiguous stays so.
        """
        return self._replace(keys=self.keys[:count], values=self.values[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuffers:
    """What one pass over T tokens writes, in the order in which it does.

    The residual stream stays in fp32; engines round it to the storage type.
    """

    fused_input: torch.Tensor
    residual: torch.Tensor
    qkv: torch.Tensor
    attention: GroupedBuffers | LatentBuffers
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

        parts = {
            "query": stored(heads, widths.cached),
            "part_out": exact(heads, num_splits, widths.attended),
            "part_log": exact(heads, num_splits),
        }
        attention: GroupedBuffers | LatentBuffers
        if latent is None:
            attention = GroupedBuffers(**parts)
        else:
            attention = LatentBuffers(
                compressed=stored(latent.query_rank),
                expanded=exact(heads, latent.nope_dim + latent.rope_dim),
                attended=stored(heads, latent.kv_rank),
                **parts,
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


@triton.jit
def layer_input_kernel(
    tokens: tl.tensor,
    embedding: tl.tensor,
    hidden: tl.tensor,
    hidden_rows: tl.tensor,
    embed_norm: tl.tensor,
    hidden_norm: tl.tensor,
    out: tl.tensor,
    residual: tl.tensor,
    eps: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes one token's row: out [T, 2, width], residual [T, width]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    embed_gain = tl.load(embed_norm + column, mask=inside, other=0.0).to(tl.float32)
    hidden_gain = tl.load(hidden_norm + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    token = tl.load(tokens + row).to(tl.int64)
    source = row
    if hidden_rows is not None:
        source = tl.load(hidden_rows + row).to(tl.int64)
    embedded = tl.load(embedding + token * width + column, mask=inside, other=0.0).to(tl.float32)
    carried = tl.load(hidden + source * width + column, mask=inside, other=0.0).to(tl.float32)
    embed_scale = 1.0 / tl.sqrt(tl.sum(embedded * embedded, axis=0) / width + eps)
    hidden_scale = 1.0 / tl.sqrt(tl.sum(carried * carried, axis=0) / width + eps)
    normed = carried * hidden_scale * hidden_gain
    first = out + row * (2 * width) + column
    storage = out.dtype.element_ty
    tl.store(first, rounded(embedded * embed_scale * embed_gain, storage), mask=inside)
    tl.store(first + width, rounded(normed, storage), mask=inside)
    kept = normed if NORMED_RESIDUAL else carried
    kept = rounded(kept, residual.dtype.element_ty)
    tl.store(residual + row * width + column, kept, mask=inside)


def layer_input(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    hidden: torch.Tensor,
    embed_norm: torch.Tensor,
    hidden_norm: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor,
    *,
    eps: float,
    normed_residual: bool,
    hidden_rows: torch.Tensor | None = None,
    programmatic: bool = False,
) -> None:
    """Write the layer's input and the residual of each token.

    The embedding never enters the residual. drafter.md 6, steps 2 and 4.
    """
    num_tokens, width = tokens.shape[0], hidden.shape[1]
    check_tensor("tokens", tokens, (num_tokens,), INDEX_TYPES, hidden)
    check_tensor("embedding", embedding, (embedding.shape[0], width), STORAGE_TYPES, hidden)
    source_rows = hidden.shape[0] if hidden_rows is not None else num_tokens
    check_tensor("hidden", hidden, (source_rows, width), STORAGE_TYPES)
    check_tensor("embed_norm", embed_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("hidden_norm", hidden_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("out", out, (num_tokens, 2 * width), STORAGE_TYPES, hidden)
    check_tensor("residual", residual, (num_tokens, width), STORAGE_TYPES, hidden)
    if hidden_rows is not None:
        check_tensor("hidden_rows", hidden_rows, (num_tokens,), INDEX_TYPES, hidden)
    block = power_of_two(width)
    layer_input_kernel[(num_tokens,)](
        tokens,
        embedding,
        hidden,
        hidden_rows,
        embed_norm,
        hidden_norm,
        out,
        residual,
        eps,
        width,
        block,
        normed_residual,
        programmatic,
        **row_options(block, programmatic),
    )


def grouped_block(
    spec: DraftSpec,
    weights: GroupedWeights,
    buffers: GroupedBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    first: torch.Tensor,
    out: torch.Tensor,
    programmatic: bool,
) -> None:
    r"""Launch norm and rotation, attention, and the merge of its parts.

    .. math:: (q, k, v) \mapsto \operatorname{attention}(R q, R K, V)

    Three launches. drafter.md 11.
    """
    rope_cache(
        first,
        cache.cosine,
        cache.sine,
        fed.positions,
        fed.slots,
        buffers.query,
        cache.keys,
        cache.values,
        query_norm=weights.query_norm,
        key_norm=weights.key_norm,
        eps=spec.rms_norm_eps,
        programmatic=programmatic,
    )
    attention(
        buffers.query,
        cache.keys,
        cache.values,
        fed.positions,
        fed.lengths,
        buffers.part_out,
        buffers.part_log,
        tail_starts=fed.tail_starts,
        ancestors=fed.ancestors,
        sliding_window=spec.sliding_window,
        programmatic=programmatic,
    )
    attention_merge(buffers.part_out, buffers.part_log, out, programmatic=programmatic)


def score_scale(rope: Rope, head_width: int) -> float:
    r"""Factor on the scores of latent heads.

    .. math:: \sigma = \frac{(1 + 0.1\, a \ln s)^2}{\sqrt{d_n + d_r}}

    The temperature that the rotation leaves to the part without position. [deepseek-v3-2024]_, as in
    [transformers-models]_.
    """
    temperature = 1.0
    if rope.kind != "default" and rope.mscale_all_dim:
        temperature += 0.1 * rope.mscale_all_dim * math.log(max(rope.factor, 1.0))
    return temperature**2 / math.sqrt(head_width)


def latent_block(
    spec: DraftSpec,
    weights: LatentWeights,
    buffers: LatentBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    first: torch.Tensor,
    out: torch.Tensor,
    programmatic: bool,
) -> None:
    r"""Launch norms and cache, queries, attention over latents, the merge of its parts, and values.

    .. math::
        (q^n_h, q^r_h) = W_{qb} \operatorname{norm}(q), \quad
        o_h = W^v_h \operatorname{attention}\left([{W^k_h}^T q^n_h, R q^r_h], [C, R K^r], C\right)

    Six launches. drafter.md 3 and 11.
    """
    latent_cache(
        first,
        cache.cosine,
        cache.sine,
        fed.positions,
        fed.slots,
        weights.query_norm,
        weights.key_norm,
        buffers.compressed,
        cache.keys,
        eps=spec.rms_norm_eps,
        programmatic=programmatic,
    )
    num_tokens, num_heads, head_width = buffers.expanded.shape
    linear(
        buffers.compressed,
        weights.expand,
        buffers.expanded.view(num_tokens, num_heads * head_width),
        programmatic=programmatic,
    )
    head_product(
        buffers.expanded,
        weights.absorb,
        buffers.query,
        positions=fed.positions,
        cosine=cache.cosine,
        sine=cache.sine,
        programmatic=programmatic,
    )
    latent_attention(
        buffers.query,
        cache.keys,
        fed.positions,
        fed.lengths,
        buffers.part_out,
        buffers.part_log,
        scale=score_scale(spec.rope, head_width),
        tail_starts=fed.tail_starts,
        ancestors=fed.ancestors,
        sliding_window=spec.sliding_window,
        programmatic=programmatic,
    )
    attention_merge(
        buffers.part_out,
        buffers.part_log,
        buffers.attended.view(num_tokens, -1),
        programmatic=programmatic,
    )
    head_product(
        buffers.attended,
        weights.value,
        out.view(num_tokens, num_heads, -1),
        programmatic=programmatic,
    )


def layer_pass(
    spec: DraftSpec,
    weights: PackedWeights,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    is_fused: bool,
    programmatic: bool,
) -> None:
    """Launch the layer; `buffers.stream` and `buffers.carry` hold the result.

    Grouped heads: seven launches with fused norms, nine without; one more with `norm_output`. Latent
    heads: three more. drafter.md 6 and 11.
    """
    eps = spec.rms_norm_eps
    folds_norms = is_fused and len(fed.tokens) <= FUSED_NORM_TOKENS
    if folds_norms:
        input_product(
            fed.tokens,
            weights.embedding,
            fed.hidden,
            weights.embed_norm,
            weights.hidden_norm,
            weights.qkv,
            buffers.qkv,
            buffers.residual,
            eps=eps,
            normed_residual=spec.norm_before_residual,
            hidden_rows=fed.hidden_rows,
            bias=weights.qkv_bias,
            programmatic=programmatic,
        )
    else:
        layer_input(
            fed.tokens,
            weights.embedding,
            fed.hidden,
            weights.embed_norm,
            weights.hidden_norm,
            buffers.fused_input,
            buffers.residual,
            eps=eps,
            normed_residual=spec.norm_before_residual,
            hidden_rows=fed.hidden_rows,
            programmatic=programmatic,
        )
        linear(
            buffers.fused_input,
            weights.qkv,
            buffers.qkv,
            bias=weights.qkv_bias,
            programmatic=programmatic,
        )
    _attend(spec, weights, buffers, cache, fed, programmatic=programmatic)
    linear(
        buffers.heads,
        weights.out,
        buffers.middle,
        bias=weights.out_bias,
        residual=buffers.residual,
        programmatic=programmatic,
    )
    if folds_norms:
        gate_up(
            buffers.middle,
            weights.gate,
            weights.up,
            buffers.gated,
            norm=weights.mlp_norm,
            eps=eps,
            programmatic=programmatic,
        )
    else:
        row_norm(
            buffers.middle, weights.mlp_norm, buffers.normed, eps=eps, programmatic=programmatic
        )
        gate_up(buffers.normed, weights.gate, weights.up, buffers.gated, programmatic=programmatic)
    linear(
        buffers.gated,
        weights.down,
        buffers.stream,
        residual=buffers.middle,
        programmatic=programmatic,
    )
    if spec.norm_output:
        row_norm(
            buffers.stream, weights.final_norm, buffers.carry, eps=eps, programmatic=programmatic
        )


def _attend(
    spec: DraftSpec,
    weights: PackedWeights,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    programmatic: bool,
) -> None:
    """Attention between its first product and its last: from `buffers.qkv` to `buffers.heads`."""
    first, out = buffers.qkv, buffers.heads
    match weights.attention, buffers.attention:
        case GroupedWeights() as own, GroupedBuffers() as space:
            grouped_block(
                spec, own, space, cache, fed, first=first, out=out, programmatic=programmatic
            )
        case LatentWeights() as own, LatentBuffers() as space:
            latent_block(
                spec, own, space, cache, fed, first=first, out=out, programmatic=programmatic
            )
        case _:
            raise ParameterError("buffers", "of the other kind of heads", "of the weights' kind")
