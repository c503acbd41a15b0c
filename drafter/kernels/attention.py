"""Attention of grouped heads over parts of the context, and the merge of the parts."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    INDEX_TYPES,
    STORAGE_TYPES,
    check_range,
    check_tensor,
    device_sm,
    options,
    power_of_two,
)
from drafter.kernels.numerics import dot, is_seen, part_bounds, rounded, softmax_end, softmax_step
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


class GroupedBuffers(NamedTuple):
    """What attention of grouped heads writes for T tokens, in the order in which it does.

    What it gives in the end is the layer's.
    """

    query: torch.Tensor
    part_out: torch.Tensor
    part_log: torch.Tensor


class LatentBuffers(NamedTuple):
    """What attention of latent heads writes for T tokens, in the order in which it does.

    What it gives in the end is the layer's.
    """

    compressed: torch.Tensor
    expanded: torch.Tensor
    query: torch.Tensor
    part_out: torch.Tensor
    part_log: torch.Tensor
    attended: torch.Tensor


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
    query: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
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
    num_kv_heads: tl.tensor,
    window: tl.tensor,
    num_splits: tl.tensor,
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
        seen = is_seen(slot, position, tail_start, bits, window) & is_slot[None, :]
        scores = tl.where(seen, scores, float("-inf"))
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
    positions: torch.Tensor,
    lengths: torch.Tensor,
    part_out: torch.Tensor,
    part_log: torch.Tensor,
    *,
    tail_starts: torch.Tensor | None = None,
    ancestors: torch.Tensor | None = None,
    sliding_window: int | None = None,
    programmatic: bool = False,
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
    whole = num_heads // num_kv_heads * num_kv_heads
    check_range("query heads", num_heads, whole, whole, "a multiple of the KV heads")
    check_tensor("query", query, (batch_size * width, num_heads, head_dim), STORAGE_TYPES)
    cache = (batch_size, capacity, num_kv_heads, head_dim)
    check_tensor("key_cache", key_cache, cache, (query.dtype,), query)
    check_tensor("value_cache", value_cache, cache, (query.dtype,), query)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, query)
    check_tensor("lengths", lengths, (batch_size,), INDEX_TYPES, query)
    parts = (num_tokens, num_heads, num_splits)
    check_tensor("part_out", part_out, (*parts, head_dim), (torch.float32,), query)
    check_tensor("part_log", part_log, parts, (torch.float32,), query)
    if ancestors is not None and tail_starts is not None:
        check_tensor("ancestors", ancestors, (num_tokens,), (torch.int64,), query)
        check_tensor("tail_starts", tail_starts, (batch_size,), INDEX_TYPES, query)
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
    attention_kernel[grid](
        query,
        key_cache,
        value_cache,
        positions,
        lengths,
        tail_starts,
        ancestors,
        part_out,
        part_log,
        math.log2(math.e) / math.sqrt(head_dim),
        width,
        capacity,
        num_heads,
        num_kv_heads,
        sliding_window,
        num_splits,
        head_dim,
        block_m,
        block_n,
        block_d,
        programmatic,
        **options(warps, 2, programmatic, most_registers=registers),
    )


ROWS_INTERPRETED = 16
"""Rows of one program without a GPU, [-]."""

VALUES_PER_WARP = 1024
"""Values of all parts that one warp holds, up to 8 warps: 32 registers a thread, [-]."""

MOST_COLUMNS = 128
"""Columns of one program, [-]."""


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def attention_merge_kernel(
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    num_splits: tl.tensor,
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


def attention_merge(
    part_out: torch.Tensor, part_log: torch.Tensor, out: torch.Tensor, *, programmatic: bool = False
) -> None:
    r"""Write the attention output of each token and head from its parts.

    .. math:: o = \frac{\sum_s 2^{\ell_s} o_s}{\sum_s 2^{\ell_s}}

    Exact for any cut of the context.
    """
    num_tokens, num_heads, num_splits, head_dim = part_out.shape
    check_tensor("part_out", part_out, part_out.shape, (torch.float32,))
    check_tensor("part_log", part_log, part_out.shape[:3], (torch.float32,), part_out)
    check_tensor("out", out, (num_tokens, num_heads * head_dim), STORAGE_TYPES, part_out)
    # the interpreter pays by the program, a GPU by the row that waits
    rows = 1 if device_sm(out.device) else ROWS_INTERPRETED
    num_rows = num_tokens * num_heads
    block_s, block_d = power_of_two(num_splits), min(power_of_two(head_dim), MOST_COLUMNS)
    warps = min(8, max(2, rows * block_s * block_d // VALUES_PER_WARP))
    attention_merge_kernel[(triton.cdiv(num_rows, rows), triton.cdiv(head_dim, block_d))](
        part_out,
        part_log,
        out,
        num_rows,
        num_splits,
        head_dim,
        rows,
        block_s,
        block_d,
        programmatic,
        **options(warps, 1, programmatic),
    )
