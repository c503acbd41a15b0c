"""One level of a draft tree: its candidates kept, the best of them sent on."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, check_range, check_tensor
from drafter.kernels.attention import MOST_TAIL_SLOTS
from drafter.kernels.candidate_keys import NO_CANDIDATE, candidate_key, key_index, key_value
from drafter.kernels.head import MOST_TOPK
from drafter.kernels.launch_plan import options, power_of_two


class Candidates(NamedTuple):
    """All nodes that a tree considers, root left out, for B requests.

    Parameters
    ----------
    tokens : torch.Tensor, shape (B, C)
        int64 ids of the target vocabulary.
    scores : torch.Tensor, shape (B, C)
        fp32 log-probability of the path from the root, [-].
    parents : torch.Tensor, shape (B, C)
        int32 index of the parent among the C, -1 for the root.

    Notes
    -----
    C = topk + (num_steps - 1) topk²: the first level, then those of the nodes that went on.

    Examples
    --------
    >>> Candidates._fields
    ('tokens', 'scores', 'parents')
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    parents: torch.Tensor


class Frontier(NamedTuple):
    """The nodes of one level that go on, for B requests; the rows of the next draft step.

    Parameters
    ----------
    tokens : torch.Tensor, shape (B topk,)
        int64 ids of the target vocabulary.
    scores : torch.Tensor, shape (B topk,)
        fp32 log-probability of the path, [-].
    nodes : torch.Tensor, shape (B topk,)
        int32 index among the candidates.
    ancestors : torch.Tensor, shape (B topk,)
        int64; bit i stands for slot i of the tree, the node's own included.
    carry_rows : torch.Tensor, shape (B topk,)
        int32 row of the step before whose hidden state the node is fed.
    positions, slots : torch.Tensor, shape (B topk,)
        int32 position, and place in the cache, [tokens].
    lengths : torch.Tensor, shape (B,)
        int32 slots in use once this level has written its own, [tokens].

    Notes
    -----
    Each level has its own, so that nothing is read and written in one launch.

    Examples
    --------
    >>> Frontier._fields[:3]
    ('tokens', 'scores', 'nodes')
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

        Parameters
        ----------
        batch_size, topk : int
            B, and the nodes of a request that go on, [-].
        device : torch.device or str
            Where.

        Returns
        -------
        Frontier
            Zeros.

        Notes
        -----
        Allocated once, before a graph is captured.

        Examples
        --------
        >>> Frontier.empty(2, 3, "cpu").tokens.shape
        torch.Size([6])
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
    guesses: tl.tensor,
    log_probs: tl.tensor,
    starts: tl.tensor,
    rows: tl.tensor,
    candidate_tokens: tl.tensor,
    candidate_scores: tl.tensor,
    candidate_parents: tl.tensor,
    before_scores: tl.tensor,
    before_nodes: tl.tensor,
    before_ancestors: tl.tensor,
    next_tokens: tl.tensor,
    next_scores: tl.tensor,
    next_nodes: tl.tensor,
    next_ancestors: tl.tensor,
    next_rows: tl.tensor,
    next_positions: tl.tensor,
    next_slots: tl.tensor,
    next_lengths: tl.tensor,
    level: tl.tensor,
    base: tl.tensor,
    num_candidates: tl.tensor,
    width: tl.tensor,
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
    if before_scores is not None:
        row = request * width + parent
        score += tl.load(before_scores + row, mask=inside, other=0.0)
        node = tl.load(before_nodes + row, mask=inside, other=-1)
        line = tl.load(before_ancestors + row, mask=inside, other=0)
    out = request * num_candidates + base + place
    tl.store(candidate_tokens + out, guess, mask=inside)
    tl.store(candidate_scores + out, score, mask=inside)
    tl.store(candidate_parents + out, node, mask=inside)
    if next_tokens is not None:
        keys = tl.where(inside, candidate_key(score, place), NO_CANDIDATE)
        start = tl.load(starts + request)
        tl.store(next_lengths + request, start + (level + 1) * TOPK)
        for rank in tl.static_range(TOPK):
            best = tl.max(keys, axis=0)
            chosen = key_index(best)
            is_chosen = place == chosen
            slot = level * TOPK + rank
            row = request * TOPK + rank
            tl.store(next_tokens + row, tl.sum(tl.where(is_chosen, guess, 0), axis=0))
            tl.store(next_scores + row, key_value(best))
            tl.store(next_nodes + row, base + chosen)
            bits = tl.sum(tl.where(is_chosen, line, 0), axis=0)
            one = tl.full((), 1, tl.int64)
            tl.store(next_ancestors + row, bits | (one << slot))
            carried = (request * width + chosen // TOPK).to(tl.int32)
            if rows is not None:
                carried = tl.load(rows + carried).to(tl.int32)
            tl.store(next_rows + row, carried)
            tl.store(next_positions + row, start + level)
            tl.store(next_slots + row, start + slot)
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
    programmatic: bool = False,
) -> None:
    r"""Keep the guesses after one level's nodes, and write the best `topk` of them as the next level.

    .. math:: \text{score}_\text{child} = \text{score}_\text{parent} + \log P(\text{child})

    Parameters
    ----------
    guesses, log_probs : torch.Tensor, shape (B W, topk)
        Of `pick`, after the root (W = 1) or after each node that went on (W = topk).
    starts : torch.Tensor, shape (B,)
        int32 first slot of the tree, which is the position of the root's children, [tokens].
    candidates : Candidates
        Where the guesses are kept.
    level : int
        0 after the root, then counted up, [-].
    before : Frontier or None
        The nodes that the guesses follow; None for the root.
    following : Frontier or None
        The next level; None after the last.
    rows : torch.Tensor, optional, shape (B W,)
        Row of the pass that each node stood in; by default the node's own number.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit, or the tree has more slots than an int64 has bits.

    Notes
    -----
    The lower index wins among equal scores. [li2024]_ section 4.1; drafter.md 6.

    Examples
    --------
    >>> none = Candidates(*(torch.zeros(1, 6, dtype=t) for t in (torch.int64, torch.float32, torch.int32)))
    >>> tree_level(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 3), torch.zeros(1, dtype=torch.int32),
    ...            none, level=0, before=None, following=None)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: log_probs must be of shape (1, 2), got (1, 3)
    """
    topk = guesses.shape[1]
    batch_size, num_candidates = candidates.tokens.shape
    width = 1 if before is None else topk
    base = 0 if before is None else topk + (level - 1) * topk * topk
    num_nodes = batch_size * width
    check_range("topk", topk, 1, MOST_TOPK)
    check_tensor("guesses", guesses, (num_nodes, topk), (torch.int64,))
    check_tensor("log_probs", log_probs, (num_nodes, topk), (torch.float32,), guesses)
    check_tensor("starts", starts, (batch_size,), (torch.int32,), guesses)
    if rows is not None:
        check_tensor("rows", rows, (num_nodes,), INDEX_TYPES, guesses)
    check_range("level", level, 0 if before is None else 1, MOST_TAIL_SLOTS)
    check_range("candidates", num_candidates, base + width * topk, num_candidates)
    kept = (batch_size, num_candidates)
    check_tensor("candidate tokens", candidates.tokens, kept, (torch.int64,), guesses)
    check_tensor("candidate scores", candidates.scores, kept, (torch.float32,), guesses)
    check_tensor("candidate parents", candidates.parents, kept, (torch.int32,), guesses)
    if following is not None:
        hint = "fewer steps or fewer branches"
        check_range("slots of the tree", (level + 1) * topk, 1, MOST_TAIL_SLOTS, hint)
        expected = Frontier.empty(batch_size, topk, "meta")
        for name, tensor, like in zip(Frontier._fields, following, expected, strict=True):
            check_tensor(name, tensor, like.shape, (like.dtype,), guesses)
    above = (
        (None, None, None) if before is None else (before.scores, before.nodes, before.ancestors)
    )
    block = power_of_two(width * topk)
    tree_level_kernel[(batch_size,)](
        guesses,
        log_probs,
        starts,
        rows,
        *candidates,
        *above,
        *(following or (None,) * len(Frontier._fields)),
        level,
        base,
        num_candidates,
        width,
        topk,
        block,
        programmatic,
        **options(1, 1, programmatic),
    )
