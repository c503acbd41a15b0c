"""The head: logits of a tile of the draft vocabulary, of which the best and a sum are kept; the best guesses."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import (
    HEAD_REGISTERS,
    MATVEC_TOKENS,
    Tiles,
    cut_of,
    device_sm,
    dot_tokens,
    launch,
    power_of_two,
    tiles_for,
)
from drafter.kernels.numerics import (
    NO_CANDIDATE,
    Given,
    candidate_key,
    key_index,
    key_value,
    matvec,
    product,
)

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


class Kept(NamedTuple):
    """What is kept of every tile of the vocabulary."""

    tile_max: torch.Tensor
    tile_sum: torch.Tensor
    tile_keys: torch.Tensor


@triton.jit
def store_best(logits, ids, tokens, num_tokens, kept, tile, num_tiles, num_ids, topk) -> None:
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
    tl.store(kept.tile_max + place, biggest, mask=is_token)
    tl.store(kept.tile_sum + place, tl.sum(weights, axis=0), mask=is_token)
    tl.store(kept.tile_keys + place * topk, best, mask=is_token)
    for rank in range(1, topk):
        keys = tl.where(keys == best[None, :], NO_CANDIDATE, keys)
        best = tl.max(keys, axis=0)
        tl.store(kept.tile_keys + place * topk + rank, best, mask=is_token)


@triton.jit(do_not_specialize=["num_tokens", "num_ids", "topk"])
def head_kernel(
    given,
    weight,
    logits,
    kept,
    topk,
    num_tokens,
    num_ids,
    width,
    CUT: tl.constexpr,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes one tile of ids of some tokens; of few tokens CUT.block_n ids at a time."""
    tile = tl.program_id(0)
    place = tl.arange(0, TILE)
    ids = tile * TILE + place
    tokens = tl.program_id(1) * CUT.tokens + tl.arange(0, CUT.tokens)
    if CUT.block_n == TILE:
        value = product(given, tokens, weight, ids, num_tokens, num_ids, width, CUT, PDL)
    else:
        value = tl.zeros((TILE, CUT.tokens), tl.float32)
        for part in range(TILE // CUT.block_n):
            own = part * CUT.block_n + tl.arange(0, CUT.block_n)
            rows = tile * TILE + own
            results, _ = matvec(given, weight, rows, num_tokens, num_ids, width, width, CUT, PDL)
            is_own = place[:, None] == own[None, :]
            for token in tl.static_range(CUT.tokens):
                moved = tl.sum(tl.where(is_own, results[token][None, :], 0.0), axis=1)  # [TILE]
                value += tl.where((tokens == token)[None, :], moved[:, None], 0.0)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if logits is not None:
        inside = (ids[:, None] < num_ids) & (tokens[None, :] < num_tokens)
        line = tokens[None, :].to(tl.int64) * num_ids + ids[:, None]
        tl.store(logits + line, value, mask=inside)
    num_tiles = tl.cdiv(num_ids, TILE)
    store_best(value, ids, tokens, num_tokens, kept, tile, num_tiles, num_ids, topk)


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
) -> None:
    r"""Write of every tile of the vocabulary its maximum, its sum of exponentials and its best ids.

    .. math:: z_t = W\, \mathrm{norm}(x_t), \quad m = \max_{v} z_{tv}, \quad s = \sum_v e^{z_{tv} - m}

    NaN counts as minus infinity, and adds nothing to the sum. drafter.md 11, K9.
    """
    num_tokens = len(inputs if input_index is None else input_index)
    tile, cut = head_tiles(num_tokens, weight, tiles)
    sizes = (num_tokens, *weight.shape, cut_of(cut, num_tokens, weight), tile)
    kept, topk = Kept(tile_max, tile_sum, tile_keys), tile_keys.shape[-1]
    arguments = (Given(inputs, input_index, norm, eps), weight, logits, kept, topk, *sizes)
    grid = (triton.cdiv(len(weight), tile), triton.cdiv(num_tokens, sizes[3].tokens))
    how: dict[str, Any] = {
        "warps": cut.num_warps,
        "stages": cut.num_stages,
        "registers": HEAD_REGISTERS,
    }
    launch(head_kernel, grid, *arguments, **how)


PICK_REGISTERS = 128
"""Registers that a thread may take, so that 16 warps fit, [-]. Without a number the assembler keeps fewer."""

MOST_TILES = 8192
"""Tiles of the head that one program can hold, [-]."""


class Chain(NamedTuple):
    """What a chain of drafts keeps on the device, for B requests.

    Every value is written from `starts` and the number of the step, so that a replayed graph begins
    where the first run began.
    """

    starts: torch.Tensor
    positions: torch.Tensor
    lengths: torch.Tensor
    drafted: torch.Tensor
    scores: torch.Tensor


@triton.jit(do_not_specialize=["step", "num_steps", "num_ids", "num_tiles", "topk", "tile_size"])
def pick_kernel(
    kept,
    offsets,
    tokens,
    log_probs,
    chain,
    step,
    num_steps,
    num_ids,
    num_tiles,
    topk,
    tile_size,
    BLOCK: tl.constexpr,
    BLOCK_TOPK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program picks the guesses of one row: tokens and log_probs [T, topk]."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, BLOCK)
    is_tile = tile < num_tiles
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    place = row * num_tiles + tile
    highs = tl.load(kept.tile_max + place, mask=is_tile, other=float("-inf"))
    sums = tl.load(kept.tile_sum + place, mask=is_tile, other=0.0)
    biggest = tl.max(highs, axis=0)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    total = tl.sum(sums * tl.exp(highs - shift), axis=0)
    log_total = shift + tl.log(tl.where(total == 0.0, 1.0, total))

    # the best topk of all stand in the topk tiles whose own best is best
    keys = tl.load(kept.tile_keys + place * topk, mask=is_tile, other=NO_CANDIDATE)
    rank = tl.arange(0, BLOCK_TOPK)
    candidates = tl.full((BLOCK_TOPK, BLOCK_TOPK), NO_CANDIDATE, tl.int64)
    best = tl.max(keys, axis=0)
    if BLOCK_TOPK > 1:
        for chosen in range(topk):
            is_found = best != NO_CANDIDATE
            line = (row * num_tiles + key_index(best) // tile_size) * topk + rank
            found = tl.load(
                kept.tile_keys + line, mask=rank < tl.where(is_found, topk, 0), other=NO_CANDIDATE
            )
            candidates = tl.where((rank == chosen)[:, None], found[None, :], candidates)
            keys = tl.where(keys == best, NO_CANDIDATE, keys)
            best = tl.max(keys, axis=0)
        best = tl.max(tl.max(candidates, axis=1), axis=0)
    for chosen in range(topk):
        index = key_index(best)
        value = key_value(best)
        log_prob = tl.where(value == float("-inf"), value, value - log_total)
        offset = tl.load(offsets + index, mask=index < num_ids, other=0)
        out = row * topk + chosen
        tl.store(tokens + out, index.to(tl.int64) + offset)
        tl.store(log_probs + out, log_prob)
        if chain is not None:
            start = tl.load(chain.starts + row)
            tl.store(chain.positions + row, start + step)
            tl.store(chain.lengths + row, start + step + 1)
            line = row * num_steps + step
            before = tl.load(chain.scores + line - 1, mask=step > 0, other=0.0)
            tl.store(chain.drafted + line, index.to(tl.int64) + offset)
            tl.store(chain.scores + line, before + log_prob)
        if BLOCK_TOPK > 1:
            candidates = tl.where(candidates == best, NO_CANDIDATE, candidates)
            best = tl.max(tl.max(candidates, axis=1), axis=0)


def pick(
    tile_max: torch.Tensor,
    tile_sum: torch.Tensor,
    tile_keys: torch.Tensor,
    offsets: torch.Tensor,
    tokens: torch.Tensor,
    log_probs: torch.Tensor,
    *,
    tile: int,
    chain: Chain | None = None,
    step: int = 0,
) -> None:
    """Write the best guesses of each row, the best first, and their log-probabilities.

    The lower draft id wins among equals. drafter.md 11, K10.
    """
    num_tokens, topk = tokens.shape
    num_ids = offsets.shape[0]
    num_tiles = triton.cdiv(num_ids, tile)
    num_steps = 0 if chain is None else chain.drafted.shape[1]
    block = power_of_two(num_tiles)
    # fewer warps where the candidates are held too; with either, some release spills in the other case
    warps = min(16, max(1, block // (256 if topk == 1 else 512)))
    kept, width = Kept(tile_max, tile_sum, tile_keys), 1 if topk == 1 else MOST_TOPK
    arguments = (kept, offsets, tokens, log_probs, chain, step, num_steps, num_ids, num_tiles)
    sizes = (topk, tile, block, width)
    registers = PICK_REGISTERS
    launch(pick_kernel, (num_tokens,), *arguments, *sizes, warps=warps, registers=registers)
