import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.acceptance import (
    carry_accept_length,
    full_accuracy_from_accept_length,
    geometric_accept_length,
)
from specmodel.acceptance.geometric import geometric_acceptance_rate
from specmodel.errors import ParameterError


def test_reference_number_carried_from_depth_five_to_ten() -> None:
    carried = carry_accept_length(2.75, 5, 10)
    assert 2.80 <= float(carried.value) <= 2.95
    assert float(carried.low) < float(carried.value) < float(carried.high)


def test_measured_depth_is_the_number_itself() -> None:
    carried = carry_accept_length([2.1, 2.75], 5, 5)
    for values in (carried.value, carried.low, carried.high):
        assert values.tolist() == [2.1, 2.75]
    assert carried.sd.tolist() == [0.0, 0.0]


def test_bounds_are_carried_to_bounds() -> None:
    assert carry_accept_length([1.0, 6.0], 5, 10).value.tolist() == pytest.approx([1.0, 11.0])
    assert float(carry_accept_length(2.75, 5, 0).value) == 1.0


def test_usual_curve_is_below_constant_hazard_upwards_and_above_downwards() -> None:
    rate = geometric_acceptance_rate(2.75, 5)
    assert float(carry_accept_length(2.75, 5, 10).value) < float(geometric_accept_length(rate, 10))
    assert float(carry_accept_length(2.75, 5, 3).value) > float(geometric_accept_length(rate, 3))


def test_spread_grows_with_distance() -> None:
    carried = carry_accept_length(2.75, 5, [5, 6, 8, 12])
    assert np.all(np.diff(carried.sd) > 0.0)


def test_columns_equal_one_by_one() -> None:
    generator = np.random.default_rng(4)
    before, after = generator.integers(1, 9, (2, 60))
    lengths = 1.0 + generator.random(60) * before
    column = carry_accept_length(lengths, before, after)
    for i in range(60):
        single = carry_accept_length(lengths[i], before[i], after[i])
        assert column.value[i] == float(single.value)
        assert column.high[i] == float(single.high)


def test_shapes_broadcast() -> None:
    carried = carry_accept_length([[2.0], [2.5]], 3, [3, 5, 7])
    assert carried.value.shape == (2, 3)


possible = st.tuples(st.integers(1, 10), st.integers(0, 12), st.floats(0.0, 1.0))


@settings(deadline=None)
@given(possible)
def test_carried_lengths_are_possible_and_ordered(case: tuple[int, int, float]) -> None:
    before, after, share = case
    length = 1.0 + share * before
    carried = carry_accept_length(length, before, after)
    low, value, high = float(carried.low), float(carried.value), float(carried.high)
    assert 1.0 <= low <= value <= high <= after + 1.0 + 1e-9
    if after >= before:
        assert low >= length - 1e-9
    else:
        assert high <= length + 1e-9


@settings(deadline=None)
@given(possible, st.floats(0.0, 1.0))
def test_longer_stays_longer(case: tuple[int, int, float], more: float) -> None:
    before, after, share = case
    length = 1.0 + share * before
    longer = length + more * (before + 1.0 - length)
    first = float(carry_accept_length(length, before, after).value)
    assert float(carry_accept_length(longer, before, after).value) >= first - 1e-9


@settings(deadline=None)
@given(st.integers(1, 10), st.integers(1, 12), st.floats(0.05, 0.9))
def test_there_and_back_is_the_same(before: int, after: int, share: float) -> None:
    length = 1.0 + share * before
    there = carry_accept_length(length, before, after).value
    assert float(carry_accept_length(there, after, before).value) == pytest.approx(length, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 10), st.integers(1, 12), st.floats(0.0, 1.0))
def test_assumed_list_agrees_with_its_number(before: int, depth: int, share: float) -> None:
    length = 1.0 + share * before
    full = full_accuracy_from_accept_length(length, before, depth)
    expected = float(carry_accept_length(length, before, depth).value)
    assert full.num_steps == depth
    assert full.accept_length() == pytest.approx(expected, abs=1e-6)


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ParameterError, match="between 1 and 4"):
        carry_accept_length(4.5, 3, 5)
    with pytest.raises(ParameterError, match="accept_depth"):
        carry_accept_length(1.0, 0, 5)
