"""Which guesses of a draft tree go on, and which are verified; knows no model."""

from typing import NamedTuple

import torch
from torch import Tensor

from specmodel.errors import ParameterError

NO_PARENT = -1
"""Parent of the root."""


def best(scores: Tensor, count: int) -> Tensor:
    """Indices of the highest values, the best first, the lower index first among equals.

    Parameters
    ----------
    scores : Tensor, shape [..., n]
        [-].
    count : int
        Between 0 and n.

    Returns
    -------
    Tensor of int64, shape [..., count]

    Raises
    ------
    ParameterError
        If there are fewer than `count` values.

    Notes
    -----
    `torch.topk` promises no order among equals.

    Examples
    --------
    >>> best(torch.tensor([1.0, 3.0, 3.0, 2.0]), 3).tolist()
    [1, 2, 3]
    """
    if not 0 <= count <= scores.shape[-1]:
        raise ParameterError("count", count, f"from 0 to {scores.shape[-1]}, the values there are")
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


class Candidates(NamedTuple):
    """The root and all guesses that a tree has considered, in the order in which they came up.

    Parameters
    ----------
    draft_ids : Tensor of int64, shape [C]
        Guesses in the draft vocabulary; -1 for the root, which is no guess.
    scores : Tensor, shape [C]
        Log-probability of the path from the root, not positive, [-].
    parents : Tensor of int64, shape [C]
        Index of the parent, `NO_PARENT` for the root.
    levels : Tensor of int64, shape [C]
        Depth; 0 for the root.

    Examples
    --------
    >>> Candidates.root().scores.tolist()
    [0.0]
    """

    draft_ids: Tensor
    scores: Tensor
    parents: Tensor
    levels: Tensor

    @classmethod
    def root(cls, dtype: torch.dtype = torch.float64) -> "Candidates":
        """Only the root: the last accepted token.

        Parameters
        ----------
        dtype : torch.dtype
            Of the scores.

        Returns
        -------
        Candidates
            Of C = 1.

        Examples
        --------
        >>> Candidates.root().parents.tolist()
        [-1]
        """
        none = torch.tensor([NO_PARENT])
        return cls(none, torch.zeros(1, dtype=dtype), none, torch.zeros(1, dtype=torch.int64))

    def with_level(self, frontier: Tensor, log_probs: Tensor, topk: int) -> "Candidates":
        r"""Candidates with the best guesses after each node of the frontier.

        .. math:: \text{score}_\text{child} = \text{score}_\text{parent} + \log P(\text{child})

        Parameters
        ----------
        frontier : Tensor of int64, shape [m]
            Candidates of the deepest level that go on; the root, [0], at first.
        log_probs : Tensor, shape [m, Vd]
            Of the guesses after each of them, [-].
        topk : int
            Guesses that are kept after each, at most Vd.

        Returns
        -------
        Candidates
            With m topk more nodes: by parent in the order of the frontier, then the best first.

        Raises
        ------
        ParameterError
            If there are fewer than `topk` guesses.

        Notes
        -----
        [li2024]_ section 4.1.

        Examples
        --------
        >>> log_probs = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()
        >>> one = Candidates.root().with_level(torch.tensor([0]), log_probs, 2)
        >>> one.draft_ids.tolist(), one.scores.exp().tolist(), one.parents.tolist()
        ([-1, 0, 1], [1.0, 0.5, 0.3], [-1, 0, 0])
        """
        draft_ids = best(log_probs, topk)
        scores = self.scores[frontier][:, None] + log_probs.gather(1, draft_ids)
        levels = (self.levels[frontier] + 1).repeat_interleave(topk)
        return Candidates(
            draft_ids=torch.cat([self.draft_ids, draft_ids.flatten()]),
            scores=torch.cat([self.scores, scores.flatten()]),
            parents=torch.cat([self.parents, frontier.repeat_interleave(topk)]),
            levels=torch.cat([self.levels, levels]),
        )

    def frontier(self, topk: int) -> Tensor:
        """Best nodes of the deepest level: those that go on.

        Parameters
        ----------
        topk : int
            How many, at most as many as the level has.

        Returns
        -------
        Tensor of int64, shape [topk]
            The best first.

        Raises
        ------
        ParameterError
            If the level has fewer nodes.

        Examples
        --------
        >>> log_probs = torch.tensor([[0.2, 0.3, 0.5]]).log()
        >>> one = Candidates.root().with_level(torch.tensor([0]), log_probs, 2)
        >>> one.frontier(2).tolist(), one.draft_ids[one.frontier(2)].tolist()
        ([1, 2], [2, 1])
        """
        deepest = (self.levels == self.levels.max()).nonzero()[:, 0]
        return deepest[best(self.scores[deepest], topk)]

    def selected(self, num_draft_tokens: int) -> "Candidates":
        """Tree that is verified: the best nodes of all levels, root included.

        Parameters
        ----------
        num_draft_tokens : int
            Nodes, root included, at most all.

        Returns
        -------
        Candidates
            In the order in which they came up, parents counted within the tree.

        Raises
        ------
        ParameterError
            If there are fewer nodes.

        Notes
        -----
        No node is selected without its parent, since no child scores higher and parents come up first.
        [li2024]_ section 4.2.

        Examples
        --------
        >>> log_probs = torch.tensor([[0.5, 0.3, 0.2]]).log()
        >>> Candidates.root().with_level(torch.tensor([0]), log_probs, 3).selected(2).draft_ids.tolist()
        [-1, 0]
        """
        if not 1 <= num_draft_tokens <= len(self.scores):
            allowed = f"from 1 to {len(self.scores)}, the nodes of the tree with its root"
            raise ParameterError("num_draft_tokens", num_draft_tokens, allowed)
        chosen = best(self.scores, num_draft_tokens).sort().values
        place = torch.full((len(self.scores) + 1,), NO_PARENT)  # the last one is the root's parent
        place[chosen] = torch.arange(num_draft_tokens)
        return Candidates(
            draft_ids=self.draft_ids[chosen],
            scores=self.scores[chosen],
            parents=place[self.parents[chosen]],
            levels=self.levels[chosen],
        )


def ancestor_mask(parents: Tensor) -> Tensor:
    r"""True where a node is an ancestor of another, or the same.

    .. math:: M_{ij} = [i = j] \lor M_{\text{parent}(i)\,j}

    Parameters
    ----------
    parents : Tensor of int64, shape [N]
        Each before its children; `NO_PARENT` where there is none.

    Returns
    -------
    Tensor of bool, shape [N, N]
        Row i: what node i sees.

    Examples
    --------
    >>> ancestor_mask(torch.tensor([-1, 0, 0, 1])).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents.tolist()):
        if parent != NO_PARENT:
            mask[node] |= mask[parent]
    return mask
