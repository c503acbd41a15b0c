"""Attention of latent heads in the absorbed form, and their cache."""

import math

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    INDEX_TYPES,
    STORAGE_TYPES,
    check_range,
    check_tensor,
    options,
    power_of_two,
    row_options,
)
from drafter.kernels.numerics import dot, is_seen, part_bounds, rounded, softmax_end, softmax_step


@triton.jit(do_not_specialize=["num_angles", "width", "capacity"])
def latent_cache_kernel(
    fused: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    query: tl.tensor,
    key_cache: tl.tensor,
    eps: tl.tensor,
    num_angles: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    QUERY_RANK: tl.constexpr,
    KV_RANK: tl.constexpr,
    TURNED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """Two programs a token: the first norms its query, the second its latent, and turns its key.

    fused [T, QUERY_RANK + KV_RANK + TURNED], query [T, QUERY_RANK], cache [B, S, KV_RANK + TURNED].
    """
    token = tl.program_id(0).to(tl.int64)
    is_query = tl.program_id(1) == 0
    lane = tl.arange(0, BLOCK)
    own_width = tl.where(is_query, QUERY_RANK, KV_RANK)
    inside = lane < own_width
    gain_place = (query_norm if is_query else key_norm) + lane
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = fused + token * (QUERY_RANK + KV_RANK + TURNED)
    value = tl.load(row + tl.where(is_query, 0, QUERY_RANK) + lane, mask=inside, other=0.0)
    value = value.to(tl.float32)
    gain = tl.load(gain_place, mask=inside, other=0.0).to(tl.float32)
    normed = value * gain / tl.sqrt(tl.sum(value * value, axis=0) / own_width + eps)
    if is_query:
        out = query + token * QUERY_RANK + lane
        tl.store(out, rounded(normed, query.dtype.element_ty), mask=inside)
    else:
        position = tl.load(positions + token).to(tl.int64)
        slot = tl.load(slots + token).to(tl.int64)
        is_kept = (slot >= 0) & (slot < capacity)
        kept = lane < tl.where(is_kept, KV_RANK, 0)
        line = key_cache + ((token // width) * capacity + slot) * (KV_RANK + TURNED)
        tl.store(line + lane, rounded(normed, key_cache.dtype.element_ty), mask=kept)
        half: tl.constexpr = TURNED // 2
        pair = tl.arange(0, BLOCK_R)
        is_pair = pair < half
        kept = pair < tl.where(is_kept, half, 0)
        place = row + QUERY_RANK + KV_RANK + 2 * pair
        first = tl.load(place, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(place + 1, mask=is_pair, other=0.0).to(tl.float32)
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        angle = tl.minimum(tl.maximum(position, 0), num_angles - 1) * half + pair
        cos = tl.load(cosine + angle, mask=is_pair, other=0.0)
        sin = tl.load(sine + angle, mask=is_pair, other=0.0)
        end = line + KV_RANK + 2 * pair
        storage = key_cache.dtype.element_ty
        tl.store(end, rounded(first * cos - second * sin, storage), mask=kept)
        tl.store(end + 1, rounded(second * cos + first * sin, storage), mask=kept)


def latent_cache(
    fused: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    query_norm: torch.Tensor,
    key_norm: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    *,
    eps: float,
    programmatic: bool = False,
) -> None:
    r"""Write normed compressed queries to `query`, and each token's row to its slot of the cache.

    .. math::
       (q, c, k) \mapsto \mathrm{norm}_q(q),\ \left[\mathrm{norm}_k(c),\ R_m k\right], \quad
       R_m: (k_{2i}, k_{2i+1}) \mapsto (k_{2i} \cos\theta_{mi} - k_{2i+1} \sin\theta_{mi},\;
       k_{2i+1} \cos\theta_{mi} + k_{2i} \sin\theta_{mi})

    Neighbouring values turn together, as in checkpoints of the DeepSeek family. drafter.md 3.
    """
    num_tokens, query_rank = query.shape
    batch_size, capacity = key_cache.shape[:2]
    kv_rank, turned = key_norm.shape[0], 2 * cosine.shape[1]
    width = num_tokens // batch_size
    rows = (batch_size * width, query_rank + kv_rank + turned)
    check_tensor("fused", fused, rows, STORAGE_TYPES)
    check_tensor("query", query, (batch_size * width, query_rank), STORAGE_TYPES, fused)
    check_tensor("cosine", cosine, cosine.shape, (torch.float32,), fused)
    check_tensor("sine", sine, cosine.shape, (torch.float32,), fused)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("slots", slots, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("query_norm", query_norm, (query_rank,), STORAGE_TYPES, fused)
    check_tensor("key_norm", key_norm, (kv_rank,), (query_norm.dtype,), fused)
    cache = (batch_size, capacity, 1, kv_rank + turned)
    check_tensor("key_cache", key_cache, cache, STORAGE_TYPES, fused)
    block = power_of_two(max(query_rank, kv_rank))
    latent_cache_kernel[(num_tokens, 2)](
        fused,
        cosine,
        sine,
        positions,
        slots,
        query_norm,
        key_norm,
        query,
        key_cache,
        eps,
        cosine.shape[0],
        width,
        capacity,
        query_rank,
        kv_rank,
        turned,
        block,
        power_of_two(turned // 2),
        programmatic,
        **row_options(block, programmatic),
    )


LATENT_ROWS = 16
"""Query rows of one program; more leave no registers for sums as wide as a latent, [-]."""

MOST_RANK = 512
"""Widest latent whose sums stay in registers, [-]."""

MOST_TURNED = 64
"""Widest turning part of a key beside the widest latent in shared memory, [-]."""

MOST_REGISTERS = 208
"""Registers that a thread may take in 16 bits, [-]. Without a number the assembler keeps fewer."""


@triton.jit(do_not_specialize=["width", "capacity", "num_heads", "num_splits"])
def latent_attention_kernel(
    query: tl.tensor,
    key_cache: tl.tensor,
    positions: tl.tensor,
    lengths: tl.tensor,
    tail_starts: tl.tensor,
    ancestors: tl.tensor,
    part_out: tl.tensor,
    part_log: tl.tensor,
    scale: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    num_heads: tl.tensor,
    window: tl.tensor,
    num_splits: tl.tensor,
    KV_RANK: tl.constexpr,
    TURNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program: BLOCK_M query rows against one part of one request's context.

    A row is a pair of token and head; all of them read the same cache [B, S, KV_RANK + TURNED], whose
    latents are keys and values at once. part_out [T, NH, num_splits, KV_RANK] holds normalised outputs,
    part_log [T, NH, num_splits] base-2 logarithms of their weights.
    """
    request = tl.program_id(0)
    split = tl.program_id(2)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = row < width * num_heads
    row = tl.minimum(row, width * num_heads - 1)
    token = (request * width + row // num_heads).to(tl.int64)
    line = token * num_heads + row % num_heads
    lane = tl.arange(0, BLOCK_C)
    is_lane = lane < KV_RANK
    turned_lane = tl.arange(0, BLOCK_R)
    is_turned_lane = turned_lane < TURNED
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    begin, end = part_bounds(
        lengths,
        tail_starts,
        ancestors,
        request,
        split,
        width,
        capacity,
        window,
        num_splits,
        BLOCK_N,
    )
    position = tl.load(positions + token, mask=is_row, other=-1)  # [BLOCK_M]
    tail_start = None
    bits = None
    if ancestors is not None:
        tail_start = tl.load(tail_starts + request)
        bits = tl.load(ancestors + token, mask=is_row, other=0)
    query_line = query + line[:, None] * (KV_RANK + TURNED)
    queries = tl.load(
        query_line + lane[None, :], mask=is_row[:, None] & is_lane[None, :], other=0.0
    )
    turned_queries = tl.load(
        query_line + KV_RANK + turned_lane[None, :],
        mask=is_row[:, None] & is_turned_lane[None, :],
        other=0.0,
    )

    biggest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    summed = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    for start in range(begin, end, BLOCK_N):
        slot = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        is_slot = slot < end
        stored = request.to(tl.int64) * capacity + tl.minimum(slot, capacity - 1)
        key_line = key_cache + stored[:, None] * (KV_RANK + TURNED)
        latents = tl.load(
            key_line + lane[None, :], mask=is_slot[:, None] & is_lane[None, :], other=0.0
        )
        keys = tl.load(
            key_line + KV_RANK + turned_lane[None, :],
            mask=is_slot[:, None] & is_turned_lane[None, :],
            other=0.0,
        )
        scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        scores = dot(turned_queries, tl.trans(keys), scores)
        scores = dot(queries, tl.trans(latents), scores) * scale
        seen = is_seen(slot, position, tail_start, bits, window) & is_slot[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        weights, fade, biggest, total = softmax_step(scores, biggest, total)
        weights = rounded(weights, latents.dtype)
        summed = dot(weights, latents, summed * fade[:, None])

    part = line * num_splits + split
    log_weight, divisor = softmax_end(biggest, total)
    tl.store(part_log + part, log_weight, mask=is_row)
    result = summed / divisor[:, None]
    out = part_out + part[:, None] * KV_RANK + lane[None, :]
    tl.store(out, result, mask=is_row[:, None] & is_lane[None, :])


def latent_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    positions: torch.Tensor,
    lengths: torch.Tensor,
    part_out: torch.Tensor,
    part_log: torch.Tensor,
    *,
    scale: float,
    tail_starts: torch.Tensor | None = None,
    ancestors: torch.Tensor | None = None,
    sliding_window: int | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write each part's attended latents and the logarithm of its weight.

    .. math::
       o_s = \frac{\sum_{j \in s} e^{z_j} c_j}{\sum_{j \in s} e^{z_j}}, \quad
       \ell_s = \log_2 \sum_{j \in s} e^{z_j}, \quad
       z_j = \sigma \left(q^c \cdot c_j + q^r \cdot k^r_j\right)

    over the slots :math:`j` that a token sees in part :math:`s` of the context.

    Masks and parts are those of `attention`. A program's heads read the cache once and use each latent
    twice, as key and as value. [deepseek-v3-2024]_ section 2.1.1; drafter.md 11.
    """
    batch_size, capacity, _, stored = key_cache.shape
    num_tokens, num_heads, num_splits, kv_rank = part_out.shape
    width = num_tokens // batch_size
    check_range("kv_rank", kv_rank, 1, MOST_RANK)
    check_range("rope_dim", stored - kv_rank, 2, MOST_TURNED)
    check_tensor("query", query, (batch_size * width, num_heads, stored), STORAGE_TYPES)
    check_tensor("key_cache", key_cache, (batch_size, capacity, 1, stored), (query.dtype,), query)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, query)
    check_tensor("lengths", lengths, (batch_size,), INDEX_TYPES, query)
    check_tensor("part_out", part_out, part_out.shape, (torch.float32,), query)
    check_tensor("part_log", part_log, part_out.shape[:3], (torch.float32,), query)
    if ancestors is not None and tail_starts is not None:
        check_tensor("ancestors", ancestors, (num_tokens,), (torch.int64,), query)
        check_tensor("tail_starts", tail_starts, (batch_size,), INDEX_TYPES, query)
    # a tile in use and one on its way, in the 99 KB of the smallest targets
    # fp32 goes past tensor cores, and so through more registers
    block_n, warps, num_stages, registers = (
        (32, 4, 3, MOST_REGISTERS) if query.element_size() == 2 else (16, 8, 1, MOST_REGISTERS)
    )
    grid = (batch_size, triton.cdiv(width * num_heads, LATENT_ROWS), num_splits)
    latent_attention_kernel[grid](
        query,
        key_cache,
        positions,
        lengths,
        tail_starts,
        ancestors,
        part_out,
        part_log,
        scale * math.log2(math.e),
        width,
        capacity,
        num_heads,
        sliding_window,
        num_splits,
        kv_rank,
        stored - kv_rank,
        LATENT_ROWS,
        block_n,
        max(16, power_of_two(kv_rank)),
        max(16, power_of_two(stored - kv_rank)),
        programmatic,
        **options(warps, num_stages, programmatic, most_registers=registers),
    )
