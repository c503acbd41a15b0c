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
def rounded(value, dtype: tl.constexpr):
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
def dot(left, right, total):
    """`total` + `left` · `right` with fp32 sums; [M, K] · [K, N] → [M, N].

    The interpreter multiplies bf16 bit patterns as if they were numbers, so there the operands are
    widened. fp32 operands keep all their bits: the default of a GPU would drop 13 of them.
    """
    if INTERPRETED:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, total, input_precision="ieee")


NO_CANDIDATE = tl.constexpr(-0x8000000000000000)
"""Below the key of every candidate, minus infinity included."""


@triton.jit
def candidate_key(value, index):
    """Key of fp32 `value` at int32 `index`, of one shape."""
    value = tl.where(value == value, value, float("-inf"))  # noqa: PLR0124
    value = tl.where(value == 0.0, 0.0, value)  # -0 ties with +0
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def key_index(key):
    """Index of a key, int32; the largest there is where there is no candidate."""
    return (0x7FFFFFFF - (key & 0x7FFFFFFF)).to(tl.int32)


@triton.jit
def key_value(key):
    """Value of a key, fp32; undefined where there is no candidate."""
    ordered = (key >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def part_bounds(seen, request, split, width, capacity, window, num_splits, BLOCK_N: tl.constexpr):
    """First slot of one of num_splits parts of a request's context, and the slot after its last.

    Parts are whole tiles of BLOCK_N slots but for the last; slots that no row's window reaches are cut
    off first.
    """
    length = tl.minimum(tl.load(seen.lengths + request), capacity)
    low = 0
    if window is not None:
        # no row stands further back than its width of rows before the end
        low = tl.maximum(length - width - window, 0)
        if seen.ancestors is not None:
            low = tl.maximum(tl.load(seen.tail_starts + request) - window, 0)
    share = tl.cdiv(tl.cdiv(tl.maximum(length - low, 0), num_splits), BLOCK_N) * BLOCK_N
    begin = low + split * share
    return begin, tl.minimum(begin + share, length)


@triton.jit
def is_seen(slot, position, tail_start, bits, window):
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
def softmax_step(scores, biggest, total):
    """Weights of a tile's scores [M, N], by what the sums before fade, the new maximum and total.

    Base 2. Scores may be minus infinity, also all of a row so far: their weights are zero.
    """
    new_biggest = tl.maximum(biggest, tl.max(scores, axis=1))
    shift = tl.where(new_biggest == float("-inf"), 0.0, new_biggest)
    weights = tl.exp2(scores - shift[:, None])
    fade = tl.exp2(biggest - shift)
    return weights, fade, new_biggest, total * fade + tl.sum(weights, axis=1)


@triton.jit
def softmax_end(biggest, total):
    """Base-2 logarithm of a part's weight [M], and what its sum of values is divided by.

    A row that sees nothing of the part has minus infinity and 1.
    """
    is_empty = total == 0.0
    divisor = tl.where(is_empty, 1.0, total)
    return tl.where(is_empty, float("-inf"), biggest + tl.log2(divisor)), divisor


class Cut(NamedTuple):
    """How a program makes its part of a product; known when it is compiled.

    `vector` elements are one 128-bit load of a thread; 0 asks for tensor cores. `is_whole` says that
    `block_k` divides the width.
    """

    tokens: int
    block_n: int
    block_k: int
    vector: int
    is_whole: bool


class Given(NamedTuple):
    """Rows that a product reads: token t is row `input_index[t]` of `inputs`, or row t, after the norm if any."""

    inputs: torch.Tensor
    input_index: torch.Tensor | None = None
    norm: torch.Tensor | None = None
    eps: float = 0.0


@triton.jit
def swap_dot(
    given, tokens, weight, rows, num_tokens, num_rows, width, CUT: tl.constexpr, WAIT: tl.constexpr
):
    """weight[rows] · inputs[tokens]^T in fp32, [N, T], in tensor cores.

    Weight rows are the M of the product, so that few tokens do not leave a tile of 64 or 128 rows
    empty. Rows past the end repeat the last one; the caller does not store them.
    """
    row = tl.minimum(rows, num_rows - 1).to(tl.int64)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    if WAIT:
        tl.extra.cuda.gdc_wait()
    if given.input_index is not None:
        input_rows = tl.load(given.input_index + input_rows).to(tl.int64)
    total = tl.zeros((CUT.block_n, CUT.tokens), tl.float32)
    for start in range(0, width, CUT.block_k):
        column = start + tl.arange(0, CUT.block_k)
        weights = weight + row[:, None] * width + column[None, :]  # [N, K]
        values = given.inputs + input_rows[None, :] * width + column[:, None]  # [K, T]
        if CUT.is_whole:
            left = tl.load(weights)
            right = tl.load(values)
        else:
            left = tl.load(weights, mask=column[None, :] < width, other=0.0)
            right = tl.load(values, mask=column[:, None] < width, other=0.0)
        total = dot(left, right, total)
    return total


@triton.jit
def weight_tile(weight, rows, start, num_rows, width, stride, CUT: tl.constexpr):
    """Weights [rows, K / VECTOR, VECTOR] in fp32; the last axis is one 128-bit load."""
    group = tl.arange(0, CUT.block_k // CUT.vector)[:, None] * CUT.vector
    column = start + group + tl.arange(0, CUT.vector)[None, :]
    # the last tiles repeat the last row: no predicate, and what they give is not stored
    row = tl.minimum(rows, num_rows - 1).to(tl.int64)
    address = weight + row[:, None, None] * stride + column[None, :, :]
    if CUT.is_whole:
        tile = tl.load(address, eviction_policy="evict_first")
    else:
        inside = column[None, :, :] < width
        tile = tl.load(address, mask=inside, other=0.0, eviction_policy="evict_first")
    return tile.to(tl.float32)


@triton.jit
def accumulate(sums, squares, tile, given, input_rows, start, width, CUT: tl.constexpr):
    """Sums of each token plus this tile's products; squares of the input where there is a norm."""
    group = tl.arange(0, CUT.block_k // CUT.vector)[:, None] * CUT.vector
    column = start + group + tl.arange(0, CUT.vector)[None, :]
    inside = column < width
    new_sums = ()
    new_squares = ()
    if given.norm is not None:
        scale = tl.load(given.norm + column, mask=inside, other=0.0).to(tl.float32)
    for token in tl.static_range(CUT.tokens):
        address = given.inputs + input_rows[token] * width + column
        value = tl.load(address, mask=inside, other=0.0).to(tl.float32)
        if given.norm is not None:
            new_squares = new_squares + (squares[token] + tl.sum(value * value, axis=1),)
            value = value * scale
        # the sum over one vector stays in a thread; threads meet once, after the loop
        new_sums = new_sums + (sums[token] + tl.sum(tile * value[None, :, :], axis=2),)
    return new_sums, new_squares


@triton.jit
def token_rows(input_index, num_tokens, NUM_TOKENS: tl.constexpr):
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
    given, weight, rows, num_tokens, num_rows, width, stride, CUT: tl.constexpr, WAIT: tl.constexpr
):
    r"""weight[rows] · x of each token: a tuple of tensors [N] in fp32.

    .. math:: y_n = \frac{\sum_k g_k x_k W_{nk}}{\sqrt{\sum_k x_k^2 / K + \epsilon}}

    with a norm, where both sums come from one pass; without it :math:`\sum_k x_k W_{nk}`. Beside it the
    factor 1 / sqrt of each token, none without a norm. Rows of the weights are `stride` apart. With `WAIT`
    the first weights are fetched before the kernel that writes the inputs has ended.
    """
    tile = weight_tile(weight, rows, 0, num_rows, width, stride, CUT)
    if WAIT:
        tl.extra.cuda.gdc_wait()
    input_rows = token_rows(given.input_index, num_tokens, CUT.tokens)
    sums = ()
    squares = ()
    for _ in tl.static_range(CUT.tokens):
        sums = sums + (tl.zeros((CUT.block_n, CUT.block_k // CUT.vector), tl.float32),)
        if given.norm is not None:
            squares = squares + (tl.zeros((CUT.block_k // CUT.vector,), tl.float32),)
    sums, squares = accumulate(sums, squares, tile, given, input_rows, 0, width, CUT)
    for start in range(CUT.block_k, width, CUT.block_k):
        tile = weight_tile(weight, rows, start, num_rows, width, stride, CUT)
        sums, squares = accumulate(sums, squares, tile, given, input_rows, start, width, CUT)
    results = ()
    scales = ()
    for token in tl.static_range(CUT.tokens):
        total = tl.sum(sums[token], axis=1)
        if given.norm is not None:
            scale = 1.0 / tl.sqrt(tl.sum(squares[token], axis=0) / width + given.eps)
            scales = scales + (scale,)
            total = total * scale
        results = results + (total,)
    return results, scales


@triton.jit
def side_by_side(results, BLOCK_N: tl.constexpr, NUM_TOKENS: tl.constexpr):
    """A tuple of NUM_TOKENS tensors [N] as one [N, T]."""
    tokens = tl.arange(0, NUM_TOKENS)
    value = tl.zeros((BLOCK_N, NUM_TOKENS), tl.float32)
    for token in tl.static_range(NUM_TOKENS):
        value = tl.where((tokens == token)[None, :], results[token][:, None], value)
    return value


@triton.jit
def product(
    given, tokens, weight, rows, num_tokens, num_rows, width, CUT: tl.constexpr, WAIT: tl.constexpr
):
    """weight[rows] · inputs of some tokens in fp32, [N, T]: few in fp32 sums, many in tensor cores."""
    if CUT.vector > 0:
        results, _ = matvec(given, weight, rows, num_tokens, num_rows, width, width, CUT, WAIT)
        value = side_by_side(results, CUT.block_n, CUT.tokens)
    else:
        value = swap_dot(given, tokens, weight, rows, num_tokens, num_rows, width, CUT, WAIT)
    return value


class Seen(NamedTuple):
    """What decides which slots of the cache each row sees."""

    positions: torch.Tensor
    lengths: torch.Tensor
    tail_starts: torch.Tensor | None = None
    ancestors: torch.Tensor | None = None


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

    @property
    def seen(self) -> "Seen":
        """What decides which slots its rows see."""
        return Seen(self.positions, self.lengths, self.tail_starts, self.ancestors)
