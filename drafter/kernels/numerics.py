"""Device functions that kernels share: rounding, products of few vectors, keys of candidates."""

from typing import Final, NamedTuple

import torch
import triton
import triton.language as tl

IS_INTERPRETED: Final[bool] = bool(triton.knobs.runtime.interpret)
"""Kernels of this process run in the interpreter; settled when this module is imported."""

INTERPRETED = tl.constexpr(IS_INTERPRETED)
"""The same for kernels: the branch of the other world is not compiled."""


@triton.jit
def rounded(value: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """The fp32 `value` in a storage type, rounded to nearest, ties to even.

    The interpreter drops the low bits where it casts to bf16, and garbles subnormal numbers, so there
    the bits are rounded and moved as integers.
    """
    if INTERPRETED and dtype == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        bits = tl.where(value == value, nearest, 0x7FC00000)  # NaN has no neighbour  # noqa: PLR0124
        return (bits >> 16).to(tl.uint16).to(dtype, bitcast=True)
    return value.to(dtype)


@triton.jit
def dot(left: tl.tensor, right: tl.tensor, total: tl.tensor) -> tl.tensor:
    """`total` + `left` · `right` with fp32 sums; [M, K] · [K, N] → [M, N].

    The interpreter multiplies bf16 bit patterns as if they were numbers, so there the operands are
    widened. fp32 operands keep all their bits: the default of a GPU would drop 13 of them.
    """
    if INTERPRETED:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, total, input_precision="ieee")


@triton.jit
def swap_dot(
    inputs: tl.tensor,
    input_rows: tl.tensor,
    weight: tl.tensor,
    rows: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    WAIT: tl.constexpr,
) -> tl.tensor:
    """weight[rows] · inputs[input_rows]^T in fp32, [BLOCK_N, BLOCK_T].

    Weight rows are the M of the product, so that few tokens do not leave a tile of 64 or 128 rows
    empty. Rows past the end repeat the last one; the caller does not store them.
    """
    row = tl.minimum(rows, num_rows - 1).to(tl.int64)
    if WAIT:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    for start in range(0, width, BLOCK_K):
        column = start + tl.arange(0, BLOCK_K)
        weights = weight + row[:, None] * width + column[None, :]  # [BLOCK_N, BLOCK_K]
        values = inputs + input_rows[None, :] * width + column[:, None]  # [BLOCK_K, BLOCK_T]
        if IS_WHOLE:
            left = tl.load(weights)
            right = tl.load(values)
        else:
            left = tl.load(weights, mask=column[None, :] < width, other=0.0)
            right = tl.load(values, mask=column[:, None] < width, other=0.0)
        total = dot(left, right, total)
    return total


NO_CANDIDATE = tl.constexpr(-0x8000000000000000)
"""Below the key of every candidate, minus infinity included."""


@triton.jit
def candidate_key(value: tl.tensor, index: tl.tensor) -> tl.tensor:
    """Key of fp32 `value` at int32 `index`, of one shape."""
    value = tl.where(value == value, value, float("-inf"))  # noqa: PLR0124
    value = tl.where(value == 0.0, 0.0, value)  # -0 ties with +0
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def key_index(key: tl.tensor) -> tl.tensor:
    """Index of a key, int32; the largest there is where there is no candidate."""
    return (0x7FFFFFFF - (key & 0x7FFFFFFF)).to(tl.int32)


@triton.jit
def key_value(key: tl.tensor) -> tl.tensor:
    """Value of a key, fp32; undefined where there is no candidate."""
    ordered = (key >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def part_bounds(
    lengths: tl.tensor,
    tail_starts: tl.tensor,
    ancestors: tl.tensor,
    request: tl.tensor,
    split: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    window: tl.tensor,
    num_splits: tl.tensor,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """First slot of one of num_splits parts of a request's context, and the slot after its last.

    Parts are whole tiles of BLOCK_N slots but for the last; slots that no row's window reaches are cut
    off first.
    """
    length = tl.minimum(tl.load(lengths + request), capacity)
    low = 0
    if window is not None:
        # no row stands further back than its width of rows before the end
        low = tl.maximum(length - width - window, 0)
        if ancestors is not None:
            low = tl.maximum(tl.load(tail_starts + request) - window, 0)
    share = tl.cdiv(tl.cdiv(tl.maximum(length - low, 0), num_splits), BLOCK_N) * BLOCK_N
    begin = low + split * share
    return begin, tl.minimum(begin + share, length)


@triton.jit
def is_seen(
    slot: tl.tensor, position: tl.tensor, tail_start: tl.tensor, bits: tl.tensor, window: tl.tensor
) -> tl.tensor:
    """Which slots [N] rows see: [M, N] for rows at `position` [M].

    Without `bits` a row sees the slots up to its position. With them [M] it sees every slot before
    `tail_start` and those of the tail whose bit is set. A row at -1 sees nothing.
    """
    if bits is not None:
        tail = slot - tail_start
        place = tl.minimum(tl.maximum(tail, 0), 63).to(tl.int64)
        is_ancestor = ((bits[:, None] >> place[None, :]) & 1) != 0
        seen = (tail < 0)[None, :] | (is_ancestor & (tail < 64)[None, :])
        if window is not None:
            near = slot[None, :] > position[:, None] - window
            seen = seen & (near | (tail >= 0)[None, :])
        seen = seen & (position >= 0)[:, None]
    else:
        seen = slot[None, :] <= position[:, None]
        if window is not None:
            seen = seen & (slot[None, :] > position[:, None] - window)
    return seen


@triton.jit
def softmax_step(scores: tl.tensor, biggest: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Weights of a tile's scores [M, N], by what the sums before fade, the new maximum and total.

    Base 2. Scores may be minus infinity, also all of a row so far: their weights are zero.
    """
    new_biggest = tl.maximum(biggest, tl.max(scores, axis=1))
    shift = tl.where(new_biggest == float("-inf"), 0.0, new_biggest)
    weights = tl.exp2(scores - shift[:, None])
    fade = tl.exp2(biggest - shift)
    return weights, fade, new_biggest, total * fade + tl.sum(weights, axis=1)


@triton.jit
def softmax_end(biggest: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Base-2 logarithm of a part's weight [M], and what its sum of values is divided by.

    A row that sees nothing of the part has minus infinity and 1.
    """
    is_empty = total == 0.0
    divisor = tl.where(is_empty, 1.0, total)
    return tl.where(is_empty, float("-inf"), biggest + tl.log2(divisor)), divisor


@triton.jit
def weight_tile(
    weight: tl.tensor,
    rows: tl.tensor,
    start: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    stride: tl.tensor,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
) -> tl.tensor:
    """Weights [rows, BLOCK_K / VECTOR, VECTOR] in fp32; the last axis is one 128-bit load."""
    group = tl.arange(0, BLOCK_K // VECTOR)[:, None] * VECTOR
    column = start + group + tl.arange(0, VECTOR)[None, :]
    # the last tiles repeat the last row: no predicate, and what they give is not stored
    row = tl.minimum(rows, num_rows - 1).to(tl.int64)
    address = weight + row[:, None, None] * stride + column[None, :, :]
    if IS_WHOLE:
        tile = tl.load(address, eviction_policy="evict_first")
    else:
        tile = tl.load(
            address, mask=column[None, :, :] < width, other=0.0, eviction_policy="evict_first"
        )
    return tile.to(tl.float32)


@triton.jit
def accumulate(
    sums: tl.tensor,
    squares: tl.tensor,
    tile: tl.tensor,
    inputs: tl.tensor,
    input_rows: tl.tensor,
    norm: tl.tensor,
    start: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
) -> tl.tensor:
    """Sums of each token plus this tile's products; squares of the input where there is a norm."""
    group = tl.arange(0, BLOCK_K // VECTOR)[:, None] * VECTOR
    column = start + group + tl.arange(0, VECTOR)[None, :]
    inside = column < width
    new_sums = ()
    new_squares = ()
    if norm is not None:
        scale = tl.load(norm + column, mask=inside, other=0.0).to(tl.float32)
    for token in tl.static_range(NUM_TOKENS):
        address = inputs + input_rows[token] * width + column
        value = tl.load(address, mask=inside, other=0.0).to(tl.float32)
        if norm is not None:
            new_squares = new_squares + (squares[token] + tl.sum(value * value, axis=1),)
            value = value * scale
        # the sum over one vector stays in a thread; threads meet once, after the loop
        new_sums = new_sums + (sums[token] + tl.sum(tile * value[None, :, :], axis=2),)
    return new_sums, new_squares


@triton.jit
def token_rows(
    input_index: tl.tensor, num_tokens: tl.tensor, NUM_TOKENS: tl.constexpr
) -> tl.tensor:
    """Row of each token as a tuple of int64: its own without an index; past the end the last one's."""
    rows = ()
    for token in tl.static_range(NUM_TOKENS):
        row = tl.minimum(num_tokens - 1, token).to(tl.int64)
        if input_index is not None:
            row = tl.load(input_index + row).to(tl.int64)
        rows = rows + (row,)
    return rows


@triton.jit
def matvec(
    inputs: tl.tensor,
    input_index: tl.tensor,
    num_tokens: tl.tensor,
    weight: tl.tensor,
    rows: tl.tensor,
    norm: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    stride: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    WAIT: tl.constexpr,
) -> tl.tensor:
    r"""weight[rows] · x of each token: a tuple of NUM_TOKENS tensors [BLOCK_N] in fp32.

    .. math:: y_n = \frac{\sum_k g_k x_k W_{nk}}{\sqrt{\sum_k x_k^2 / K + \epsilon}}

    with `norm`, where both sums come from one pass; without it :math:`\sum_k x_k W_{nk}`. Beside it the
    factor 1 / sqrt of each token, none without a norm. Token t is row `input_index[t]` of `inputs` [any,
    width], or row t; rows of the weights are `stride` apart; `IS_WHOLE` says that BLOCK_K divides the
    width. With `WAIT` the first weights are fetched before the kernel that writes `inputs` has ended.
    """
    tile = weight_tile(weight, rows, 0, num_rows, width, stride, BLOCK_K, VECTOR, IS_WHOLE)
    if WAIT:
        tl.extra.cuda.gdc_wait()
    input_rows = token_rows(input_index, num_tokens, NUM_TOKENS)
    sums = ()
    squares = ()
    for _ in tl.static_range(NUM_TOKENS):
        sums = sums + (tl.zeros((BLOCK_N, BLOCK_K // VECTOR), tl.float32),)
        if norm is not None:
            squares = squares + (tl.zeros((BLOCK_K // VECTOR,), tl.float32),)
    sums, squares = accumulate(
        sums, squares, tile, inputs, input_rows, norm, 0, width, NUM_TOKENS, BLOCK_K, VECTOR
    )
    for start in range(BLOCK_K, width, BLOCK_K):
        tile = weight_tile(weight, rows, start, num_rows, width, stride, BLOCK_K, VECTOR, IS_WHOLE)
        sums, squares = accumulate(
            sums, squares, tile, inputs, input_rows, norm, start, width, NUM_TOKENS, BLOCK_K, VECTOR
        )
    results = ()
    scales = ()
    for token in tl.static_range(NUM_TOKENS):
        total = tl.sum(sums[token], axis=1)
        if norm is not None:
            scale = 1.0 / tl.sqrt(tl.sum(squares[token], axis=0) / width + eps)
            scales = scales + (scale,)
            total = total * scale
        results = results + (total,)
    return results, scales


class Fed(NamedTuple):
    """What a pass over T tokens of B requests is fed.

    All on the device.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    hidden_rows: torch.Tensor | None
    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    tail_starts: torch.Tensor | None = None
    ancestors: torch.Tensor | None = None
