"""Draft trees: which nodes to verify, and the accept length they give."""

import heapq
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, IntArray, unit_interval, whole
from specmodel.errors import ParameterError

RankPath = tuple[int, ...]
"""A node: the 0-based rank of the draft token taken at each depth; the root is ()."""

_SUM_SLACK = 1e-9


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """The nodes a target model verifies in one round, and their path probabilities.

    Parameters
    ----------
    paths : tuple of rank paths
        One per node, the root () first; every node's parent is in the tree.
    probabilities : tuple of float
        Chance that the path to each node is what the target model emits; 1 for the root, [-].

    Raises
    ------
    ParameterError
        If a node appears twice or without its parent, or a probability leaves [0, 1].
    """

    paths: tuple[RankPath, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        unit_interval("probabilities", self.probabilities)
        known = set(self.paths)
        if () not in known or not len(known) == len(self.paths) == len(self.probabilities):
            raise ParameterError(
                "paths", len(self.paths), "distinct, with the root () and one probability each"
            )
        orphans = [path for path in self.paths if path and path[:-1] not in known]
        if orphans:
            raise ParameterError("paths", orphans[0], "below a node of the tree", "add its parent")

    @property
    def num_draft_tokens(self) -> int:
        """Tokens the target model verifies, root included."""
        return len(self.paths)

    @property
    def longest_path(self) -> int:
        """Draft tokens on the longest path; the accept length is at most one more."""
        return max(len(path) for path in self.paths)

    @property
    def accept_length(self) -> float:
        """Tokens emitted per round, bonus token included: the sum of the path probabilities."""
        return float(sum(self.probabilities))

    def nodes_per_depth(self) -> IntArray:
        """Return how many nodes each depth has; entry 0 is the root.

        Returns
        -------
        numpy.ndarray of int, shape (longest_path + 1,)
            Counts that add to `num_draft_tokens`, [tokens].

        Examples
        --------
        >>> best_tree([0.6, 0.2, 0.1], 5).nodes_per_depth().tolist()
        [1, 2, 1, 1]
        """
        return np.bincount([len(path) for path in self.paths]).astype(np.int64)


def rank_hit_rates(topk_hit_rates: ArrayLike) -> FloatArray:
    r"""Chance that each rank is the right one, from cumulative top-k hit rates.

    .. math:: P_r = h_r - h_{r-1}, \qquad h_0 = 0

    Parameters
    ----------
    topk_hit_rates : array-like, shape (..., ranks)
        :math:`h_r`, chance that the right token is among the r most likely ones, rising, [-].

    Returns
    -------
    numpy.ndarray, same shape
        :math:`P_r`, disjoint chances, [-].

    Raises
    ------
    ParameterError
        If a rate leaves [0, 1] or falls with rank.

    Notes
    -----
    Greedy targets: exactly one token is right, so the ranks exclude each other;
    [cai2024]_ tabulates cumulative rates.

    Examples
    --------
    >>> rank_hit_rates([0.6, 0.8, 0.9]).tolist()
    [0.6, 0.2, 0.1]
    """
    cumulative = unit_interval("topk_hit_rates", topk_hit_rates)
    rates = np.diff(cumulative, axis=-1, prepend=0.0)
    if np.any(rates < 0.0):
        raise ParameterError(
            "topk_hit_rates", "a list that falls", "rising with rank", "give cumulative rates"
        )
    return rates


def tree_from_paths(paths: tuple[RankPath, ...], hit_rates: ArrayLike) -> DraftTree:
    r"""Return the draft tree of given rank paths.

    .. math:: f(v) = \prod_{j \le d} P_j[r_j], \qquad \tau = \sum_{v} f(v)

    Parameters
    ----------
    paths : tuple of rank paths
        Nodes as 0-based ranks per depth; the root () is added where it is left out.
    hit_rates : array-like, shape (ranks,) or (depths, ranks)
        :math:`P_j[r]`, chance that rank r is right at depth j given a right path to it; one row
        for all depths, or one per depth, [-].

    Returns
    -------
    DraftTree
        The nodes with their path probabilities.

    Raises
    ------
    ParameterError
        If rates are unlawful, or a path names a depth or rank without a rate, or lacks a parent.

    Notes
    -----
    Positional assumption [chen2024]_: a rate depends on depth and rank only, not on
    the path, so products overstate deep nodes of independent heads.

    Examples
    --------
    >>> tree_from_paths(((0,), (1,), (0, 0)), [0.6, 0.2]).accept_length
    2.16
    """
    rates = _per_depth(hit_rates)
    nodes = paths if () in paths else ((), *paths)
    depths, ranks = rates.shape
    flat = rates.shape[0] == 1
    for path in nodes:
        if any(rank not in range(ranks) for rank in path) or (not flat and len(path) > depths):
            raise ParameterError("path", path, f"within {depths} depths and {ranks} ranks")
    probabilities = tuple(
        float(np.prod([_rate(rates, depth, rank) for depth, rank in enumerate(path)]))
        for path in nodes
    )
    return DraftTree(paths=nodes, probabilities=probabilities)


def best_tree(
    hit_rates: ArrayLike, num_draft_tokens: int, max_depth: int | None = None
) -> DraftTree:
    r"""Return the tree of a given size with the largest accept length.

    .. math:: T = \text{the } n \text{ nodes with the largest } f(v) = \prod_j P_j[r_j]

    Parameters
    ----------
    hit_rates : array-like, shape (ranks,) or (depths, ranks)
        :math:`P_j[r]`, chance that rank r is right at depth j, [-]. Rows bound the depth.
    num_draft_tokens : int
        :math:`n`, tokens to verify, root included, [tokens].
    max_depth : int, optional
        Longest path allowed, [tokens]. Unbounded when left out.

    Returns
    -------
    DraftTree
        At most n nodes: fewer where depth and ranks hold no more.

    Raises
    ------
    ParameterError
        If rates are unlawful or a size is below its bound.

    Notes
    -----
    A child is never likelier than its parent, so taking the likeliest reachable node each time is
    optimal, depth cap or not; it equals the dynamic programme of [chen2024]_.

    Examples
    --------
    >>> best_tree([0.6, 0.2, 0.1], 5).accept_length
    2.376
    """
    rates = _per_depth(hit_rates)
    wanted = int(whole("num_draft_tokens", num_draft_tokens, 1))
    deepest = rates.shape[0] if rates.shape[0] > 1 else wanted
    if max_depth is not None:
        deepest = min(deepest, int(whole("max_depth", max_depth)))
    heap: list[tuple[float, int, RankPath]] = [(-1.0, 0, ())]
    pushed = 1
    chosen: list[tuple[RankPath, float]] = []
    while heap and len(chosen) < wanted:
        negative, _, path = heapq.heappop(heap)
        chosen.append((path, -negative))
        if len(path) == deepest:
            continue
        for rank in range(rates.shape[1]):
            child = negative * _rate(rates, len(path), rank)
            if child < 0.0:
                heapq.heappush(heap, (child, pushed, (*path, rank)))
                pushed += 1
    return DraftTree(
        paths=tuple(path for path, _ in chosen), probabilities=tuple(f for _, f in chosen)
    )


def beam_tree(hit_rates: ArrayLike, num_steps: int, topk: int, num_draft_tokens: int) -> DraftTree:
    r"""Return the tree that SGLang's draft (EAGLE-2) proposes and verifies.

    Parameters
    ----------
    hit_rates : array-like, shape (ranks,) or (depths, ranks)
        :math:`P_j[r]`, chance that rank r is right at depth j; at least `topk` ranks, [-].
    num_steps : int
        Draft steps, [tokens].
    topk : int
        Branches per step; 1 is a chain, [tokens].
    num_draft_tokens : int
        Tokens to verify, root included, [tokens].

    Returns
    -------
    DraftTree
        The `num_draft_tokens` likeliest of the candidate pool, root included.

    Raises
    ------
    ParameterError
        If the pool is smaller than `num_draft_tokens`, or rates or sizes are unlawful.

    Notes
    -----
    Each step keeps the topk likeliest leaves of the last layer and gives each topk children; the
    best num_draft_tokens - 1 of all candidates are verified [li2024]_. With as many
    tokens as the chain of equal depth has, the tree is the shorter one: trees need
    num_draft_tokens well above num_steps + 1.

    Examples
    --------
    >>> beam_tree([0.6, 0.2, 0.1], num_steps=3, topk=3, num_draft_tokens=5).accept_length
    2.376
    """
    rates = _per_depth(hit_rates)
    steps = int(whole("num_steps", num_steps))
    width = int(whole("topk", topk, 1))
    wanted = int(whole("num_draft_tokens", num_draft_tokens, 1))
    largest = int(candidate_pool_size(steps, width)) + 1
    if wanted > largest:
        raise ParameterError(
            "num_draft_tokens",
            wanted,
            f"at most {largest} at num_steps {steps} and topk {width}",
            "the draft proposes no more candidates",
        )
    if width > rates.shape[1] or (rates.shape[0] > 1 and steps > rates.shape[0]):
        raise ParameterError(
            "hit_rates", rates.shape, f"given for {steps} depths and {width} ranks"
        )
    layer: list[tuple[float, RankPath]] = [(1.0, ())]
    pool: list[tuple[float, RankPath]] = []
    for depth in range(steps):
        children = [
            (f * _rate(rates, depth, rank), (*path, rank))
            for f, path in layer
            for rank in range(width)
        ]
        pool.extend(children)
        layer = sorted(children, key=_likeliest_first)[:width]
    kept = sorted(pool, key=_likeliest_first)[: wanted - 1]
    return DraftTree(
        paths=((), *(path for _, path in kept)), probabilities=(1.0, *(f for f, _ in kept))
    )


def candidate_pool_size(num_steps: ArrayLike, topk: ArrayLike) -> IntArray:
    r"""Draft tokens that a round proposes, before the best are chosen for verification.

    .. math:: \text{topk} + (\text{num\_steps} - 1)\,\text{topk}^2

    Parameters
    ----------
    num_steps : array-like of int
        Draft steps, [tokens].
    topk : array-like of int, broadcast with `num_steps`
        Branches per step, at least 1, [tokens].

    Returns
    -------
    numpy.ndarray of int, broadcast shape
        Candidates, root excluded; num_draft_tokens is at most one more, [tokens].

    Raises
    ------
    ParameterError
        If a number is not whole or below its bound.

    Notes
    -----
    [sgl-project-sglang-24054]_; a chain proposes num_steps tokens.

    Examples
    --------
    >>> candidate_pool_size([5, 5, 0], [1, 8, 4]).tolist()
    [5, 264, 0]
    """
    steps, width = whole("num_steps", num_steps), whole("topk", topk, 1)
    return np.asarray(np.where(steps == 0, 0, width + (steps - 1) * width**2))


def _likeliest_first(candidate: tuple[float, RankPath]) -> tuple[float, int, RankPath]:
    """Sort by falling probability, parents before children among equals."""
    return -candidate[0], len(candidate[1]), candidate[1]


def _per_depth(hit_rates: ArrayLike) -> FloatArray:
    """Return rates of shape (depths, ranks) whose ranks exclude each other."""
    rates = unit_interval("hit_rates", hit_rates)
    if rates.ndim == 1:
        rates = rates[None]
    if rates.ndim != 2 or rates.size == 0:
        raise ParameterError("hit_rates", f"{rates.ndim} dimensions", "(ranks,) or (depths, ranks)")
    total = float(rates.sum(axis=1).max())
    if total > 1.0 + _SUM_SLACK:
        raise ParameterError(
            "sum of hit_rates over ranks",
            f"{total:g}",
            "at most 1",
            "ranks exclude each other; cumulative top-k rates go through rank_hit_rates()",
        )
    return rates


def _rate(rates: FloatArray, depth: int, rank: int) -> float:
    """Return the rate of a rank at a 0-based depth; one row holds for all depths."""
    return float(rates[depth if rates.shape[0] > 1 else 0, rank])
