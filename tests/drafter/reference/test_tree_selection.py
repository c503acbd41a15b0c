import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafter.reference.drafts import NO_PARENT, Candidates, ancestor_mask, best
from specmodel.errors import ParameterError

coarse = st.integers(0, 3).map(float)  # few values, so that many are equal


@given(st.lists(coarse, min_size=1, max_size=12), st.data())
def test_the_best_are_those_of_a_sort_by_value_and_then_index(
    values: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(values)))
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    assert best(torch.tensor(values), count).tolist() == expected


@pytest.mark.parametrize("count", [-1, 4])
def test_more_of_the_best_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(ParameterError, match=f"count must be from 0 to 3.*got {count}"):
        best(torch.zeros(3), count)


@given(st.lists(st.integers(0, 100), max_size=12))
def test_a_node_sees_what_a_walk_to_the_root_meets(draws: list[int]) -> None:
    parents = [NO_PARENT] + [draw % (index + 1) for index, draw in enumerate(draws)]
    mask = ancestor_mask(torch.tensor(parents))
    for node in range(len(parents)):
        met, walker = set(), node
        while walker != NO_PARENT:
            met.add(walker)
            walker = parents[walker]
        assert set(mask[node].nonzero()[:, 0].tolist()) == met


def grown(tables: list[list[list[float]]], topk: int) -> Candidates:
    """Candidates of a tree whose log-probabilities are given level by level."""
    candidates, going_on = Candidates.root(), torch.tensor([0])
    for level, table in enumerate(tables):
        if level:
            going_on = candidates.frontier(topk)
        rows = -torch.tensor(table, dtype=torch.float64)[: len(going_on)]
        candidates = candidates.with_level(going_on, rows, topk)
    return candidates


def levels_of(topk: int, width: int, depth: int) -> st.SearchStrategy[list[list[list[float]]]]:
    row = st.lists(coarse, min_size=width, max_size=width)
    table = st.lists(row, min_size=topk, max_size=topk)
    return st.lists(table, min_size=depth, max_size=depth)


@given(levels_of(topk=2, width=4, depth=3), st.integers(1, 11))
def test_no_node_is_selected_without_its_parent_even_among_equals(
    tables: list[list[list[float]]], num_draft_tokens: int
) -> None:
    tree = grown(tables, topk=2).selected(num_draft_tokens)
    assert len(tree.scores) == num_draft_tokens
    assert tree.parents[0] == NO_PARENT
    assert tree.draft_ids[0] == -1
    for node in range(1, num_draft_tokens):
        parent = int(tree.parents[node])
        assert 0 <= parent < node
        assert int(tree.levels[node]) == int(tree.levels[parent]) + 1
        assert float(tree.scores[node]) <= float(tree.scores[parent])


@given(levels_of(topk=3, width=4, depth=3), st.integers(1, 22))
def test_selection_is_that_of_a_tree_written_out_by_hand(
    tables: list[list[list[float]]], num_draft_tokens: int
) -> None:
    """The same rules over Python lists of paths."""
    nodes: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    going_on: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for table in tables:
        level = []
        for row, (score, path) in zip(table, going_on, strict=False):
            ids = sorted(range(4), key=lambda each, row=row: (row[each], each))[:3]  # type: ignore[misc]
            level += [(score - row[each], (*path, each)) for each in ids]
        nodes += level
        order = sorted(range(len(level)), key=lambda index, level=level: (-level[index][0], index))  # type: ignore[misc]
        going_on = [level[index] for index in order[:3]]
    order = sorted(range(len(nodes)), key=lambda index: (-nodes[index][0], index))
    chosen = [nodes[index] for index in sorted(order[:num_draft_tokens])]

    tree = grown(tables, topk=3).selected(num_draft_tokens)
    paths: list[tuple[int, ...]] = []
    for node in range(num_draft_tokens):
        parent = int(tree.parents[node])
        paths.append(() if parent < 0 else (*paths[parent], int(tree.draft_ids[node])))
    assert paths == [path for _, path in chosen]
    assert tree.scores.tolist() == [score for score, _ in chosen]


@pytest.mark.parametrize("count", [0, 12])
def test_more_nodes_than_there_are_or_none_are_refused(count: int) -> None:
    candidates = grown([[[0.0, 1.0, 2.0]] * 2] * 3, topk=2)
    with pytest.raises(ParameterError, match=f"num_draft_tokens must be from 1 to 11.*got {count}"):
        candidates.selected(count)
