import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodel.acceptance import (
    TAILS,
    BetaGeometricTail,
    ConditionalAccuracy,
    ConstantTail,
    FullAccuracy,
    carry_accept_length,
    extend,
    tail_spread,
    tail_spread_from_accept_lengths,
)
from specmodel.errors import ParameterError

REFERENCE = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])


def test_reference_list_at_depth_ten() -> None:
    spread = tail_spread(REFERENCE, 10)
    assert 2.82 <= spread.value[0] <= 2.92
    assert 2.82 <= extend(REFERENCE, 10).accept_length() <= 2.92


def test_hand_estimates_of_3_1_and_3_3_are_outside_the_spread() -> None:
    spread = tail_spread(REFERENCE, [10, 16])
    assert spread.high[0] < 3.1
    assert spread.high[1] < 3.3


def test_held_conditionals_bound_the_families() -> None:
    low = 2.749 + 0.097 * sum(0.50**j for j in range(1, 6))
    high = 2.749 + 0.097 * sum(0.68**j for j in range(1, 6))
    by_family = [values[0] for values in tail_spread(REFERENCE, 10).by_family.values()]
    assert low - 0.02 <= min(by_family) <= max(by_family) <= high


def test_measured_depths_are_exact_and_have_no_spread() -> None:
    spread = tail_spread(REFERENCE, [0, 1, 3, 5])
    expected = [1.0, 1.742, 2.502, 2.749]
    for values in (spread.value, spread.low, spread.high):
        assert values == pytest.approx(expected)
    assert spread.sd == pytest.approx([0.0] * 4, abs=1e-12)


def test_measured_prefix_is_kept_as_it_is() -> None:
    longer = extend(REFERENCE, 12)
    assert longer.values[:5].tolist() == REFERENCE.values.tolist()
    assert extend(REFERENCE, 3).values.tolist() == REFERENCE.values[:3].tolist()


def test_families_that_were_wrong_on_chains_count_little() -> None:
    weights = tail_spread(REFERENCE, 10).weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["constant"] + weights["beta-geometric"] < 0.05


def test_beta_geometric_gains_weight_where_conditionals_rise() -> None:
    ngram_on_edits = FullAccuracy([0.81, 0.74, 0.70, 0.68, 0.66])
    prior = BetaGeometricTail.prior.weight
    assert tail_spread(ngram_on_edits, 10).weights["beta-geometric"] > 2.0 * prior


def test_spread_grows_with_depth() -> None:
    spread = tail_spread(REFERENCE, [6, 8, 10, 16])
    assert np.all(np.diff(spread.sd) > 0.0)


def test_every_further_depth_is_worth_less() -> None:
    steps = np.diff(tail_spread(REFERENCE, np.arange(5, 17)).value)
    assert np.all(steps > 0.0)
    assert np.all(np.diff(steps) < 0.0)


def test_single_number_is_wider_than_the_list_and_agrees_with_the_carry() -> None:
    from_list = tail_spread(REFERENCE, 10)
    from_number = tail_spread_from_accept_lengths([5], [2.75], 10)
    carried = carry_accept_length(2.75, 5, 10)
    assert from_number.sd[0] > 2.0 * from_list.sd[0]
    assert from_number.value[0] == pytest.approx(float(carried.value), abs=0.02)
    assert from_number.low[0] == pytest.approx(float(carried.low), abs=0.03)
    assert from_number.high[0] == pytest.approx(float(carried.high), abs=0.05)


def test_one_family_has_the_spread_of_its_own_parameters() -> None:
    spread = tail_spread(REFERENCE, 10, families=[ConstantTail()])
    assert spread.weights == {"constant": 1.0}
    assert spread.low[0] < spread.value[0] < spread.high[0]


def test_dead_drafter_stays_dead() -> None:
    spread = tail_spread(FullAccuracy([0.2, 0.0]), [2, 9])
    assert spread.high.tolist() == pytest.approx([1.2, 1.2])
    assert extend(FullAccuracy([0.2, 0.0]), 4).values.tolist() == [0.2, 0.0, 0.0, 0.0]


lists = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(lists, st.integers(0, 12))
def test_spread_holds_the_value_and_stays_possible(values: list[float], depth: int) -> None:
    full = ConditionalAccuracy(values).to_full()
    spread = tail_spread(full, depth)
    assert 1.0 <= spread.low[0] <= spread.value[0] <= spread.high[0] <= depth + 1.0 + 1e-9


@settings(max_examples=60, deadline=None)
@given(lists, st.integers(1, 14), st.sampled_from(list(TAILS)))
def test_extended_lists_are_lawful(values: list[float], depth: int, name: str) -> None:
    longer = extend(ConditionalAccuracy(values).to_full(), depth, TAILS[name])
    assert longer.num_steps == depth
    assert 1.0 <= longer.accept_length() <= depth + 1.0


def test_no_family_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least one tail family"):
        tail_spread(REFERENCE, 10, families=[])
    with pytest.raises(ParameterError):
        extend(REFERENCE, 0)
