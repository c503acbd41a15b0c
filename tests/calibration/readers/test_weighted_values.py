"""Medians in bounded memory: exact while they can be, near where they cannot."""

import numpy as np
import pytest

from calibration.readers.sglang_decode_pool import WeightedValues

CHANCE = np.random.default_rng(3)


def added(
    values: np.ndarray, cells: np.ndarray, pieces: int, most: int = 1 << 19
) -> WeightedValues:
    table = WeightedValues(most)
    for part in np.array_split(np.arange(len(values)), pieces):
        table.add(cells[part], values[part])
    return table


@pytest.mark.parametrize("size", [1, 2, 3, 10, 4001, 20_000])
def test_medians_of_small_cells_are_exact(size: int) -> None:
    values = CHANCE.lognormal(3, 1, size)
    cells = CHANCE.integers(0, 3, size)
    table = added(values, cells, pieces=min(size, 7))
    for chosen in ([0], [1, 2], [0, 1, 2]):
        inside = values[np.isin(cells, chosen)]
        assert table.count(chosen) == len(inside)
        if len(inside):
            assert table.median(chosen) == pytest.approx(np.median(inside), rel=1e-10)


def test_a_median_of_many_lines_is_within_its_rounding() -> None:
    values = CHANCE.lognormal(3, 0.03, 400_000)
    table = added(values, np.zeros(len(values), dtype=int), pieces=9)
    assert table.count([0]) == len(values)
    assert len(table) < 50_000
    assert table.median([0]) == pytest.approx(np.median(values), rel=8e-6)


def test_numbers_with_few_digits_stay_exact_however_many_there_are() -> None:
    values = np.round(CHANCE.normal(2.5, 0.2, 300_000), 2)
    table = added(values, np.zeros(len(values), dtype=int), pieces=5)
    assert table.median([0]) == np.median(values)


def test_memory_is_bounded_whatever_comes() -> None:
    values = CHANCE.lognormal(3, 2, 200_000)
    cells = CHANCE.integers(0, 50, len(values))
    table = added(values, cells, pieces=20, most=20_000)
    assert len(table) <= 20_000
    for cell in range(0, 50, 7):
        assert table.median([cell]) == pytest.approx(np.median(values[cells == cell]), rel=0.1)


def test_a_quarter_of_the_values_is_below_the_lower_quartile() -> None:
    table = added(np.arange(1.0, 10.0), np.zeros(9, dtype=int), pieces=2)
    assert table.lower_quartile([0]) == 3.0
    assert table.lower_quartile([1]) is table.median([1]) is None


def test_extreme_values_are_kept_in_order() -> None:
    table = added(np.array([1e-30, 1.0, 1e30]), np.zeros(3, dtype=int), pieces=1)
    assert table.median([0]) == 1.0
