"""Queries and keys after their norm and rotation: keys and values into the cache, queries aside."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import options, power_of_two
from drafter.kernels.numerics import rounded


@triton.jit
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
    WIDTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program moves one head of one token: fused [T, NH + 2 NKV, D], caches [B, S, NKV, D]."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = HEAD_DIM // 2
    lane = tl.arange(0, BLOCK)
    inside = lane < half
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    row = fused + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * HEAD_DIM
    first = tl.load(row + lane, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(row + half + lane, mask=inside, other=0.0).to(tl.float32)
    is_query = head < NUM_HEADS
    is_value = head >= NUM_HEADS + NUM_KV_HEADS
    if not is_value:
        if query_norm is not None:
            squares = tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)
            scale = 1.0 / tl.sqrt(squares / HEAD_DIM + eps)
            gain = query_norm if is_query else key_norm
            first_gain = tl.load(gain + lane, mask=inside, other=0.0).to(tl.float32)
            second_gain = tl.load(gain + half + lane, mask=inside, other=0.0).to(tl.float32)
            first = first * scale * first_gain
            second = second * scale * second_gain
        angle = tl.maximum(position, 0) * half + lane  # rows without a token sit at position -1
        cos = tl.load(cosine + angle, mask=inside, other=0.0)
        sin = tl.load(sine + angle, mask=inside, other=0.0)
        turned = first * cos - second * sin
        second = second * cos + first * sin
        first = turned
    if is_query:
        place = query + (token * NUM_HEADS + head) * HEAD_DIM
        tl.store(place + lane, rounded(first, query.dtype.element_ty), mask=inside)
        tl.store(place + half + lane, rounded(second, query.dtype.element_ty), mask=inside)
    else:
        kv_head = (head - NUM_HEADS) % NUM_KV_HEADS
        cache = value_cache if is_value else key_cache
        line = (token // WIDTH) * CAPACITY + slot
        place = cache + (line * NUM_KV_HEADS + kv_head) * HEAD_DIM
        kept = lane < tl.where((slot >= 0) & (slot < CAPACITY), half, 0)
        tl.store(place + lane, rounded(first, key_cache.dtype.element_ty), mask=kept)
        tl.store(place + half + lane, rounded(second, key_cache.dtype.element_ty), mask=kept)


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
    rope_cache_kernel[(num_tokens, all_heads)](
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
        width,
        capacity,
        num_heads,
        num_kv_heads,
        head_dim,
        power_of_two(head_dim // 2),
        programmatic,
        **options(1, 1, programmatic),
    )
