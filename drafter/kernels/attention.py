"""Attention over parts of the context, of grouped heads and of latent ones with their cache, and the merge."""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import device_sm, launch, power_of_two, row_warps
from drafter.kernels.numerics import (
    Seen,
    dot,
    is_seen,
    part_bounds,
    rounded,
    softmax_end,
    softmax_step,
)
from drafter.spec import DraftSpec


class AttentionWidths(NamedTuple):
    """Widths of attention, whatever the kind of heads.

    Latent heads attend to latents, so `attended` is their width and not that of a value.
    """

    first_rows: int
    cached_heads: int
    cached: int
    turned: int
    attended: int
    out: int

    @classmethod
    def of(cls, spec: DraftSpec) -> "AttentionWidths":
        """Widths of a draft model.

        The names are those of drafter.md 3.
        """
        latent = spec.latent
        if latent is None:
            width = spec.head_dim
            return cls(
                first_rows=(spec.num_heads + 2 * spec.num_kv_heads) * width,
                cached_heads=spec.num_kv_heads,
                cached=width,
                turned=width,
                attended=width,
                out=spec.num_heads * width,
            )
        cached = latent.kv_rank + latent.rope_dim
        return cls(
            first_rows=latent.query_rank + cached,
            cached_heads=1,
            cached=cached,
            turned=latent.rope_dim,
            attended=latent.kv_rank,
            out=spec.num_heads * latent.value_dim,
        )


class AttentionBuffers(NamedTuple):
    """What attention writes for T tokens; the last three only that of latent heads."""

    query: torch.Tensor
    part_out: torch.Tensor
    part_log: torch.Tensor
    compressed: torch.Tensor | None = None
    expanded: torch.Tensor | None = None
    attended: torch.Tensor | None = None


MOST_TAIL_SLOTS = 64
"""Nodes of a tree that one int64 of ancestors can name, [-]."""

LEAST_ROWS = 16
"""Smallest number of rows of a matrix product, [-]."""

MOST_ROWS = 64
"""Query rows of one program, [-]."""

KEY_TILE_BYTES = 16384
"""Keys of one tile, as many values: two stages of both fit into the memory of a block, [B]."""

MOST_SUMS_PER_WARP = 1024
"""Sums that one warp holds without running out of registers: 32 a thread, [-]."""

MOST_REGISTERS = 192
"""Registers that a thread of eight warps may take, [-]. Without a number the assembler keeps fewer."""


@triton.jit(do_not_specialize=["width", "capacity", "num_heads", "num_kv_heads", "num_splits"])
def attention_kernel(
    query,
    key_cache,
    value_cache,
    seen,
    part_out,
    part_log,
    scale,
    width,
    capacity,
    num_heads,
    num_kv_heads,
    window,
    num_splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program: BLOCK_M query rows of one KV head against one part of one request's context.

    A row is a pair of token and query head of the group; part_out [T, NH, num_splits, D] holds
    normalised outputs, part_log [T, NH, num_splits] base-2 logarithms of their weights.
    """
    request = tl.program_id(0)
    group = num_heads // num_kv_heads
    row_blocks = tl.cdiv(width * group, BLOCK_M)
    kv_head = tl.program_id(1) // row_blocks
    split = tl.program_id(2)
    row = (tl.program_id(1) % row_blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = row < width * group
    token = (request * width + tl.minimum(row // group, width - 1)).to(tl.int64)
    head = kv_head * group + row % group
    lane = tl.arange(0, BLOCK_D)
    is_lane = lane < HEAD_DIM
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    begin, end = part_bounds(seen, request, split, width, capacity, window, num_splits, BLOCK_N)
    position = tl.load(seen.positions + token, mask=is_row, other=-1)  # [BLOCK_M]
    tail_start = None
    bits = None
    if seen.ancestors is not None:
        tail_start = tl.load(seen.tail_starts + request)
        bits = tl.load(seen.ancestors + token, mask=is_row, other=0)
    query_place = query + (token * num_heads + head)[:, None] * HEAD_DIM + lane[None, :]
    queries = tl.load(query_place, mask=is_row[:, None] & is_lane[None, :], other=0.0)

    biggest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    summed = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(begin, end, BLOCK_N):
        slot = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        is_slot = slot < end
        line = request.to(tl.int64) * capacity + tl.minimum(slot, capacity - 1)
        line = (line * num_kv_heads + kv_head) * HEAD_DIM
        key_mask = is_lane[:, None] & is_slot[None, :]
        keys = tl.load(
            key_cache + line[None, :] + lane[:, None], mask=key_mask, other=0.0
        )  # D by slots
        scores = dot(queries, keys, tl.zeros((BLOCK_M, BLOCK_N), tl.float32)) * scale
        is_visible = is_seen(slot, position, tail_start, bits, window) & is_slot[None, :]
        scores = tl.where(is_visible, scores, float("-inf"))
        weights, fade, biggest, total = softmax_step(scores, biggest, total)
        value_mask = is_slot[:, None] & is_lane[None, :]
        values = tl.load(value_cache + line[:, None] + lane[None, :], mask=value_mask, other=0.0)
        weights = rounded(weights, values.dtype)
        summed = dot(weights, values, summed * fade[:, None])

    part = (token * num_heads + head) * num_splits + split
    log_weight, divisor = softmax_end(biggest, total)
    tl.store(part_log + part, log_weight, mask=is_row)
    result = summed / divisor[:, None]
    place = part_out + part[:, None] * HEAD_DIM + lane[None, :]
    tl.store(place, result, mask=is_row[:, None] & is_lane[None, :])


def attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    seen: Seen,
    part_out: torch.Tensor,
    part_log: torch.Tensor,
    *,
    sliding_window: int | None = None,
) -> None:
    r"""Write each part's attention output and the logarithm of its weight.

    .. math::
       o_s = \frac{\sum_{j \in s} e^{z_j} v_j}{\sum_{j \in s} e^{z_j}}, \quad
       \ell_s = \log_2 \sum_{j \in s} e^{z_j}, \quad z_j = \frac{q \cdot k_j}{\sqrt{D}}

    over the slots :math:`j` that a token sees in part :math:`s` of the context.

    The grid does not depend on `lengths`, so that one graph serves every context. All nodes of the tail
    are taken to be within the window. drafter.md 11 and 13.
    """
    num_tokens, num_heads, head_dim = query.shape
    batch_size, capacity, num_kv_heads = key_cache.shape[:3]
    num_splits = part_log.shape[-1]
    width = num_tokens // batch_size
    rows = width * (num_heads // num_kv_heads)
    # tensor cores take no fp32: there every operand is in registers
    is_exact = query.dtype == torch.float32
    block_m = min(max(power_of_two(rows), LEAST_ROWS), MOST_ROWS // 2 if is_exact else MOST_ROWS)
    block_d = max(LEAST_ROWS, power_of_two(head_dim))
    slots = KEY_TILE_BYTES // (block_d * query.element_size())
    block_n = LEAST_ROWS if is_exact else min(max(slots, LEAST_ROWS), 64)
    needs_more = is_exact or block_m * block_d >= 4 * MOST_SUMS_PER_WARP
    warps, registers = (8, MOST_REGISTERS) if needs_more else (4, None)
    grid = (batch_size, num_kv_heads * triton.cdiv(rows, block_m), num_splits)
    arguments = (query, key_cache, value_cache, seen, part_out, part_log)
    scale = math.log2(math.e) / math.sqrt(head_dim)
    sizes = (scale, width, capacity, num_heads, num_kv_heads, sliding_window, num_splits)
    blocks = (head_dim, block_m, block_n, block_d)
    how: dict[str, Any] = {"warps": warps, "stages": 2, "registers": registers}
    launch(attention_kernel, grid, *arguments, *sizes, *blocks, **how)


ROWS_INTERPRETED = 16
"""Rows of one program without a GPU, [-]."""

VALUES_PER_WARP = 1024
"""Values of all parts that one warp holds, up to 8 warps: 32 registers a thread, [-]."""

MOST_COLUMNS = 128
"""Columns of one program, [-]."""


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def attention_merge_kernel(
    part_out,
    part_log,
    out,
    num_rows,
    num_splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program merges BLOCK_D columns of the parts of BLOCK_R rows: out [T NH, D].

    A row is a head of a token.
    """
    row = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    lane = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_row = row < num_rows
    is_part = is_row[:, None] & (split < num_splits)[None, :]  # [BLOCK_R, BLOCK_S]
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    part = row[:, None] * num_splits + split[None, :]
    log = tl.load(part_log + part, mask=is_part, other=float("-inf"))
    biggest = tl.max(log, axis=1)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    weight = tl.exp2(log - shift[:, None])
    place = part_out + part[:, :, None] * HEAD_DIM + lane[None, None, :]
    # a part that nothing is seen of may hold anything
    is_seen = (log > float("-inf"))[:, :, None] & (lane < HEAD_DIM)[None, None, :]
    values = tl.load(place, mask=is_seen, other=0.0)
    total = tl.sum(weight, axis=1)
    result = tl.sum(values * weight[:, :, None], axis=1)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    inside = is_row[:, None] & (lane < HEAD_DIM)[None, :]
    merged = out + row[:, None] * HEAD_DIM + lane[None, :]
    tl.store(merged, rounded(result, out.dtype.element_ty), mask=inside)


def attention_merge(part_out: torch.Tensor, part_log: torch.Tensor, out: torch.Tensor) -> None:
    r"""Write the attention output of each token and head from its parts.

    .. math:: o = \frac{\sum_s 2^{\ell_s} o_s}{\sum_s 2^{\ell_s}}

    Exact for any cut of the context.
    """
    num_tokens, num_heads, num_splits, head_dim = part_out.shape
    # the interpreter pays by the program, a GPU by the row that waits
    rows = 1 if device_sm(out.device) else ROWS_INTERPRETED
    num_rows = num_tokens * num_heads
    block_s, block_d = power_of_two(num_splits), min(power_of_two(head_dim), MOST_COLUMNS)
    warps = min(8, max(2, rows * block_s * block_d // VALUES_PER_WARP))
    arguments = (part_out, part_log, out, num_rows, num_splits, head_dim, rows, block_s, block_d)
    grid = (triton.cdiv(num_rows, rows), triton.cdiv(head_dim, block_d))
    launch(attention_merge_kernel, grid, *arguments, warps=warps)


@triton.jit(do_not_specialize=["num_angles", "width", "capacity"])
def latent_cache_kernel(
    fused,
    key_cache,
    cosine,
    sine,
    positions,
    slots,
    query_norm,
    key_norm,
    query,
    eps,
    num_angles,
    width,
    capacity,
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
    block = power_of_two(max(query_rank, kv_rank))
    arguments = (fused, key_cache, cosine, sine, positions, slots, query_norm, key_norm, query, eps)
    sizes = (len(cosine), width, capacity, query_rank, kv_rank, turned)
    blocks = (block, power_of_two(turned // 2))
    grid = (num_tokens, 2)
    launch(latent_cache_kernel, grid, *arguments, *sizes, *blocks, warps=row_warps(block))


LATENT_ROWS = 16
"""Query rows of one program; more leave no registers for sums as wide as a latent, [-]."""

MOST_RANK = 512
"""Widest latent whose sums stay in registers, [-]."""

MOST_TURNED = 64
"""Widest turning part of a key beside the widest latent in shared memory, [-]."""

LATENT_REGISTERS = 208
"""Registers that a thread may take in 16 bits, [-]. Without a number the assembler keeps fewer."""


@triton.jit(do_not_specialize=["width", "capacity", "num_heads", "num_splits"])
def latent_attention_kernel(
    query,
    key_cache,
    seen,
    part_out,
    part_log,
    scale,
    width,
    capacity,
    num_heads,
    window,
    num_splits,
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

    begin, end = part_bounds(seen, request, split, width, capacity, window, num_splits, BLOCK_N)
    position = tl.load(seen.positions + token, mask=is_row, other=-1)  # [BLOCK_M]
    tail_start = None
    bits = None
    if seen.ancestors is not None:
        tail_start = tl.load(seen.tail_starts + request)
        bits = tl.load(seen.ancestors + token, mask=is_row, other=0)
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
        is_visible = is_seen(slot, position, tail_start, bits, window) & is_slot[None, :]
        scores = tl.where(is_visible, scores, float("-inf"))
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
    seen: Seen,
    part_out: torch.Tensor,
    part_log: torch.Tensor,
    *,
    scale: float,
    sliding_window: int | None = None,
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
    # a tile in use and one on its way, in the 99 KB of the smallest targets
    # fp32 goes past tensor cores, and so through more registers
    block_n, warps, stages = (32, 4, 3) if query.element_size() == 2 else (16, 8, 1)
    turned = stored - kv_rank
    arguments = (query, key_cache, seen, part_out, part_log, scale * math.log2(math.e))
    sizes = (width, capacity, num_heads, sliding_window, num_splits, kv_rank, turned)
    blocks = (LATENT_ROWS, block_n, max(16, power_of_two(kv_rank)), max(16, power_of_two(turned)))
    grid = (batch_size, triton.cdiv(width * num_heads, LATENT_ROWS), num_splits)
    how: dict[str, Any] = {"warps": warps, "stages": stages, "registers": LATENT_REGISTERS}
    launch(latent_attention_kernel, grid, *arguments, *sizes, *blocks, **how)
