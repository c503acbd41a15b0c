import math

import pytest
import torch
from torch import Tensor

from drafter.reference.layer import attend
from specmodel.errors import ParameterError


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_visible(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool)


def test_attention_is_the_weighted_mean_of_its_definition() -> None:
    queries, keys, values = rows(3, 4, 2), rows(5, 2, 2, seed=1), rows(5, 2, 3, seed=2)
    visible = torch.rand(3, 5, generator=torch.Generator().manual_seed(3)) < 0.6
    visible[:, 0] = True
    found = attend(queries, keys, values, visible=visible, scale=0.7)
    for row in range(3):
        for head in range(4):
            seen = [index for index in range(5) if visible[row, index]]
            weights = [
                math.exp(0.7 * float(queries[row, head] @ keys[index, head // 2])) for index in seen
            ]
            for column in range(3):
                values_seen = [float(values[index, head // 2, column]) for index in seen]
                total = sum(w * v for w, v in zip(weights, values_seen, strict=True))
                assert float(found[row, head, column]) == pytest.approx(total / sum(weights))


def test_a_query_that_sees_one_row_gets_its_value() -> None:
    values = rows(4, 1, 3)
    found = attend(rows(4, 1, 2), rows(4, 1, 2), values, visible=torch.eye(4).bool(), scale=9.0)
    torch.testing.assert_close(found, values)


def test_weights_sum_to_one_so_equal_values_come_back() -> None:
    values = rows(1, 2, 3).expand(6, 2, 3)
    found = attend(rows(2, 2, 4), rows(6, 2, 4), values, visible=all_visible(2, 6), scale=3.0)
    torch.testing.assert_close(found, values[:2])


def test_a_huge_scale_picks_the_best_key_and_zero_scale_the_mean() -> None:
    queries, keys, values = rows(1, 1, 4), rows(6, 1, 4, seed=1), rows(6, 1, 3, seed=2)
    sharp = attend(queries, keys, values, visible=all_visible(1, 6), scale=1e6)
    nearest = int((keys[:, 0] @ queries[0, 0]).argmax())
    torch.testing.assert_close(sharp[0, 0], values[nearest, 0])
    flat = attend(queries, keys, values, visible=all_visible(1, 6), scale=0.0)
    torch.testing.assert_close(flat[0, 0], values[:, 0].mean(dim=0))


def test_grouped_heads_equal_as_many_key_heads_with_copies() -> None:
    queries, keys, values = rows(3, 6, 4), rows(5, 2, 4, seed=1), rows(5, 2, 4, seed=2)
    copied = [each[:, [0, 0, 0, 1, 1, 1]] for each in (keys, values)]
    torch.testing.assert_close(
        attend(queries, keys, values, visible=all_visible(3, 5), scale=0.5),
        attend(queries, *copied, visible=all_visible(3, 5), scale=0.5),
    )


def test_it_agrees_with_the_attention_of_torch() -> None:
    queries, keys, values = rows(4, 6, 8), rows(4, 2, 8, seed=1), rows(4, 2, 8, seed=2)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(0, 1),
        keys.repeat_interleave(3, dim=1).transpose(0, 1),
        values.repeat_interleave(3, dim=1).transpose(0, 1),
        is_causal=True,
    )
    ours = attend(queries, keys, values, visible=torch.ones(4, 4).tril().bool(), scale=8**-0.5)
    torch.testing.assert_close(ours, theirs.transpose(0, 1))


def test_what_is_not_visible_has_no_say() -> None:
    queries, keys, values = rows(1, 1, 4), rows(3, 1, 4, seed=1), rows(3, 1, 4, seed=2)
    visible = torch.tensor([[True, False, True]])
    found = attend(queries, keys, values, visible=visible, scale=1.0)
    keys[1], values[1] = 1e9, -1e9
    assert torch.equal(attend(queries, keys, values, visible=visible, scale=1.0), found)


def test_a_query_that_sees_nothing_is_refused() -> None:
    visible = torch.tensor([[True], [False]])
    with pytest.raises(ParameterError, match="got none for row 1"):
        attend(rows(2, 1, 4), rows(1, 1, 4), rows(1, 1, 4), visible=visible, scale=1.0)
