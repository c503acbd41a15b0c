from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.acceptance import (
    DraftTree,
    beam_tree,
    best_tree,
    candidate_pool_size,
    geometric_accept_length,
    rank_hit_rates,
    tree_from_paths,
)
from specmodel.errors import ParameterError

Rows = list[dict[str, str]]


def best_by_dynamic_programme(rates: tuple[tuple[float, ...], ...], nodes: int) -> float:
    """Largest sum of path probabilities, by splitting nodes among the ranks of each depth."""

    @cache
    def tree(size: int, depth: int) -> float:
        if size == 0:
            return 0.0
        return 1.0 + forest(size - 1, depth, 0)

    @cache
    def forest(size: int, depth: int, rank: int) -> float:
        if size == 0 or depth == len(rates) or rank == len(rates[depth]):
            return 0.0
        return max(
            rates[depth][rank] * tree(mine, depth + 1) + forest(size - mine, depth, rank + 1)
            for mine in range(size + 1)
        )

    return tree(nodes, 0)


def test_published_values(golden: Callable[[str], Rows]) -> None:
    for row in golden("sequoia"):
        rates = [float(rate) for rate in row["hit_rates"].split(";")]
        cap = int(row["max_depth"]) if row["max_depth"] else None
        tree = best_tree(rates, int(row["num_draft_tokens"]), cap)
        assert tree.accept_length == pytest.approx(float(row["accept_length"]), abs=6e-5)


hit_rate_rows = st.lists(
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2).map(
        lambda pair: tuple(sorted((pair[0] / 2, pair[1] / 2), reverse=True))
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(hit_rate_rows, st.integers(1, 9))
def test_best_tree_is_the_dynamic_programme(rates: list[tuple[float, ...]], nodes: int) -> None:
    found = best_tree(rates, nodes).accept_length
    assert found == pytest.approx(best_by_dynamic_programme(tuple(rates), nodes), abs=1e-12)


def test_best_tree_of_published_medusa_heads_is_the_dynamic_programme(
    golden: Callable[[str], Rows],
) -> None:
    for model in ("vicuna-7b", "vicuna-13b", "vicuna-33b"):
        heads: dict[int, list[float]] = {}
        for row in golden("medusa"):
            if row["model"] == model:
                heads.setdefault(int(row["head"]), []).append(float(row["topk_hit_rate"]))
        cumulative = np.array([heads[head] for head in sorted(heads)])
        assert cumulative.shape == (5, 5)
        rates = rank_hit_rates(cumulative)
        assert rates.sum(axis=1) == pytest.approx(cumulative[:, -1])
        oracle = tuple(tuple(row) for row in rates.tolist())
        for nodes in (1, 8, 30, 64):
            tree = best_tree(rates, nodes)
            assert tree.num_draft_tokens == nodes
            assert tree.accept_length == pytest.approx(best_by_dynamic_programme(oracle, nodes))
            assert tree.accept_length <= tree.longest_path + 1


def test_one_rank_is_a_chain() -> None:
    tree = best_tree([0.7], 6)
    assert tree.longest_path == 5
    assert tree.nodes_per_depth().tolist() == [1] * 6
    assert tree.accept_length == pytest.approx(float(geometric_accept_length(0.7, 5)))


def test_root_alone_emits_the_bonus_token() -> None:
    assert best_tree([0.6, 0.2], 1).accept_length == 1.0


def test_given_paths_sum_their_products() -> None:
    tree = tree_from_paths(((0,), (1,), (0, 0), (0, 1)), [[0.6, 0.2], [0.5, 0.3]])
    assert tree.accept_length == pytest.approx(1 + 0.6 + 0.2 + 0.6 * 0.5 + 0.6 * 0.3)
    assert tree.nodes_per_depth().tolist() == [1, 2, 2]


def test_best_tree_equals_its_own_paths() -> None:
    tree = best_tree([0.6, 0.2, 0.1], 12)
    again = tree_from_paths(tree.paths, [0.6, 0.2, 0.1])
    assert again.accept_length == pytest.approx(tree.accept_length)


@given(st.floats(0.0, 0.6), st.floats(0.0, 0.3), st.integers(1, 6), st.integers(1, 2), st.data())
def test_beam_tree_is_lawful(
    first: float, second: float, steps: int, topk: int, data: st.DataObject
) -> None:
    largest = int(candidate_pool_size(steps, topk)) + 1
    tokens = data.draw(st.integers(1, largest))
    tree = beam_tree([first, second], steps, topk, tokens)
    assert tree.num_draft_tokens == tokens
    assert tree.longest_path <= steps
    assert 1.0 <= tree.accept_length <= tree.longest_path + 1
    assert tree.accept_length <= best_tree([first, second], tokens, steps).accept_length + 1e-12


def test_beam_of_one_is_a_chain() -> None:
    tree = beam_tree([0.7, 0.2], num_steps=5, topk=1, num_draft_tokens=6)
    assert tree.accept_length == pytest.approx(float(geometric_accept_length(0.7, 5)))


def test_wide_pool_holds_the_best_small_tree() -> None:
    beam = beam_tree([0.6, 0.2, 0.1], num_steps=3, topk=3, num_draft_tokens=8)
    assert beam.accept_length == pytest.approx(2.716)


def test_tree_with_the_tokens_of_a_chain_is_shorter_when_the_draft_is_good() -> None:
    chain = beam_tree([0.8, 0.05, 0.03], num_steps=5, topk=1, num_draft_tokens=6)
    tree = beam_tree([0.8, 0.05, 0.03], num_steps=5, topk=3, num_draft_tokens=6)
    weak_chain = beam_tree([0.5, 0.2, 0.1], num_steps=5, topk=1, num_draft_tokens=6)
    weak_tree = beam_tree([0.5, 0.2, 0.1], num_steps=5, topk=3, num_draft_tokens=6)
    assert tree.accept_length == pytest.approx(chain.accept_length)
    assert weak_tree.longest_path < weak_chain.longest_path
    assert weak_tree.accept_length > weak_chain.accept_length


def test_pool_size() -> None:
    assert candidate_pool_size([1, 3, 5, 0], [4, 4, 1, 8]).tolist() == [4, 36, 5, 0]


def test_more_tokens_than_candidates_are_refused() -> None:
    with pytest.raises(ParameterError, match="at most 6 at num_steps 5 and topk 1"):
        beam_tree([0.6], 5, 1, 7)


def test_cumulative_rates_passed_as_rank_rates_are_refused() -> None:
    with pytest.raises(ParameterError, match="rank_hit_rates"):
        best_tree([0.6, 0.8, 0.9], 4)
    with pytest.raises(ParameterError, match="rising with rank"):
        rank_hit_rates([0.6, 0.2])


def test_orphans_and_unknown_ranks_are_refused() -> None:
    with pytest.raises(ParameterError, match="parent"):
        tree_from_paths(((0, 0),), [0.6, 0.2])
    with pytest.raises(ParameterError, match="within"):
        tree_from_paths(((2,),), [0.6, 0.2])
    with pytest.raises(ParameterError, match="root"):
        DraftTree(paths=((0,),), probabilities=(0.5,))
    with pytest.raises(ParameterError, match="distinct"):
        DraftTree(paths=((), (0,), (0,)), probabilities=(1.0, 0.5, 0.5))
