"""A draft tree: levels of candidates, and its best nodes."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.launch_plan import launch, power_of_two
from drafter.kernels.numerics import NO_CANDIDATE, candidate_key, key_index, key_value


class Candidates(NamedTuple):
    """All nodes that a tree considers, root left out, for B requests.

    C = topk + (num_steps - 1) topk²: the first level, then those of the nodes that went on.
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    parents: torch.Tensor


class Frontier(NamedTuple):
    """The nodes of one level that go on, for B requests; the rows of the next draft step.

    Each level has its own, so that nothing is read and written in one launch.
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    nodes: torch.Tensor
    ancestors: torch.Tensor
    carry_rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor

    @classmethod
    def empty(cls, batch_size: int, topk: int, device: torch.device | str) -> "Frontier":
        """Space for one level.

        Allocated once, before a graph is captured.
        """
        types = {"tokens": torch.int64, "scores": torch.float32, "ancestors": torch.int64}
        return cls(
            *(
                torch.zeros(
                    batch_size * (1 if name == "lengths" else topk),
                    dtype=types.get(name, torch.int32),
                    device=device,
                )
                for name in cls._fields
            )
        )


@triton.jit(do_not_specialize=["level", "base", "num_candidates", "width"])
def tree_level_kernel(
    guesses,
    log_probs,
    starts,
    rows,
    candidates,
    before,
    following,
    level,
    base,
    num_candidates,
    width,
    TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program keeps the width · TOPK guesses of one request and sends the best TOPK on."""
    request = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < width * TOPK
    parent = place // TOPK
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    guess = tl.load(guesses + request * (width * TOPK) + place, mask=inside, other=0)
    score = tl.load(log_probs + request * (width * TOPK) + place, mask=inside, other=float("-inf"))
    node = tl.zeros((BLOCK,), tl.int32) - 1
    line = tl.zeros((BLOCK,), tl.int64)
    if before is not None:
        row = request * width + parent
        score += tl.load(before.scores + row, mask=inside, other=0.0)
        node = tl.load(before.nodes + row, mask=inside, other=-1)
        line = tl.load(before.ancestors + row, mask=inside, other=0)
    out = request * num_candidates + base + place
    tl.store(candidates.tokens + out, guess, mask=inside)
    tl.store(candidates.scores + out, score, mask=inside)
    tl.store(candidates.parents + out, node, mask=inside)
    if following is not None:
        keys = tl.where(inside, candidate_key(score, place), NO_CANDIDATE)
        start = tl.load(starts + request)
        tl.store(following.lengths + request, start + (level + 1) * TOPK)
        for rank in tl.static_range(TOPK):
            best = tl.max(keys, axis=0)
            chosen = key_index(best)
            is_chosen = place == chosen
            slot = level * TOPK + rank
            row = request * TOPK + rank
            tl.store(following.tokens + row, tl.sum(tl.where(is_chosen, guess, 0), axis=0))
            tl.store(following.scores + row, key_value(best))
            tl.store(following.nodes + row, base + chosen)
            bits = tl.sum(tl.where(is_chosen, line, 0), axis=0)
            one = tl.full((), 1, tl.int64)
            tl.store(following.ancestors + row, bits | (one << slot))
            carried = (request * width + chosen // TOPK).to(tl.int32)
            if rows is not None:
                carried = tl.load(rows + carried).to(tl.int32)
            tl.store(following.carry_rows + row, carried)
            tl.store(following.positions + row, start + level)
            tl.store(following.slots + row, start + slot)
            keys = tl.where(is_chosen, NO_CANDIDATE, keys)


def tree_level(
    guesses: torch.Tensor,
    log_probs: torch.Tensor,
    starts: torch.Tensor,
    candidates: Candidates,
    *,
    level: int,
    before: Frontier | None,
    following: Frontier | None,
    rows: torch.Tensor | None = None,
) -> None:
    """Keep the guesses after one level's nodes, and write the best `topk` of them as the next level.

    The lower index wins among equal scores. [li2024]_ section 4.1; drafter.md 6.
    """
    topk = guesses.shape[1]
    batch_size, num_candidates = candidates.tokens.shape
    width = 1 if before is None else topk
    base = 0 if before is None else topk + (level - 1) * topk * topk
    arguments = (guesses, log_probs, starts, rows, candidates, before, following)
    sizes = (level, base, num_candidates, width, topk, power_of_two(width * topk))
    launch(tree_level_kernel, (batch_size,), *arguments, *sizes, warps=1)


CHUNK = 64
"""Candidates that are compared at once, [-]."""


class Tree(NamedTuple):
    """What the target verifies, for B requests; row 0 of each is the root.

    N = num_draft_tokens, at most 64. Rows stand in the order in which the nodes came up.
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    parents: torch.Tensor
    levels: torch.Tensor
    ancestors: torch.Tensor

    @classmethod
    def empty(cls, batch_size: int, num_draft_tokens: int, device: torch.device | str) -> "Tree":
        """Space for the trees of a batch.

        Allocated once, before a graph is captured.
        """
        types = (torch.int64, torch.float32, torch.int32, torch.int32, torch.int64)
        shape = (batch_size, num_draft_tokens)
        return cls(*(torch.zeros(shape, dtype=dtype, device=device) for dtype in types))


@triton.jit(do_not_specialize=["num_best", "num_candidates"])
def rank_kernel(
    scores, is_best, num_best, num_candidates, CHUNK_SIZE: tl.constexpr, PDL: tl.constexpr
) -> None:
    """One program says of CHUNK_SIZE candidates whether fewer than num_best are better: [B, C]."""
    request = tl.program_id(0).to(tl.int64)
    own = tl.program_id(1) * CHUNK_SIZE + tl.arange(0, CHUNK_SIZE)
    line = request * num_candidates
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    score = tl.load(scores + line + own, mask=own < num_candidates, other=float("-inf"))
    key = candidate_key(score, own)
    rank = tl.zeros((CHUNK_SIZE,), tl.int32)
    for start in range(0, num_candidates, CHUNK_SIZE):
        other = start + tl.arange(0, CHUNK_SIZE)
        score = tl.load(scores + line + other, mask=other < num_candidates, other=float("-inf"))
        better = candidate_key(score, other)[None, :] > key[:, None]
        rank += tl.sum((better & (other < num_candidates)[None, :]).to(tl.int32), axis=1)
    tl.store(is_best + line + own, (rank < num_best).to(tl.int32), mask=own < num_candidates)


@triton.jit(do_not_specialize=["num_candidates", "num_nodes", "num_steps"])
def compact_kernel(
    is_best,
    candidates,
    root_tokens,
    root_rows,
    tree,
    num_candidates,
    num_nodes,
    num_steps,
    TOPK: tl.constexpr,
    CHUNK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program writes the tree of one request: out [B, num_nodes]."""
    request = tl.program_id(0).to(tl.int64)
    line = request * num_candidates
    node = tl.arange(0, BLOCK)  # row of the tree; 0 is the root
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    candidate = tl.zeros((BLOCK,), tl.int32)
    seen = 0
    for start in range(0, num_candidates, CHUNK_SIZE):
        other = start + tl.arange(0, CHUNK_SIZE)
        best = tl.load(is_best + line + other, mask=other < num_candidates, other=0)
        row = seen + tl.cumsum(best, axis=0)
        is_here = (row[None, :] == node[:, None]) & (best != 0)[None, :]
        candidate += tl.sum(tl.where(is_here, other[None, :], 0), axis=1)
        seen += tl.sum(best, axis=0)
    is_guess = (node > 0) & (node < num_nodes)
    above = tl.load(candidates.parents + line + candidate, mask=is_guess, other=-1)
    # row of the parent: how many of the best come up to it; the root's children find none
    parent = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, num_candidates, CHUNK_SIZE):
        other = start + tl.arange(0, CHUNK_SIZE)
        best = tl.load(is_best + line + other, mask=other < num_candidates, other=0)
        parent += tl.sum(tl.where(other[None, :] <= above[:, None], best[None, :], 0), axis=1)
    one = tl.full((BLOCK,), 1, tl.int64)
    bits = one << node.to(tl.int64)
    current = parent
    for _ in range(num_steps):
        bits = bits | (one << current.to(tl.int64))
        is_current = current[:, None] == node[None, :]
        current = tl.sum(tl.where(is_current, parent[None, :], 0), axis=1)
    level = tl.where(candidate < TOPK, 1, 2 + (candidate - TOPK) // (TOPK * TOPK))
    level = tl.where(node == 0, 0, level)
    token = tl.load(candidates.tokens + line + candidate, mask=is_guess, other=0)
    root = tl.load(root_tokens + tl.load(root_rows + request)).to(tl.int64)
    token = tl.where(node == 0, root, token)
    score = tl.load(candidates.scores + line + candidate, mask=is_guess, other=0.0)
    out = request * num_nodes + node
    inside = node < num_nodes
    tl.store(tree.tokens + out, token, mask=inside)
    tl.store(tree.scores + out, score, mask=inside)
    tl.store(tree.parents + out, tl.where(node == 0, -1, parent), mask=inside)
    tl.store(tree.levels + out, level, mask=inside)
    tl.store(tree.ancestors + out, bits, mask=inside)


def tree_best(
    candidates: Candidates,
    root_tokens: torch.Tensor,
    root_rows: torch.Tensor,
    is_best: torch.Tensor,
    tree: Tree,
    *,
    num_steps: int,
    topk: int,
) -> None:
    """Write the root and the best nodes of all levels.

    No node is kept without its parent: no child scores higher, and parents come up first. [li2024]_
    section 4.2.
    """
    batch_size, num_nodes = tree.tokens.shape
    num_candidates = topk + (num_steps - 1) * topk * topk
    grid = (batch_size, triton.cdiv(num_candidates, CHUNK))
    ranked = (candidates.scores, is_best, num_nodes - 1, num_candidates, CHUNK)
    launch(rank_kernel, grid, *ranked, warps=4)
    arguments = (is_best, candidates, root_tokens, root_rows, tree)
    sizes = (num_candidates, num_nodes, num_steps, topk, CHUNK, power_of_two(num_nodes))
    launch(compact_kernel, (batch_size,), *arguments, *sizes, warps=4)
