"""Drafts of the reference: a chain, a tree, and the choice of its best nodes."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from drafter.reference.draft_model import DraftModel, DraftPass
from drafter.reference.layer import KvCache, visible_in_tree
from specmodel.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDraft:
    """The draft of one round, its first token at index 0."""

    tokens: Tensor
    draft_ids: Tensor
    log_probs: Tensor
    logits: Tensor
    carries: Tensor
    cache: KvCache
    draft_cache: KvCache


def draft_chain(
    model: DraftModel,
    tokens: Tensor,
    aux_states: Tensor,
    positions: Tensor,
    *,
    num_steps: int,
    cache: KvCache | None = None,
    forced_tokens: Tensor | None = None,
) -> ChainDraft:
    """Extend pass over the accepted tokens, then draft steps.

    drafter.md 6; the counts are SGLang's. [li2025]_ section 3.1.
    """
    if num_steps < 1:
        raise ParameterError("num_steps", num_steps, "at least 1")
    if forced_tokens is not None and len(forced_tokens) != num_steps - 1:
        allowed = f"num_steps - 1 = {num_steps - 1} of them"
        raise ParameterError("forced_tokens", f"{len(forced_tokens)} of them", allowed)
    extended = model.extend(tokens, aux_states, positions, cache)
    passes = [extended.last()]
    for step in range(num_steps - 1):
        before = passes[-1]
        if forced_tokens is None:
            fed = model.target_ids(lowest_argmax(before.logits))
        else:
            fed = forced_tokens[step : step + 1]
        passes.append(model.step(fed, before.carry, positions[-1:] + 1 + step, before.cache))
    logits = torch.cat([each.logits for each in passes])
    draft_ids = lowest_argmax(logits)
    return ChainDraft(
        tokens=model.target_ids(draft_ids),
        draft_ids=draft_ids,
        log_probs=logits.log_softmax(dim=-1).gather(1, draft_ids[:, None])[:, 0],
        logits=logits,
        carries=torch.cat([each.carry for each in passes]),
        cache=extended.cache,
        draft_cache=passes[-1].cache,
    )


def lowest_argmax(logits: Tensor) -> Tensor:
    """Index of the largest value of each row, the lowest one among equals.

    `torch.argmax` promises no order among equals.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    index = torch.arange(logits.shape[-1]).expand_as(logits)
    return torch.where(logits == largest, index, logits.shape[-1]).amin(dim=-1)


NO_PARENT = -1
"""Parent of the root."""


def best(scores: Tensor, count: int) -> Tensor:
    """Indices of the highest values, the best first, the lower index first among equals.

    `torch.topk` promises no order among equals.
    """
    if not 0 <= count <= scores.shape[-1]:
        raise ParameterError("count", count, f"from 0 to {scores.shape[-1]}, the values there are")
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


class Candidates(NamedTuple):
    """The root and all guesses that a tree has considered, in the order in which they came up."""

    draft_ids: Tensor
    scores: Tensor
    parents: Tensor
    levels: Tensor

    @classmethod
    def root(cls, dtype: torch.dtype = torch.float64) -> "Candidates":
        """Only the root: the last accepted token."""
        none = torch.tensor([NO_PARENT])
        return cls(none, torch.zeros(1, dtype=dtype), none, torch.zeros(1, dtype=torch.int64))

    def with_level(self, frontier: Tensor, log_probs: Tensor, topk: int) -> "Candidates":
        """Candidates with the best guesses after each node of the frontier.

        [li2024]_ section 4.1.
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
        """Best nodes of the deepest level: those that go on."""
        deepest = (self.levels == self.levels.max()).nonzero()[:, 0]
        return deepest[best(self.scores[deepest], topk)]

    def selected(self, num_draft_tokens: int) -> "Candidates":
        """Tree that is verified: the best nodes of all levels, root included.

        No node is selected without its parent, since no child scores higher and parents come up first.
        [li2024]_ section 4.2.
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
    """True where a node is an ancestor of another, or the same."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents.tolist()):
        if parent != NO_PARENT:
            mask[node] |= mask[parent]
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDraft:
    """What the target verifies; row 0 is the root, the last accepted token."""

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
    """Nodes of one level after the model has seen them."""

    logits: Tensor
    carry: Tensor
    cache: KvCache
    ancestors: Tensor

    @classmethod
    def at_root(cls, extended: DraftPass) -> Self:
        """The root, whose row belongs to the extend pass and not to the tree."""
        last = extended.last()
        return cls(last.logits, last.carry, last.cache, torch.zeros(1, 0, dtype=torch.bool))

    def grown(self, model: DraftModel, parents: Tensor, tokens: Tensor, position: Tensor) -> Self:
        """Next level: chosen children of these nodes, each fed the carry of its parent.

        The ancestors of a child are those of its parent, and itself. [li2024]_ section 4.1; drafter.md 6.
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
    """Extend pass over the accepted tokens, then levels of a tree, of which the best nodes are kept.

    Every level keeps the `topk` best guesses after each of its nodes; the `topk` best of those topk²
    nodes, by the log-probability of their paths, go on. The tree that is verified holds the root and
    the best nodes of all levels.

    [li2024]_ section 4; the counts are SGLang's. The lower index wins among equal scores. To follow the
    choices of another implementation, drive `Frontier.grown`.
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
