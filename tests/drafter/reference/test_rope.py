from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from drafter.reference.rope import RotaryTable, rotate_halves, rotate_neighbours

FREQUENCIES = torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)

both_orders = pytest.mark.parametrize("rotate", [rotate_halves, rotate_neighbours])
Rotate = Callable[[Tensor, RotaryTable], Tensor]


def rows(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, 6, dtype=torch.float64, generator=generator)


@both_orders
def test_a_rotation_keeps_norms_and_times_the_magnitude_scales_them(rotate: Rotate) -> None:
    x = rows(4, 0)
    table = RotaryTable.at(torch.tensor([0, 1, 7, 5000]), FREQUENCIES, magnitude=1.25)
    torch.testing.assert_close(rotate(x, table).norm(dim=-1), 1.25 * x.norm(dim=-1))


@both_orders
def test_position_zero_changes_nothing(rotate: Rotate) -> None:
    x = rows(2, 1)
    assert torch.equal(rotate(x, RotaryTable.at(torch.zeros(2), FREQUENCIES)), x)


@both_orders
def test_products_of_queries_and_keys_depend_on_the_distance_only(rotate: Rotate) -> None:
    query, key = rows(1, 2), rows(1, 3)
    products = [
        (
            rotate(query, RotaryTable.at(torch.tensor([start + 9]), FREQUENCIES))
            * rotate(key, RotaryTable.at(torch.tensor([start]), FREQUENCIES))
        ).sum(dim=-1)
        for start in (0, 1, 400)
    ]
    torch.testing.assert_close(products[1], products[0])
    torch.testing.assert_close(products[2], products[0])
    assert not torch.allclose(products[0], (query * key).sum(dim=-1))


@both_orders
def test_turning_twice_is_turning_by_the_sum(rotate: Rotate) -> None:
    x = rows(1, 4)
    tables = [RotaryTable.at(torch.tensor([step]), FREQUENCIES) for step in (3, 5, 8)]
    torch.testing.assert_close(rotate(rotate(x, tables[0]), tables[1]), rotate(x, tables[2]))


def test_a_pair_turns_as_a_complex_number_does() -> None:
    x, positions = rows(3, 5), torch.tensor([2, 11, 300])
    turns = torch.polar(
        torch.ones(3, 1, 3, dtype=torch.float64), positions[:, None, None] * FREQUENCIES
    )
    table = RotaryTable.at(positions, FREQUENCIES)
    halves = torch.complex(x[..., :3], x[..., 3:]) * turns
    expected = torch.cat([halves.real, halves.imag], dim=-1)
    torch.testing.assert_close(rotate_halves(x, table), expected)
    neighbours = torch.view_as_complex(x.unflatten(-1, (3, 2))) * turns
    expected = torch.view_as_real(neighbours).flatten(start_dim=-2)
    torch.testing.assert_close(rotate_neighbours(x, table), expected)


def test_the_two_orders_are_one_up_to_a_permutation() -> None:
    x, table = rows(2, 6), RotaryTable.at(torch.tensor([4, 9]), FREQUENCIES)
    order = torch.tensor([0, 2, 4, 1, 3, 5])  # firsts of all pairs, then seconds
    torch.testing.assert_close(
        rotate_halves(x[..., order], table), rotate_neighbours(x, table)[..., order]
    )


def test_a_table_in_single_precision_is_the_rounded_table() -> None:
    positions = torch.tensor([123_456])
    exact = RotaryTable.at(positions, FREQUENCIES)
    rounded = RotaryTable.at(positions, FREQUENCIES, dtype=torch.float32)
    assert torch.equal(rounded.cos, exact.cos.to(torch.float32))
