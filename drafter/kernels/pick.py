"""The best guesses of each token from the tiles of the head, and the chain's next step."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.head import MOST_TOPK
from drafter.kernels.launch_plan import check_range, check_tensor, options, power_of_two
from drafter.kernels.numerics import NO_CANDIDATE, key_index, key_value

MOST_REGISTERS = 128
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
    tile_max: tl.tensor,
    tile_sum: tl.tensor,
    tile_keys: tl.tensor,
    offsets: tl.tensor,
    tokens: tl.tensor,
    log_probs: tl.tensor,
    starts: tl.tensor,
    positions: tl.tensor,
    lengths: tl.tensor,
    drafted: tl.tensor,
    scores: tl.tensor,
    step: tl.tensor,
    num_steps: tl.tensor,
    num_ids: tl.tensor,
    num_tiles: tl.tensor,
    topk: tl.tensor,
    tile_size: tl.tensor,
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
    highs = tl.load(tile_max + place, mask=is_tile, other=float("-inf"))
    sums = tl.load(tile_sum + place, mask=is_tile, other=0.0)
    biggest = tl.max(highs, axis=0)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    total = tl.sum(sums * tl.exp(highs - shift), axis=0)
    log_total = shift + tl.log(tl.where(total == 0.0, 1.0, total))

    # the best topk of all stand in the topk tiles whose own best is best
    keys = tl.load(tile_keys + place * topk, mask=is_tile, other=NO_CANDIDATE)
    rank = tl.arange(0, BLOCK_TOPK)
    candidates = tl.full((BLOCK_TOPK, BLOCK_TOPK), NO_CANDIDATE, tl.int64)
    best = tl.max(keys, axis=0)
    if BLOCK_TOPK > 1:
        for chosen in range(topk):
            is_found = best != NO_CANDIDATE
            line = (row * num_tiles + key_index(best) // tile_size) * topk + rank
            found = tl.load(
                tile_keys + line, mask=rank < tl.where(is_found, topk, 0), other=NO_CANDIDATE
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
        if starts is not None:
            start = tl.load(starts + row)
            tl.store(positions + row, start + step)
            tl.store(lengths + row, start + step + 1)
            line = row * num_steps + step
            before = tl.load(scores + line - 1, mask=step > 0, other=0.0)
            tl.store(drafted + line, index.to(tl.int64) + offset)
            tl.store(scores + line, before + log_prob)
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
    programmatic: bool = False,
) -> None:
    """Write the best guesses of each row, the best first, and their log-probabilities.

    The lower draft id wins among equals. drafter.md 11, K10.
    """
    num_tokens, topk = tokens.shape
    num_ids = offsets.shape[0]
    num_tiles = triton.cdiv(num_ids, tile)
    check_range("topk", topk, 1, min(MOST_TOPK, num_ids))
    check_range("tiles", num_tiles, 1, MOST_TILES)
    check_tensor("tile_max", tile_max, (num_tokens, num_tiles), (torch.float32,))
    check_tensor("tile_sum", tile_sum, (num_tokens, num_tiles), (torch.float32,), tile_max)
    check_tensor("tile_keys", tile_keys, (num_tokens, num_tiles, topk), (torch.int64,), tile_max)
    check_tensor("offsets", offsets, (num_ids,), (torch.int64,), tile_max)
    check_tensor("tokens", tokens, (num_tokens, topk), (torch.int64,), tile_max)
    check_tensor("log_probs", log_probs, (num_tokens, topk), (torch.float32,), tile_max)
    num_steps = 0
    if chain is not None:
        num_steps = chain.drafted.shape[1]
        check_range("topk of a chain", topk, 1, 1)
        check_range("step", step, 0, num_steps - 1)
        for name in ("starts", "positions", "lengths"):
            check_tensor(name, getattr(chain, name), (num_tokens,), (torch.int32,), tile_max)
        check_tensor("drafted", chain.drafted, (num_tokens, num_steps), (torch.int64,), tile_max)
        check_tensor("scores", chain.scores, (num_tokens, num_steps), (torch.float32,), tile_max)
    state = chain or (None,) * len(Chain._fields)
    block = power_of_two(num_tiles)
    # fewer warps where the candidates are held too; with either, some release spills in the other case
    warps = min(16, max(1, block // (256 if topk == 1 else 512)))
    pick_kernel[(num_tokens,)](
        tile_max,
        tile_sum,
        tile_keys,
        offsets,
        tokens,
        log_probs,
        *state,
        step,
        num_steps,
        num_ids,
        num_tiles,
        topk,
        tile,
        block,
        1 if topk == 1 else MOST_TOPK,
        programmatic,
        **options(warps, 1, programmatic, most_registers=MOST_REGISTERS),
    )
