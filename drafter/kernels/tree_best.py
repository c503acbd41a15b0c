"""The tree that the target verifies: the best nodes of all levels, their parents and ancestors."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, check_range, check_tensor
from drafter.kernels.attention import MOST_TAIL_SLOTS
from drafter.kernels.candidate_keys import candidate_key
from drafter.kernels.launch_plan import options, power_of_two
from drafter.kernels.tree_level import Candidates

CHUNK = 64
"""Candidates that are compared at once, [-]."""


class Tree(NamedTuple):
    """What the target verifies, for B requests; row 0 of each is the root.

    Parameters
    ----------
    tokens : torch.Tensor, shape (B, N)
        int64 ids of the target vocabulary.
    scores : torch.Tensor, shape (B, N)
        fp32 log-probability of the path, 0 for the root, [-].
    parents : torch.Tensor, shape (B, N)
        int32 row of the parent, -1 for the root.
    levels : torch.Tensor, shape (B, N)
        int32 depth; the position of a node is the root's plus its depth.
    ancestors : torch.Tensor, shape (B, N)
        int64; bit j of row i: node j is an ancestor of node i, or node i itself.

    Notes
    -----
    N = num_draft_tokens, at most 64. Rows stand in the order in which the nodes came up.

    Examples
    --------
    >>> Tree._fields
    ('tokens', 'scores', 'parents', 'levels', 'ancestors')
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    parents: torch.Tensor
    levels: torch.Tensor
    ancestors: torch.Tensor

    @classmethod
    def empty(cls, batch_size: int, num_draft_tokens: int, device: torch.device | str) -> "Tree":
        """Space for the trees of a batch.

        Parameters
        ----------
        batch_size, num_draft_tokens : int
            B and N, [-].
        device : torch.device or str
            Where.

        Returns
        -------
        Tree
            Zeros.

        Notes
        -----
        Allocated once, before a graph is captured.

        Examples
        --------
        >>> Tree.empty(2, 8, "cpu").ancestors.dtype
        torch.int64
        """
        types = (torch.int64, torch.float32, torch.int32, torch.int32, torch.int64)
        shape = (batch_size, num_draft_tokens)
        return cls(*(torch.zeros(shape, dtype=dtype, device=device) for dtype in types))


@triton.jit(do_not_specialize=["num_best", "num_candidates"])
def rank_kernel(
    scores: tl.tensor,
    is_best: tl.tensor,
    num_best: tl.tensor,
    num_candidates: tl.tensor,
    CHUNK_SIZE: tl.constexpr,
    PDL: tl.constexpr,
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
    is_best: tl.tensor,
    candidate_tokens: tl.tensor,
    candidate_scores: tl.tensor,
    candidate_parents: tl.tensor,
    root_tokens: tl.tensor,
    root_rows: tl.tensor,
    tokens: tl.tensor,
    scores: tl.tensor,
    parents: tl.tensor,
    levels: tl.tensor,
    ancestors: tl.tensor,
    num_candidates: tl.tensor,
    num_nodes: tl.tensor,
    num_steps: tl.tensor,
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
    above = tl.load(candidate_parents + line + candidate, mask=is_guess, other=-1)
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
    token = tl.load(candidate_tokens + line + candidate, mask=is_guess, other=0)
    root = tl.load(root_tokens + tl.load(root_rows + request)).to(tl.int64)
    token = tl.where(node == 0, root, token)
    score = tl.load(candidate_scores + line + candidate, mask=is_guess, other=0.0)
    out = request * num_nodes + node
    inside = node < num_nodes
    tl.store(tokens + out, token, mask=inside)
    tl.store(scores + out, score, mask=inside)
    tl.store(parents + out, tl.where(node == 0, -1, parent), mask=inside)
    tl.store(levels + out, level, mask=inside)
    tl.store(ancestors + out, bits, mask=inside)


def tree_best(
    candidates: Candidates,
    root_tokens: torch.Tensor,
    root_rows: torch.Tensor,
    is_best: torch.Tensor,
    tree: Tree,
    *,
    num_steps: int,
    topk: int,
    programmatic: bool = False,
) -> None:
    r"""Write the root and the best nodes of all levels.

    .. math:: \text{rank}_i = \#\{j : s_j > s_i \text{ or } s_j = s_i, j < i\} < N - 1

    Parameters
    ----------
    candidates : Candidates
        All C of them, of scores :math:`s`.
    root_tokens : torch.Tensor, shape (R,)
        Tokens of the extend pass.
    root_rows : torch.Tensor, shape (B,)
        Which of them is each request's root.
    is_best : torch.Tensor, shape (B, C)
        int32 working space: 1 for the nodes that are kept.
    tree : Tree
        The result, of N nodes.
    num_steps, topk : int
        Levels of the tree, and its branching, [-].
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit, or N is not between 1 and the nodes there are, at most 64.

    Notes
    -----
    No node is kept without its parent: no child scores higher, and parents come up first. [li2024]_
    section 4.2.

    Examples
    --------
    >>> few = Candidates(*(torch.zeros(1, 2, dtype=t) for t in (torch.int64, torch.float32, torch.int32)))
    >>> one = torch.zeros(1, dtype=torch.int32)
    >>> tree_best(few, one, one, few.parents, Tree.empty(1, 4, "cpu"), num_steps=1, topk=2)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: num_draft_tokens must be between 1 and 3, got 4
    """
    batch_size, num_nodes = tree.tokens.shape
    num_candidates = topk + (num_steps - 1) * topk * topk
    most = min(num_candidates + 1, MOST_TAIL_SLOTS)
    check_range("num_draft_tokens", num_nodes, 1, most)
    kept = (batch_size, num_candidates)
    check_tensor("candidate tokens", candidates.tokens, kept, (torch.int64,))
    like = candidates.tokens
    check_tensor("candidate scores", candidates.scores, kept, (torch.float32,), like)
    check_tensor("candidate parents", candidates.parents, kept, (torch.int32,), like)
    check_tensor("root_tokens", root_tokens, (root_tokens.shape[0],), INDEX_TYPES, like)
    check_tensor("root_rows", root_rows, (batch_size,), INDEX_TYPES, like)
    check_tensor("is_best", is_best, kept, (torch.int32,), like)
    expected = Tree.empty(batch_size, num_nodes, "meta")
    for name, tensor, wanted in zip(Tree._fields, tree, expected, strict=True):
        check_tensor(name, tensor, wanted.shape, (wanted.dtype,), like)
    chosen = options(4, 1, programmatic)
    rank_kernel[(batch_size, triton.cdiv(num_candidates, CHUNK))](
        candidates.scores, is_best, num_nodes - 1, num_candidates, CHUNK, programmatic, **chosen
    )
    compact_kernel[(batch_size,)](
        is_best,
        *candidates,
        root_tokens,
        root_rows,
        *tree,
        num_candidates,
        num_nodes,
        num_steps,
        topk,
        CHUNK,
        power_of_two(num_nodes),
        programmatic,
        **chosen,
    )
