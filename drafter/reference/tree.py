"""A draft tree in which every node sees its true ancestors."""

from dataclasses import dataclass
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from drafter.reference.cache import KvCache
from drafter.reference.draft_model import DraftModel, DraftPass
from drafter.reference.tree_selection import Candidates, ancestor_mask
from drafter.reference.visibility import visible_in_tree
from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDraft:
    """What the target verifies; row 0 is the root, the last accepted token.

    Parameters
    ----------
    tokens : Tensor of int64, shape [num_draft_tokens]
        In the target's vocabulary.
    parents : Tensor of int64, shape [num_draft_tokens]
        Row of the parent, -1 for the root.
    levels : Tensor of int64, shape [num_draft_tokens]
        Depth; the position of a node is the root's plus its depth.
    scores : Tensor, shape [num_draft_tokens]
        Log-probability of the path, 0 for the root, [-].
    mask : Tensor of bool, shape [num_draft_tokens, num_draft_tokens]
        Row i: the ancestors of node i and itself.
    candidates : Candidates
        All nodes that were considered, root included.
    frontiers : tuple of Tensor, each of shape [topk]
        Candidates that went on after each level but the last.
    logits : tuple of Tensor, shapes [1, Vd] and then [topk, Vd]
        After the root, and after each frontier, [-].
    cache : KvCache
        After the extend pass: what the next round starts from.
    """

    tokens: Tensor
    parents: Tensor
    levels: Tensor
    scores: Tensor
    mask: Tensor
    candidates: Candidates
    frontiers: tuple[Tensor, ...]
    logits: tuple[Tensor, ...]
    cache: KvCache


class Frontier(NamedTuple):
    """Nodes of one level after the model has seen them.

    Parameters
    ----------
    logits : Tensor, shape [m, Vd]
        Of the guesses after each, [-].
    carry : Tensor, shape [m, H]
        Hidden state after each, [-].
    cache : KvCache
        With the rows of the tree, N of them, at its end.
    ancestors : Tensor of bool, shape [m, N]
        Which of those rows are ancestors of each node, or the node itself.

    Examples
    --------
    >>> Frontier._fields
    ('logits', 'carry', 'cache', 'ancestors')
    """

    logits: Tensor
    carry: Tensor
    cache: KvCache
    ancestors: Tensor

    @classmethod
    def at_root(cls, extended: DraftPass) -> Self:
        """The root, whose row belongs to the extend pass and not to the tree.

        Parameters
        ----------
        extended : DraftPass
            The extend pass; its last row is the root.

        Returns
        -------
        Frontier
            Of one node and no row of the tree.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> rows = torch.zeros(3, 2)
        >>> Frontier.at_root(DraftPass(rows, rows, KvCache.empty(example_spec()))).ancestors.shape
        torch.Size([1, 0])
        """
        last = extended.last()
        return cls(last.logits, last.carry, last.cache, torch.zeros(1, 0, dtype=torch.bool))

    def grown(self, model: DraftModel, parents: Tensor, tokens: Tensor, position: Tensor) -> Self:
        """Next level: chosen children of these nodes, each fed the carry of its parent.

        Parameters
        ----------
        model : DraftModel
            The draft model.
        parents : Tensor of int64, shape [k]
            Which of these nodes each child follows.
        tokens : Tensor of int64, shape [k]
            Target ids of the children; forced ones are as good as guesses.
        position : Tensor of int64, shape [1]
            Of every child, [tokens].

        Returns
        -------
        Frontier
            Of k nodes, with k more rows of the tree.

        Notes
        -----
        The ancestors of a child are those of its parent, and itself. [li2024]_ section 4.1; drafter.md 6.

        Examples
        --------
        >>> from drafter.random_weights import random_weights
        >>> from drafter.reference.example import example_spec
        >>> spec = example_spec()
        >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
        >>> states = torch.ones(2, 60, dtype=torch.float64)
        >>> root = Frontier.at_root(model.extend(torch.tensor([5, 6]), states, torch.arange(2)))
        >>> both = root.grown(model, torch.tensor([0, 0]), torch.tensor([8, 9]), torch.tensor([2]))
        >>> both.grown(
        ...     model, torch.tensor([1, 0]), torch.tensor([4, 5]), torch.tensor([3])
        ... ).ancestors.int().tolist()
        [[0, 1, 1, 0], [1, 0, 0, 1]]
        """
        own = torch.eye(len(tokens), dtype=torch.bool)
        ancestors = torch.cat([self.ancestors[parents], own], dim=1)
        positions = position.expand(len(tokens))
        visible = visible_in_tree(
            positions,
            torch.cat([self.cache.positions, positions]),
            ancestors,
            sliding_window=model.spec.sliding_window,
        )
        step = model.step(tokens, self.carry[parents], positions, self.cache, visible)
        return type(self)(step.logits, step.carry, step.cache, ancestors)


def draft_tree(
    model: DraftModel,
    tokens: Tensor,
    aux_states: Tensor,
    positions: Tensor,
    *,
    num_steps: int,
    topk: int,
    num_draft_tokens: int,
    cache: KvCache | None = None,
) -> TreeDraft:
    r"""Extend pass over the accepted tokens, then levels of a tree, of which the best nodes are kept.

    Every level keeps the `topk` best guesses after each of its nodes; the `topk` best of those topk²
    nodes, by the log-probability of their paths, go on. The tree that is verified holds the root and
    the best nodes of all levels.

    Parameters
    ----------
    model : DraftModel
        The draft model.
    tokens, aux_states, positions : Tensor
        Of the extend pass, see `DraftModel.extend`.
    num_steps : int
        Levels: one from the extend pass, then one for each of num_steps - 1 steps, at least 1.
    topk : int
        Between 1 and Vd; 1 gives the chain.
    num_draft_tokens : int
        Nodes of the tree, root included, at most 1 + topk + (num_steps - 1) topk².
    cache : KvCache, optional
        Of the rounds before; None for a new request.

    Returns
    -------
    TreeDraft
        Rows in the order in which the nodes came up.

    Raises
    ------
    ParameterError
        If a count is outside its range.

    Notes
    -----
    [li2024]_ section 4; the counts are SGLang's. The lower index wins among equal scores. To follow the
    choices of another implementation, drive `Frontier.grown`.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> model = DraftModel(spec, random_weights(spec, seed=0, dtype=torch.float64))
    >>> states = torch.ones(2, 60, dtype=torch.float64)
    >>> tree = draft_tree(
    ...     model,
    ...     torch.tensor([5, 6]),
    ...     states,
    ...     torch.arange(2),
    ...     num_steps=3,
    ...     topk=2,
    ...     num_draft_tokens=6,
    ... )
    >>> tree.tokens.shape, int(tree.tokens[0]), len(tree.candidates.scores)
    (torch.Size([6]), 6, 11)
    """
    if num_steps < 1:
        raise ParameterError("num_steps", num_steps, "at least 1")
    if not 1 <= topk <= model.spec.draft_vocab_size:
        allowed = f"from 1 to draft_vocab_size {model.spec.draft_vocab_size}"
        raise ParameterError("topk", topk, allowed)
    extended = model.extend(tokens, aux_states, positions, cache)
    nodes = Frontier.at_root(extended)
    going_on = torch.tensor([0])
    candidates = Candidates.root(model.dtype)
    candidates = candidates.with_level(going_on, nodes.logits.log_softmax(dim=-1), topk)
    frontiers, logits = [], [nodes.logits]
    for step in range(num_steps - 1):
        before, going_on = going_on, candidates.frontier(topk)
        frontiers.append(going_on)
        parents = (candidates.parents[going_on][:, None] == before).int().argmax(dim=1)
        guesses = model.target_ids(candidates.draft_ids[going_on])
        nodes = nodes.grown(model, parents, guesses, positions[-1:] + 1 + step)
        logits.append(nodes.logits)
        candidates = candidates.with_level(going_on, nodes.logits.log_softmax(dim=-1), topk)
    chosen = candidates.selected(num_draft_tokens)
    return TreeDraft(
        tokens=torch.cat([tokens[-1:], model.target_ids(chosen.draft_ids[1:])]),
        parents=chosen.parents,
        levels=chosen.levels,
        scores=chosen.scores,
        mask=ancestor_mask(chosen.parents),
        candidates=candidates,
        frontiers=tuple(frontiers),
        logits=tuple(logits),
        cache=extended.cache,
    )
