import pytest
import torch

from drafter.reference.layer import visible_by_position, visible_in_tree


@pytest.mark.parametrize("window", [None, 1, 2, 5])
def test_a_key_is_seen_when_it_is_not_later_and_within_the_window(window: int | None) -> None:
    queries, keys = [3, 4, 9], [0, 1, 2, 3, 4, 7, 9]
    found = visible_by_position(torch.tensor(queries), torch.tensor(keys), sliding_window=window)
    reach = 10**9 if window is None else window
    expected = [
        [key in range(max(query - reach + 1, 0), query + 1) for key in keys] for query in queries
    ]
    assert found.tolist() == expected


def test_in_a_tree_only_ancestors_are_seen_and_all_rows_before_it() -> None:
    ancestors = torch.tensor([[True, False, True, False], [False, True, False, True]])
    positions = torch.tensor([5, 6, 7, 7, 8, 8])
    found = visible_in_tree(torch.tensor([8, 8]), positions, ancestors)
    assert found.int().tolist() == [[1, 1, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1]]


def test_the_window_also_cuts_the_tree() -> None:
    ancestors = torch.tensor([[True, False, True, False]])
    positions = torch.tensor([5, 6, 7, 7, 8, 8])
    found = visible_in_tree(torch.tensor([8]), positions, ancestors, sliding_window=1)
    assert found.int().tolist() == [[0, 0, 0, 0, 1, 0]]
