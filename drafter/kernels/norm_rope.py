"""Row norm, table of angles, and rotary embedding into the cache."""

import math

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    INDEX_TYPES,
    STORAGE_TYPES,
    check_tensor,
    options,
    power_of_two,
    row_options,
)
from drafter.kernels.numerics import rounded
from drafter.spec import Rope

WIDEST_BLOCK = 4096
"""Columns in registers at once, [-]."""


@triton.jit
def row_norm_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
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


def row_norm(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float,
    programmatic: bool = False,
) -> None:
    r"""Write RMSNorm of each part of each row to `out`.

    .. math:: y_{tgi} = \frac{w_{gi} x_{tgi}}{\sqrt{\frac{1}{W} \sum_j x_{tgj}^2 + \epsilon}}

    fp32 inside, one rounding at the end; implementations that round before the weight differ by one
    unit in the last place. drafter.md 6.
    """
    check_tensor("inputs", inputs, inputs.shape, STORAGE_TYPES)
    check_tensor("weight", weight, inputs.shape[1:], STORAGE_TYPES, inputs)
    check_tensor("out", out, inputs.shape, STORAGE_TYPES, inputs)
    tokens, width = inputs.shape[0], inputs.shape[-1]
    parts = inputs.shape[1:-1].numel()
    block = min(triton.next_power_of_2(width), WIDEST_BLOCK)
    row_norm_kernel[(tokens, parts)](
        inputs, weight, out, eps, width, block, programmatic, **row_options(block, programmatic)
    )


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
    half = torch.arange(head_dim // 2, dtype=torch.float64) / (head_dim // 2)
    base = rope.theta
    if rope.kind == "dynamic":
        trained = rope.original_max_positions or max_positions
        over = max(context_tokens or 0, trained) / trained
        base *= (1.0 + rope.factor * (over - 1.0)) ** (head_dim / (head_dim - 2))
    turn = torch.exp(-half * math.log(base))  # radians per position
    stretched = turn / rope.factor
    if rope.kind == "linear":
        turn = stretched
    elif rope.kind == "llama3":
        turn = torch.lerp(stretched, turn, _turns_share(rope, turn))
    elif rope.kind == "yarn":
        turn = torch.lerp(stretched, turn, _pair_share(rope, head_dim))
    angle = torch.outer(torch.arange(num_positions, dtype=torch.float64), turn)
    gain = _gain(rope)
    tables = (gain * angle.cos(), gain * angle.sin())
    return (
        tables[0].to(device=device, dtype=torch.float32),
        tables[1].to(device=device, dtype=torch.float32),
    )


def _turns_share(rope: Rope, turn: torch.Tensor) -> torch.Tensor:
    """How much of each frequency of llama3 stays: 1 from `high_freq_factor` turns in training on."""
    turns = turn * (rope.original_max_positions or 1) / math.tau
    low, high = rope.low_freq_factor, rope.high_freq_factor
    return ((turns - low) / (high - low)).clip(0.0, 1.0)


def _pair_share(rope: Rope, head_dim: int) -> torch.Tensor:
    """How much of each frequency of yarn stays: 1 for the pairs that make `beta_fast` turns or more."""
    log_base = math.log(rope.theta)

    def pair(turns: float) -> float:
        return (
            head_dim
            * math.log((rope.original_max_positions or 1) / (turns * math.tau))
            / 2
            / log_base
        )

    first = max(math.floor(pair(rope.beta_fast)), 0)
    last = min(math.ceil(pair(rope.beta_slow)), head_dim - 1)
    ramp = (torch.arange(head_dim // 2, dtype=torch.float64) - first) / max(last - first, 1e-3)
    return 1.0 - ramp.clip(0.0, 1.0)


def _gain(rope: Rope) -> float:
    """Factor on both tables."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    growth = 0.1 * math.log(max(rope.factor, 1.0))
    if rope.mscale and rope.mscale_all_dim:
        return (1.0 + rope.mscale * growth) / (1.0 + rope.mscale_all_dim * growth)
    return 1.0 + growth


HEADS_TOGETHER = 8
"""Most heads of one program, [-]."""


@triton.jit(do_not_specialize=["num_angles", "width", "capacity", "num_heads", "num_kv_heads"])
def rope_cache_kernel(
    fused: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    query: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    eps: tl.tensor,
    num_angles: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    num_heads: tl.tensor,
    num_kv_heads: tl.tensor,
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
        if query_norm is not None:
            squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
            scale = 1.0 / tl.sqrt(squares / HEAD_DIM + eps)
            gain = query_norm if is_query else key_norm
            first_gain = tl.load(gain + lane, mask=is_lane, other=0.0).to(tl.float32)
            second_gain = tl.load(gain + half + lane, mask=is_lane, other=0.0).to(tl.float32)
            first = first * scale[:, None] * first_gain[None, :]
            second = second * scale[:, None] * second_gain[None, :]
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        angle = tl.minimum(tl.maximum(position, 0), num_angles - 1) * half + lane
        cos = tl.load(cosine + angle, mask=is_lane, other=0.0)[None, :]
        sin = tl.load(sine + angle, mask=is_lane, other=0.0)[None, :]
        turned = first * cos - second * sin
        second = second * cos + first * sin
        first = turned
    if is_query:
        out = query + (token * num_heads + head)[:, None] * HEAD_DIM + lane[None, :]
        tl.store(out, rounded(first, query.dtype.element_ty), mask=inside)
        tl.store(out + half, rounded(second, query.dtype.element_ty), mask=inside)
    else:
        cache = value_cache if is_value else key_cache
        line = ((token // width) * capacity + slot) * num_kv_heads + head
        out = cache + line[:, None] * HEAD_DIM + lane[None, :]
        reach = tl.where((slot >= 0) & (slot < capacity), num_kv_heads, 0)
        kept = (head < reach)[:, None] & is_lane[None, :]
        tl.store(out, rounded(first, key_cache.dtype.element_ty), mask=kept)
        tl.store(out + half, rounded(second, key_cache.dtype.element_ty), mask=kept)


def rope_cache(
    fused: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    *,
    query_norm: torch.Tensor | None = None,
    key_norm: torch.Tensor | None = None,
    eps: float = 0.0,
    programmatic: bool = False,
) -> None:
    r"""Write rotated queries to `query` and each token's key and value to its slot of the caches.

    .. math::
       (a, b) \mapsto (a \cos\theta_{mi} - b \sin\theta_{mi},\; b \cos\theta_{mi} + a \sin\theta_{mi})

    Element i turns with element i + D/2, as in checkpoints of the Llama and Qwen families.
    """
    num_tokens, num_heads, head_dim = query.shape
    batch_size, capacity, num_kv_heads = key_cache.shape[:3]
    width = num_tokens // batch_size
    all_heads = num_heads + 2 * num_kv_heads
    check_tensor("fused", fused, (batch_size * width, all_heads * head_dim), STORAGE_TYPES)
    check_tensor("query", query, (batch_size * width, num_heads, head_dim), STORAGE_TYPES, fused)
    table = (cosine.shape[0], head_dim // 2)
    check_tensor("cosine", cosine, table, (torch.float32,), fused)
    check_tensor("sine", sine, table, (torch.float32,), fused)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("slots", slots, (num_tokens,), INDEX_TYPES, fused)
    cache = (batch_size, capacity, num_kv_heads, 2 * (head_dim // 2))
    check_tensor("key_cache", key_cache, cache, STORAGE_TYPES, fused)
    check_tensor("value_cache", value_cache, cache, (key_cache.dtype,), fused)
    if query_norm is not None and key_norm is not None:
        check_tensor("query_norm", query_norm, (head_dim,), STORAGE_TYPES, fused)
        check_tensor("key_norm", key_norm, (head_dim,), (query_norm.dtype,), fused)
    block_h = min(HEADS_TOGETHER, power_of_two(num_heads))
    programs = triton.cdiv(num_heads, block_h) + 2 * triton.cdiv(num_kv_heads, block_h)
    rope_cache_kernel[(num_tokens, programs)](
        fused,
        cosine,
        sine,
        positions,
        slots,
        query_norm,
        key_norm,
        query,
        key_cache,
        value_cache,
        eps,
        cosine.shape[0],
        width,
        capacity,
        num_heads,
        num_kv_heads,
        head_dim,
        block_h,
        power_of_two(head_dim // 2),
        programmatic,
        **options(2, 1, programmatic),
    )
