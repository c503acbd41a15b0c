"""Row norm, table of angles, and rotary embedding into the cache."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.attention import AttentionWidths
from drafter.kernels.launch_plan import launch, power_of_two, row_warps
from drafter.kernels.numerics import Given, rounded
from drafter.reference.rope import RotaryTable, rotary_frequencies, rotary_magnitude
from drafter.spec import DraftSpec, Rope

WIDEST_BLOCK = 4096
"""Columns in registers at once, [-]."""


@triton.jit
def row_norm_kernel(
    inputs, weight, out, eps, width, BLOCK: tl.constexpr, PDL: tl.constexpr
) -> None:
    """One program normalises one part of one row: inputs and out [T, parts, width]."""
    row = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    part = tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(inputs + row * width + column, mask=column < width, other=0.0)
        value = value.to(tl.float32)
        squares += value * value
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(inputs + row * width + column, mask=inside, other=0.0).to(tl.float32)
        gain = tl.load(weight + part * width + column, mask=inside, other=0.0).to(tl.float32)
        result = rounded(value * scale * gain, out.dtype.element_ty)
        tl.store(out + row * width + column, result, mask=inside)


def row_norm(inputs: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, eps: float) -> None:
    r"""Write RMSNorm of each part of each row to `out`.

    .. math:: y_{tgi} = \frac{w_{gi} x_{tgi}}{\sqrt{\frac{1}{W} \sum_j x_{tgj}^2 + \epsilon}}

    fp32 inside, one rounding at the end; implementations that round before the weight differ by one
    unit in the last place. drafter.md 6.
    """
    tokens, width = inputs.shape[0], inputs.shape[-1]
    parts = inputs.shape[1:-1].numel()
    block = min(triton.next_power_of_2(width), WIDEST_BLOCK)
    arguments = (inputs, weight, out, eps, width, block)
    launch(row_norm_kernel, (tokens, parts), *arguments, warps=row_warps(block))


def rope_table(
    rope: Rope,
    *,
    head_dim: int,
    num_positions: int,
    max_positions: int,
    context_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Tables that `rope_cache`, `latent_cache` and `head_product` read.

    .. math:: c_{mi} = a \cos(m\,\omega_i), \qquad s_{mi} = a \sin(m\,\omega_i)

    The kinds are those of [transformers-5.19.0]_; :math:`a` is 1 but for yarn ([peng2023]_ Eq. 24).
    """
    frequencies = rotary_frequencies(
        rope, head_dim, max_positions=max_positions, context_tokens=context_tokens
    )
    positions, magnitude = torch.arange(num_positions), rotary_magnitude(rope)
    table = RotaryTable.at(positions, frequencies, magnitude=magnitude, dtype=torch.float32)
    return table.cos.to(device), table.sin.to(device)


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


@triton.jit
def layer_input_kernel(
    embedded,
    carried,
    out,
    residual,
    width,
    BLOCK: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes one token's row: out [T, 2, width], residual [T, width]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    embed_gain = tl.load(embedded.norm + column, mask=inside, other=0.0).to(tl.float32)
    hidden_gain = tl.load(carried.norm + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    token = tl.load(embedded.input_index + row).to(tl.int64)
    source = row
    if carried.input_index is not None:
        source = tl.load(carried.input_index + row).to(tl.int64)
    place = embedded.inputs + token * width + column
    first_half = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    place = carried.inputs + source * width + column
    second_half = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    embed_scale = 1.0 / tl.sqrt(tl.sum(first_half * first_half, axis=0) / width + embedded.eps)
    hidden_scale = 1.0 / tl.sqrt(tl.sum(second_half * second_half, axis=0) / width + carried.eps)
    normed = second_half * hidden_scale * hidden_gain
    first = out + row * (2 * width) + column
    storage = out.dtype.element_ty
    tl.store(first, rounded(first_half * embed_scale * embed_gain, storage), mask=inside)
    tl.store(first + width, rounded(normed, storage), mask=inside)
    kept = normed if NORMED_RESIDUAL else second_half
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
) -> None:
    """Write the layer's input and the residual of each token.

    The embedding never enters the residual. drafter.md 6, steps 2 and 4.
    """
    width = hidden.shape[1]
    embedded = Given(embedding, tokens, embed_norm, eps)
    carried = Given(hidden, hidden_rows, hidden_norm, eps)
    block = power_of_two(width)
    arguments = (embedded, carried, out, residual, width, block, normed_residual)
    launch(layer_input_kernel, (len(tokens),), *arguments, warps=row_warps(block))


HEADS_TOGETHER = 8
"""Most heads of one program, [-]."""


@triton.jit(do_not_specialize=["num_angles", "width", "capacity", "num_heads", "num_kv_heads"])
def rope_cache_kernel(
    fused,
    cache,
    positions,
    slots,
    norms,
    query,
    eps,
    num_angles,
    width,
    capacity,
    num_heads,
    num_kv_heads,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program moves BLOCK_H queries, keys or values of one token.

    fused [T, NH + 2 NKV, D], query [T, NH, D], caches [B, S, NKV, D]; the programs of a token take its
    queries first, then its keys, then its values.
    """
    token = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = HEAD_DIM // 2
    query_blocks = tl.cdiv(num_heads, BLOCK_H)
    kv_blocks = tl.cdiv(num_kv_heads, BLOCK_H)
    block = tl.program_id(1)
    is_query = block < query_blocks
    is_value = block >= query_blocks + kv_blocks
    within = tl.where(is_query, block, (block - query_blocks) % kv_blocks)
    head = within * BLOCK_H + tl.arange(0, BLOCK_H)  # among its own kind
    own_heads = tl.where(is_query, num_heads, num_kv_heads)
    first_head = tl.where(is_query, 0, num_heads + tl.where(is_value, num_kv_heads, 0))
    lane = tl.arange(0, BLOCK)
    is_lane = lane < half
    inside = (head < own_heads)[:, None] & is_lane[None, :]  # [BLOCK_H, BLOCK]
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    row = token * (num_heads + 2 * num_kv_heads) + first_head + head
    place = fused + row[:, None] * HEAD_DIM + lane[None, :]
    first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(place + half, mask=inside, other=0.0).to(tl.float32)
    if not is_value:
        if norms is not None:
            squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
            scale = 1.0 / tl.sqrt(squares / HEAD_DIM + eps)
            gain = norms[0] if is_query else norms[1]
            first_gain = tl.load(gain + lane, mask=is_lane, other=0.0).to(tl.float32)
            second_gain = tl.load(gain + half + lane, mask=is_lane, other=0.0).to(tl.float32)
            first = first * scale[:, None] * first_gain[None, :]
            second = second * scale[:, None] * second_gain[None, :]
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        angle = tl.minimum(tl.maximum(position, 0), num_angles - 1) * half + lane
        cos = tl.load(cache.cosine + angle, mask=is_lane, other=0.0)[None, :]
        sin = tl.load(cache.sine + angle, mask=is_lane, other=0.0)[None, :]
        turned = first * cos - second * sin
        second = second * cos + first * sin
        first = turned
    if is_query:
        out = query + (token * num_heads + head)[:, None] * HEAD_DIM + lane[None, :]
        tl.store(out, rounded(first, query.dtype.element_ty), mask=inside)
        tl.store(out + half, rounded(second, query.dtype.element_ty), mask=inside)
    else:
        keys_or_values = (
            cache[1] if is_value else cache[0]
        )  # Triton's tuples have `values` of their own
        line = ((token // width) * capacity + slot) * num_kv_heads + head
        out = keys_or_values + line[:, None] * HEAD_DIM + lane[None, :]
        reach = tl.where((slot >= 0) & (slot < capacity), num_kv_heads, 0)
        kept = (head < reach)[:, None] & is_lane[None, :]
        tl.store(out, rounded(first, out.dtype.element_ty), mask=kept)
        tl.store(out + half, rounded(second, out.dtype.element_ty), mask=kept)


def rope_cache(
    fused: torch.Tensor,
    cache: CacheSpace,
    positions: torch.Tensor,
    slots: torch.Tensor,
    query: torch.Tensor,
    *,
    norms: tuple[torch.Tensor, torch.Tensor] | None = None,
    eps: float = 0.0,
) -> None:
    r"""Write rotated queries to `query` and each token's key and value to its slot of the caches.

    .. math::
       (a, b) \mapsto (a \cos\theta_{mi} - b \sin\theta_{mi},\; b \cos\theta_{mi} + a \sin\theta_{mi})

    Element i turns with element i + D/2, as in checkpoints of the Llama and Qwen families.
    """
    num_tokens, num_heads, head_dim = query.shape
    batch_size, capacity, num_kv_heads = cache.keys.shape[:3]
    width = num_tokens // batch_size
    block_h = min(HEADS_TOGETHER, power_of_two(num_heads))
    programs = triton.cdiv(num_heads, block_h) + 2 * triton.cdiv(num_kv_heads, block_h)
    sizes = (len(cache.cosine), width, capacity, num_heads, num_kv_heads, head_dim, block_h)
    arguments = (fused, cache, positions, slots, norms, query, eps, *sizes)
    block = power_of_two(head_dim // 2)
    launch(rope_cache_kernel, (num_tokens, programs), *arguments, block, warps=2)
