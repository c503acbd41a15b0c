"""Rows of a weight matrix times a few vectors: fp32 sums, no tensor core, each weight read once."""

import triton
import triton.language as tl


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
