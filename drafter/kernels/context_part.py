"""Part of a context: its slots, what a row sees of them, and softmax sums that go over it once."""

import triton
import triton.language as tl


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
    slot: tl.tensor,
    position: tl.tensor,
    tail_start: tl.tensor,
    bits: tl.tensor,
    window: tl.tensor,
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
