"""Queries and keys after their norm and rotation: keys and values into the cache, queries aside."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import options, power_of_two
from drafter.kernels.numerics import rounded

HEADS_TOGETHER = 8
"""Most heads of one program, [-]."""


@triton.jit(do_not_specialize=["num_angles", "width", "capacity", "num_heads", "num_kv_heads"])
def rope_cache_kernel(
    fused: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    query: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    eps: tl.tensor,
    num_angles: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    num_heads: tl.tensor,
    num_kv_heads: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program moves BLOCK_H queries, keys or values of one token.

    fused [T, NH + 2 NKV, D], query [T, NH, D], caches [B, S, NKV, D]; the programs of a token take its
    queries first, then its keys, then its values.
    """
    token = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = HEAD_DIM // 2
    query_blocks = tl.cdiv(num_heads, BLOCK_H)
    kv_blocks = tl.cdiv(num_kv_heads, BLOCK_H)
    block = tl.program_id(1)
    is_query = block < query_blocks
    is_value = block >= query_blocks + kv_blocks
    within = tl.where(is_query, block, (block - query_blocks) % kv_blocks)
    head = within * BLOCK_H + tl.arange(0, BLOCK_H)  # among its own kind
    own_heads = tl.where(is_query, num_heads, num_kv_heads)
    first_head = tl.where(is_query, 0, num_heads + tl.where(is_value, num_kv_heads, 0))
    lane = tl.arange(0, BLOCK)
    is_lane = lane < half
    inside = (head < own_heads)[:, None] & is_lane[None, :]  # [BLOCK_H, BLOCK]
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    row = token * (num_heads + 2 * num_kv_heads) + first_head + head
    place = fused + row[:, None] * HEAD_DIM + lane[None, :]
    first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(place + half, mask=inside, other=0.0).to(tl.float32)
    if not is_value:
        if query_norm is not None:
            squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
            scale = 1.0 / tl.sqrt(squares / HEAD_DIM + eps)
            gain = query_norm if is_query else key_norm
            first_gain = tl.load(gain + lane, mask=is_lane, other=0.0).to(tl.float32)
            second_gain = tl.load(gain + half + lane, mask=is_lane, other=0.0).to(tl.float32)
            first = first * scale[:, None] * first_gain[None, :]
            second = second * scale[:, None] * second_gain[None, :]
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        angle = tl.minimum(tl.maximum(position, 0), num_angles - 1) * half + lane
        cos = tl.load(cosine + angle, mask=is_lane, other=0.0)[None, :]
        sin = tl.load(sine + angle, mask=is_lane, other=0.0)[None, :]
        turned = first * cos - second * sin
        second = second * cos + first * sin
        first = turned
    if is_query:
        out = query + (token * num_heads + head)[:, None] * HEAD_DIM + lane[None, :]
        tl.store(out, rounded(first, query.dtype.element_ty), mask=inside)
        tl.store(out + half, rounded(second, query.dtype.element_ty), mask=inside)
    else:
        cache = value_cache if is_value else key_cache
        line = ((token // width) * capacity + slot) * num_kv_heads + head
        out = cache + line[:, None] * HEAD_DIM + lane[None, :]
        reach = tl.where((slot >= 0) & (slot < capacity), num_kv_heads, 0)
        kept = (head < reach)[:, None] & is_lane[None, :]
        tl.store(out, rounded(first, key_cache.dtype.element_ty), mask=kept)
        tl.store(out + half, rounded(second, key_cache.dtype.element_ty), mask=kept)


def rope_cache(
    fused: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    *,
    query_norm: torch.Tensor | None = None,
    key_norm: torch.Tensor | None = None,
    eps: float = 0.0,
    programmatic: bool = False,
) -> None:
    r"""Write rotated queries to `query` and each token's key and value to its slot of the caches.

    .. math::
       (a, b) \mapsto (a \cos\theta_{mi} - b \sin\theta_{mi},\; b \cos\theta_{mi} + a \sin\theta_{mi})

    Parameters
    ----------
    fused : torch.Tensor, shape (T, (NH + 2 NKV) D)
        Queries, keys and values of T = B · W tokens, in this order.
    cosine, sine : torch.Tensor, shape (P, D / 2)
        fp32 tables of `rope_table`.
    positions : torch.Tensor, shape (T,)
        :math:`m`, below P; -1 for a row without a token.
    slots : torch.Tensor, shape (T,)
        Where in its request's cache a token goes; one outside [0, S) is not written.
    query : torch.Tensor, shape (T, NH, D)
        Queries.
    key_cache, value_cache : torch.Tensor, shape (B, S, NKV, D)
        The caches.
    query_norm, key_norm : torch.Tensor, optional, shape (D,)
        Weights of a norm per head before the rotation.
    eps : float
        Of that norm, [-].
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    Element i turns with element i + D/2, as in checkpoints of the Llama and Qwen families.

    Examples
    --------
    >>> cache = torch.zeros(1, 8, 1, 4)
    >>> place = torch.zeros(1, dtype=torch.int32)
    >>> rope_cache(torch.ones(1, 15), torch.ones(8, 2), torch.ones(8, 2), place, place,
    ...            torch.empty(1, 2, 4), cache, cache)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: fused must be of shape (1, 16), got (1, 15)
    """
    num_tokens, num_heads, head_dim = query.shape
    batch_size, capacity, num_kv_heads = key_cache.shape[:3]
    width = num_tokens // batch_size
    all_heads = num_heads + 2 * num_kv_heads
    check_tensor("fused", fused, (batch_size * width, all_heads * head_dim), STORAGE_TYPES)
    check_tensor("query", query, (batch_size * width, num_heads, head_dim), STORAGE_TYPES, fused)
    table = (cosine.shape[0], head_dim // 2)
    check_tensor("cosine", cosine, table, (torch.float32,), fused)
    check_tensor("sine", sine, table, (torch.float32,), fused)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("slots", slots, (num_tokens,), INDEX_TYPES, fused)
    cache = (batch_size, capacity, num_kv_heads, 2 * (head_dim // 2))
    check_tensor("key_cache", key_cache, cache, STORAGE_TYPES, fused)
    check_tensor("value_cache", value_cache, cache, (key_cache.dtype,), fused)
    if query_norm is not None and key_norm is not None:
        check_tensor("query_norm", query_norm, (head_dim,), STORAGE_TYPES, fused)
        check_tensor("key_norm", key_norm, (head_dim,), (query_norm.dtype,), fused)
    block_h = min(HEADS_TOGETHER, power_of_two(num_heads))
    programs = triton.cdiv(num_heads, block_h) + 2 * triton.cdiv(num_kv_heads, block_h)
    rope_cache_kernel[(num_tokens, programs)](
        fused,
        cosine,
        sine,
        positions,
        slots,
        query_norm,
        key_norm,
        query,
        key_cache,
        value_cache,
        eps,
        cosine.shape[0],
        width,
        capacity,
        num_heads,
        num_kv_heads,
        head_dim,
        block_h,
        power_of_two(head_dim // 2),
        programmatic,
        **options(2, 1, programmatic),
    )
