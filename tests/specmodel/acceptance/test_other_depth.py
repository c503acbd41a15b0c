import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.acceptance import (
    ConditionalAccuracy,
    FullAccuracy,
    carry_accept_length,
    full_accuracy_from_accept_length,
    tail_spread,
)
from specmodel.acceptance.tails import TAILS
from specmodel.errors import ParameterError
from tests.specmodel.acceptance.depth_sweep import (
    geometric_accept_length,
    geometric_acceptance_rate,
)

REFERENCE = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])


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


def test_reference_list_at_depth_ten() -> None:
    spread = tail_spread(REFERENCE, 10)
    assert 2.82 <= spread.value[0] <= 2.92


def test_hand_estimates_of_3_1_and_3_3_are_outside_the_spread() -> None:
    spread = tail_spread(REFERENCE, [10, 16])
    assert spread.high[0] < 3.1
    assert spread.high[1] < 3.3


def test_held_conditionals_bound_the_families() -> None:
    low = 2.749 + 0.097 * sum(0.50**j for j in range(1, 6))
    high = 2.749 + 0.097 * sum(0.68**j for j in range(1, 6))
    by_family = [tail_spread(REFERENCE, 10, [family]).value[0] for family in TAILS.values()]
    assert low - 0.02 <= min(by_family) <= max(by_family) <= high


def test_measured_depths_are_exact_and_have_no_spread() -> None:
    spread = tail_spread(REFERENCE, [0, 1, 3, 5])
    expected = [1.0, 1.742, 2.502, 2.749]
    for values in (spread.value, spread.low, spread.high):
        assert values == pytest.approx(expected)
    assert spread.sd == pytest.approx([0.0] * 4, abs=1e-12)


def test_families_that_were_wrong_on_chains_count_little() -> None:
    weights = tail_spread(REFERENCE, 10).weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["constant"] + weights["beta-geometric"] < 0.05


def test_families_that_only_fall_lose_their_weight_where_conditionals_rise() -> None:
    spread = tail_spread(FullAccuracy([0.81, 0.74, 0.70, 0.68, 0.66]), 10)  # n-gram on edits
    falling = {"geometric-decay", "power-law", "constant"}
    assert sum(spread.weights[name] for name in falling) < 0.001
    assert float(spread.value[0]) > 4.59 + 0.66 * sum(0.94**depth for depth in range(1, 6))


def test_spread_grows_with_depth() -> None:
    spread = tail_spread(REFERENCE, [6, 8, 10, 16])
    assert np.all(np.diff(spread.sd) > 0.0)


def test_every_further_depth_is_worth_less() -> None:
    steps = np.diff(tail_spread(REFERENCE, np.arange(5, 17)).value)
    assert np.all(steps > 0.0)
    assert np.all(np.diff(steps) < 0.0)


def test_one_family_has_the_spread_of_its_own_parameters() -> None:
    spread = tail_spread(REFERENCE, 10, families=[TAILS["constant"]])
    assert spread.weights == {"constant": 1.0}
    assert spread.low[0] < spread.value[0] < spread.high[0]


def test_dead_drafter_stays_dead() -> None:
    spread = tail_spread(FullAccuracy([0.2, 0.0]), [2, 9])
    assert spread.high.tolist() == pytest.approx([1.2, 1.2])


lists = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(lists, st.integers(0, 12))
def test_spread_holds_the_value_and_stays_possible(values: list[float], depth: int) -> None:
    full = ConditionalAccuracy(values).to_full()
    spread = tail_spread(full, depth)
    assert 1.0 <= spread.low[0] <= spread.value[0] <= spread.high[0] <= depth + 1.0 + 1e-9


def test_single_number_is_wider_than_the_list() -> None:
    assert carry_accept_length(2.75, 5, 10).sd > 2.0 * tail_spread(REFERENCE, 10).sd[0]
