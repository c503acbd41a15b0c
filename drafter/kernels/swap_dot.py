"""Rows of a weight matrix times many vectors on tensor cores, the weights as the tall operand."""

import triton
import triton.language as tl

from drafter.kernels.numerics import dot


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
