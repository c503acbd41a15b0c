"""Compressed queries after their norm; latents and turned keys into the cache of latent heads."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import power_of_two, row_options
from drafter.kernels.numerics import rounded


@triton.jit(do_not_specialize=["num_angles", "width", "capacity"])
def latent_cache_kernel(
    fused: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    query: tl.tensor,
    key_cache: tl.tensor,
    eps: tl.tensor,
    num_angles: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    QUERY_RANK: tl.constexpr,
    KV_RANK: tl.constexpr,
    TURNED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """Two programs a token: the first norms its query, the second its latent, and turns its key.

    fused [T, QUERY_RANK + KV_RANK + TURNED], query [T, QUERY_RANK], cache [B, S, KV_RANK + TURNED].
    """
    token = tl.program_id(0).to(tl.int64)
    is_query = tl.program_id(1) == 0
    lane = tl.arange(0, BLOCK)
    own_width = tl.where(is_query, QUERY_RANK, KV_RANK)
    inside = lane < own_width
    gain_place = (query_norm if is_query else key_norm) + lane
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = fused + token * (QUERY_RANK + KV_RANK + TURNED)
    value = tl.load(row + tl.where(is_query, 0, QUERY_RANK) + lane, mask=inside, other=0.0)
    value = value.to(tl.float32)
    gain = tl.load(gain_place, mask=inside, other=0.0).to(tl.float32)
    normed = value * gain / tl.sqrt(tl.sum(value * value, axis=0) / own_width + eps)
    if is_query:
        out = query + token * QUERY_RANK + lane
        tl.store(out, rounded(normed, query.dtype.element_ty), mask=inside)
    else:
        position = tl.load(positions + token).to(tl.int64)
        slot = tl.load(slots + token).to(tl.int64)
        is_kept = (slot >= 0) & (slot < capacity)
        kept = lane < tl.where(is_kept, KV_RANK, 0)
        line = key_cache + ((token // width) * capacity + slot) * (KV_RANK + TURNED)
        tl.store(line + lane, rounded(normed, key_cache.dtype.element_ty), mask=kept)
        half: tl.constexpr = TURNED // 2
        pair = tl.arange(0, BLOCK_R)
        is_pair = pair < half
        kept = pair < tl.where(is_kept, half, 0)
        place = row + QUERY_RANK + KV_RANK + 2 * pair
        first = tl.load(place, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(place + 1, mask=is_pair, other=0.0).to(tl.float32)
        # rows without a token sit below 0, drafts past the end of the cache above its last angle
        angle = tl.minimum(tl.maximum(position, 0), num_angles - 1) * half + pair
        cos = tl.load(cosine + angle, mask=is_pair, other=0.0)
        sin = tl.load(sine + angle, mask=is_pair, other=0.0)
        end = line + KV_RANK + 2 * pair
        storage = key_cache.dtype.element_ty
        tl.store(end, rounded(first * cos - second * sin, storage), mask=kept)
        tl.store(end + 1, rounded(second * cos + first * sin, storage), mask=kept)


def latent_cache(
    fused: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    query_norm: torch.Tensor,
    key_norm: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    *,
    eps: float,
    programmatic: bool = False,
) -> None:
    r"""Write normed compressed queries to `query`, and each token's row to its slot of the cache.

    .. math::
       (q, c, k) \mapsto \mathrm{norm}_q(q),\ \left[\mathrm{norm}_k(c),\ R_m k\right], \quad
       R_m: (k_{2i}, k_{2i+1}) \mapsto (k_{2i} \cos\theta_{mi} - k_{2i+1} \sin\theta_{mi},\;
       k_{2i+1} \cos\theta_{mi} + k_{2i} \sin\theta_{mi})

    Parameters
    ----------
    fused : torch.Tensor, shape (T, query_rank + kv_rank + rope_dim)
        Compressed queries, latents and the turning part of the keys of T = B · W tokens.
    cosine, sine : torch.Tensor, shape (P, rope_dim / 2)
        fp32 tables of `rope_table`.
    positions : torch.Tensor, shape (T,)
        :math:`m`, below P; -1 for a row without a token.
    slots : torch.Tensor, shape (T,)
        Where in its request's cache a token goes; one outside [0, S) is not written.
    query_norm, key_norm : torch.Tensor, shape (query_rank,) and (kv_rank,)
        Weights of the two norms.
    query : torch.Tensor, shape (T, query_rank)
        Normed compressed queries.
    key_cache : torch.Tensor, shape (B, S, 1, kv_rank + rope_dim)
        The cache.
    eps : float
        Of both norms, [-].
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    Neighbouring values turn together, as in checkpoints of the DeepSeek family. drafter.md 3.

    Examples
    --------
    >>> cache, place = torch.zeros(1, 8, 1, 6), torch.zeros(1, dtype=torch.int32)
    >>> angles = torch.ones(8, 1)
    >>> latent_cache(torch.ones(1, 9), angles, angles, place, place, torch.ones(4), torch.ones(4),
    ...              torch.empty(1, 4), cache, eps=1e-6)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: fused must be of shape (1, 10), got (1, 9)
    """
    num_tokens, query_rank = query.shape
    batch_size, capacity = key_cache.shape[:2]
    kv_rank, turned = key_norm.shape[0], 2 * cosine.shape[1]
    width = num_tokens // batch_size
    rows = (batch_size * width, query_rank + kv_rank + turned)
    check_tensor("fused", fused, rows, STORAGE_TYPES)
    check_tensor("query", query, (batch_size * width, query_rank), STORAGE_TYPES, fused)
    check_tensor("cosine", cosine, cosine.shape, (torch.float32,), fused)
    check_tensor("sine", sine, cosine.shape, (torch.float32,), fused)
    check_tensor("positions", positions, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("slots", slots, (num_tokens,), INDEX_TYPES, fused)
    check_tensor("query_norm", query_norm, (query_rank,), STORAGE_TYPES, fused)
    check_tensor("key_norm", key_norm, (kv_rank,), (query_norm.dtype,), fused)
    cache = (batch_size, capacity, 1, kv_rank + turned)
    check_tensor("key_cache", key_cache, cache, STORAGE_TYPES, fused)
    block = power_of_two(max(query_rank, kv_rank))
    latent_cache_kernel[(num_tokens, 2)](
        fused,
        cosine,
        sine,
        positions,
        slots,
        query_norm,
        key_norm,
        query,
        key_cache,
        eps,
        cosine.shape[0],
        width,
        capacity,
        query_rank,
        kv_rank,
        turned,
        block,
        power_of_two(turned // 2),
        programmatic,
        **row_options(block, programmatic),
    )
