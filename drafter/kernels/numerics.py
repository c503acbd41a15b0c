"""Rounding and matrix products that give the same result on a GPU and in the interpreter."""

from typing import Final

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
