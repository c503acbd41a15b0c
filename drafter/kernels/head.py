"""The head: logits of a tile of the draft vocabulary, of which only the best and a sum are kept."""

from dataclasses import replace

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    HEAD_REGISTERS,
    INDEX_TYPES,
    MATVEC_TOKENS,
    STORAGE_TYPES,
    Tiles,
    check_range,
    check_tensor,
    device_sm,
    dot_tokens,
    power_of_two,
    product_options,
    tiles_for,
    vector_width,
)
from drafter.kernels.numerics import NO_CANDIDATE, candidate_key, key_value, matvec, swap_dot
from specmodel.errors import ParameterError

MOST_TOPK = 16
"""Most candidates per token, [-]."""

KEYS_PER_WARP = 512
"""Ids and tokens that one warp orders: 16 keys of 64 bits a thread, [-]."""

MATVEC_TILE = 16
"""Least vocabulary rows of one tile on the path of few tokens, [-]."""

WIDE_TILE = 64
"""The same for a vocabulary of more than `WIDE_FROM`, so that one program can hold all tiles, [-]."""

WIDE_FROM = 65536
"""Rows up to which tiles are of the smaller kind, [-]."""


@triton.jit
def store_best(
    logits: tl.tensor,
    ids: tl.tensor,
    tokens: tl.tensor,
    num_tokens: tl.tensor,
    tile_max: tl.tensor,
    tile_sum: tl.tensor,
    tile_keys: tl.tensor,
    tile: tl.tensor,
    num_tiles: tl.tensor,
    num_ids: tl.tensor,
    topk: tl.tensor,
) -> None:
    """Keep maximum, sum of exponentials and best keys of logits [ids, tokens]."""
    is_id = (ids < num_ids)[:, None]
    is_token = tokens < num_tokens
    keys = tl.where(
        is_id, candidate_key(logits, ids[:, None] + tl.zeros_like(tokens)[None, :]), NO_CANDIDATE
    )
    best = tl.max(keys, axis=0)  # [tokens]
    biggest = key_value(best)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    is_number = is_id & (logits == logits)  # noqa: PLR0124
    weights = tl.where(is_number, tl.exp(tl.where(is_number, logits - shift[None, :], 0.0)), 0.0)
    place = tokens.to(tl.int64) * num_tiles + tile
    tl.store(tile_max + place, biggest, mask=is_token)
    tl.store(tile_sum + place, tl.sum(weights, axis=0), mask=is_token)
    tl.store(tile_keys + place * topk, best, mask=is_token)
    for rank in range(1, topk):
        keys = tl.where(keys == best[None, :], NO_CANDIDATE, keys)
        best = tl.max(keys, axis=0)
        tl.store(tile_keys + place * topk + rank, best, mask=is_token)


@triton.jit(do_not_specialize=["num_tokens", "num_ids", "topk"])
def head_matvec_kernel(
    inputs: tl.tensor,
    input_index: tl.tensor,
    weight: tl.tensor,
    norm: tl.tensor,
    logits: tl.tensor,
    tile_max: tl.tensor,
    tile_sum: tl.tensor,
    tile_keys: tl.tensor,
    num_tokens: tl.tensor,
    eps: tl.tensor,
    num_ids: tl.tensor,
    width: tl.tensor,
    topk: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes one tile of ids of at most NUM_TOKENS tokens, BLOCK_N ids at a time."""
    tile = tl.program_id(0)
    num_tiles = tl.cdiv(num_ids, TILE)
    place = tl.arange(0, TILE)
    ids = tile * TILE + place
    tokens = tl.arange(0, NUM_TOKENS)
    value = tl.zeros((TILE, NUM_TOKENS), tl.float32)
    for part in range(TILE // BLOCK_N):
        own = part * BLOCK_N + tl.arange(0, BLOCK_N)
        results, _ = matvec(
            inputs,
            input_index,
            num_tokens,
            weight,
            tile * TILE + own,
            norm,
            eps,
            num_ids,
            width,
            width,
            NUM_TOKENS,
            BLOCK_N,
            BLOCK_K,
            VECTOR,
            IS_WHOLE,
            PDL,
        )
        is_own = place[:, None] == own[None, :]
        for token in tl.static_range(NUM_TOKENS):
            moved = tl.sum(tl.where(is_own, results[token][None, :], 0.0), axis=1)  # [TILE]
            value += tl.where((tokens == token)[None, :], moved[:, None], 0.0)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if logits is not None:
        inside = (ids[:, None] < num_ids) & (tokens[None, :] < num_tokens)
        tl.store(logits + tokens[None, :].to(tl.int64) * num_ids + ids[:, None], value, mask=inside)
    store_best(
        value,
        ids,
        tokens,
        num_tokens,
        tile_max,
        tile_sum,
        tile_keys,
        tile,
        num_tiles,
        num_ids,
        topk,
    )


@triton.jit(do_not_specialize=["num_tokens", "num_ids", "topk"])
def head_dot_kernel(
    inputs: tl.tensor,
    input_index: tl.tensor,
    weight: tl.tensor,
    logits: tl.tensor,
    tile_max: tl.tensor,
    tile_sum: tl.tensor,
    tile_keys: tl.tensor,
    num_tokens: tl.tensor,
    num_ids: tl.tensor,
    width: tl.tensor,
    topk: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N ids of BLOCK_T tokens."""
    tile = tl.program_id(0)
    num_tiles = tl.cdiv(num_ids, BLOCK_N)
    ids = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    if PDL:
        tl.extra.cuda.gdc_wait()
    if input_index is not None:
        input_rows = tl.load(input_index + input_rows).to(tl.int64)
    value = swap_dot(
        inputs,
        input_rows,
        weight,
        ids,
        num_ids,
        width,
        BLOCK_N,
        BLOCK_K,
        BLOCK_T,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if logits is not None:
        inside = (ids[:, None] < num_ids) & (tokens[None, :] < num_tokens)
        place = tokens[None, :].to(tl.int64) * num_ids + ids[:, None]
        tl.store(logits + place, value, mask=inside)
    store_best(
        value,
        ids,
        tokens,
        num_tokens,
        tile_max,
        tile_sum,
        tile_keys,
        tile,
        num_tiles,
        num_ids,
        topk,
    )


def head_tiles(
    num_tokens: int, weight: torch.Tensor, tiles: Tiles | None = None
) -> tuple[int, Tiles]:
    """Vocabulary rows of one tile of the head, and how its product is cut.

    Fixes the shape of what `head` writes: (T, ⌈Vd / tile⌉).
    """
    sm, value_bytes = device_sm(weight.device), weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, *weight.shape, value_bytes=value_bytes, is_wide=True)
    if num_tokens > MATVEC_TOKENS:
        warps = cut.block_n * dot_tokens(num_tokens) // KEYS_PER_WARP
        return cut.block_n, replace(cut, num_warps=max(cut.num_warps, warps))
    return max(WIDE_TILE if weight.shape[0] > WIDE_FROM else MATVEC_TILE, cut.block_n), cut


def head(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    tile_max: torch.Tensor,
    tile_sum: torch.Tensor,
    tile_keys: torch.Tensor,
    *,
    input_index: torch.Tensor | None = None,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    logits: torch.Tensor | None = None,
    tiles: Tiles | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write of every tile of the vocabulary its maximum, its sum of exponentials and its best ids.

    .. math:: z_t = W\, \mathrm{norm}(x_t), \quad m = \max_{v} z_{tv}, \quad s = \sum_v e^{z_{tv} - m}

    NaN counts as minus infinity, and adds nothing to the sum. drafter.md 11, K9.
    """
    num_ids, width = weight.shape
    num_tokens = inputs.shape[0] if input_index is None else input_index.shape[0]
    topk = tile_keys.shape[-1]
    tile, cut = head_tiles(num_tokens, weight, tiles)
    num_tiles = triton.cdiv(num_ids, tile)
    is_matvec = num_tokens <= MATVEC_TOKENS
    check_range("topk", topk, 1, min(MOST_TOPK, num_ids))
    check_tensor("weight", weight, (num_ids, width), STORAGE_TYPES)
    types = STORAGE_TYPES if is_matvec else (weight.dtype,)
    check_tensor("inputs", inputs, (inputs.shape[0], width), types, weight)
    check_tensor("tile_max", tile_max, (num_tokens, num_tiles), (torch.float32,), weight)
    check_tensor("tile_sum", tile_sum, (num_tokens, num_tiles), (torch.float32,), weight)
    check_tensor("tile_keys", tile_keys, (num_tokens, num_tiles, topk), (torch.int64,), weight)
    if input_index is not None:
        check_tensor("input_index", input_index, (num_tokens,), INDEX_TYPES, weight)
    if logits is not None:
        check_tensor("logits", logits, (num_tokens, num_ids), (torch.float32,), weight)
    if norm is not None:
        check_tensor("norm", norm, (width,), STORAGE_TYPES, weight)
        if not is_matvec:
            allowed = f"at most {MATVEC_TOKENS} with a norm in the product"
            raise ParameterError("tokens", num_tokens, allowed, "normalise the rows before")
    chosen = product_options(cut, programmatic, most_registers=HEAD_REGISTERS)
    if is_matvec:
        head_matvec_kernel[(num_tiles,)](
            inputs,
            input_index,
            weight,
            norm,
            logits,
            tile_max,
            tile_sum,
            tile_keys,
            num_tokens,
            eps,
            num_ids,
            width,
            topk,
            power_of_two(num_tokens),
            tile,
            cut.block_n,
            cut.block_k,
            vector_width(weight),
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
    else:
        block_t = dot_tokens(num_tokens)
        head_dot_kernel[(num_tiles, triton.cdiv(num_tokens, block_t))](
            inputs,
            input_index,
            weight,
            logits,
            tile_max,
            tile_sum,
            tile_keys,
            num_tokens,
            num_ids,
            width,
            topk,
            cut.block_n,
            cut.block_k,
            block_t,
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
