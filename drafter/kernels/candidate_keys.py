"""Candidates as int64 keys whose order is: larger value first, then lower index.

The value stands in the high half as bits that sort like the number, the index in the low half,
counted down. One maximum then gives value, index and the rule for ties; NaN counts as minus infinity,
so that it never wins.
"""

import triton
import triton.language as tl

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
