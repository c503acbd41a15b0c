import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.errors import ParameterError
from specmodel.optimum import break_even_accept_length, decision_regret
from specmodel.speedup import speedup

costs, shares, effects = st.floats(0.8, 6.0), st.floats(0.0, 0.6), st.floats(-0.3, 0.3)


@given(costs, shares, effects)
def test_at_the_break_even_a_run_is_as_fast_as_its_baseline(
    cost: float, share: float, effect: float
) -> None:
    accept = float(break_even_accept_length(cost, non_decode_share=share, run_effect=effect))
    assert float(speedup(accept, cost, share)) * np.exp(effect) == pytest.approx(1.0, rel=1e-9)


@given(costs, shares)
def test_without_a_run_effect_the_break_even_is_the_round_cost(cost: float, share: float) -> None:
    found = break_even_accept_length(cost, non_decode_share=share)
    assert float(found) == pytest.approx(cost, rel=1e-12)


def test_a_run_that_loses_more_than_decoding_can_gain_never_breaks_even() -> None:
    assert break_even_accept_length(1.5, non_decode_share=0.95, run_effect=-0.1) == np.inf


def test_break_even_of_scalars_and_arrays_agree() -> None:
    grid = break_even_accept_length(
        np.array([1.2, 2.3])[:, None], run_effect=np.array([-0.1, 0.0, 0.1])[None, :]
    )
    assert grid.shape == (2, 3)
    assert float(grid[1, 0]) == float(break_even_accept_length(2.3, run_effect=-0.1))


def test_the_right_choice_loses_nothing_however_wrong_the_level() -> None:
    measured = np.array([1.1, 1.5, 1.4])
    assert float(decision_regret(measured, measured)) == 0.0
    assert float(decision_regret(measured, 3 * measured**2)) == 0.0


def test_the_wrong_choice_loses_what_the_best_had_more() -> None:
    assert float(decision_regret([1.2, 1.5], [2.0, 1.9])) == pytest.approx(0.2)


@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)), min_size=1, max_size=8))
def test_a_regret_is_a_share(pairs: list[tuple[float, float]]) -> None:
    measured, predicted = np.array(pairs).T
    assert 0 <= float(decision_regret(measured, predicted)) < 1


def test_regrets_of_many_decisions_at_once() -> None:
    measured = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert decision_regret(measured, [1.0, 1.1]).tolist() == [0.0, 0.5]


@pytest.mark.parametrize(
    ("measured", "predicted", "name"),
    [
        ([0.0, 1.0], [1.0, 1.0], "measured_speedup"),
        ([1.0, 1.0], [np.nan, 1.0], "predicted_speedup"),
        ([], [], "measured_speedup"),
    ],
)
def test_impossible_speedups_are_refused(
    measured: list[float], predicted: list[float], name: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        decision_regret(measured, predicted)
    assert refused.value.name == name
