from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specmodel.constants import NUM_CONSTANTS
from specmodel.cost import BatchCurve, RoundTerms, round_cost, round_terms
from specmodel.errors import ParameterError
from specmodel.speedup import (
    accept_length_for_speedup,
    elasticities,
    log_speedup_gradient,
    non_decode_share_from_baselines,
    round_cost_from_throughput,
    speedup,
)

Array = NDArray[np.float64]

accept_lengths = st.floats(1.0, 10.0)
round_costs = st.floats(0.8, 8.0)
shares = st.floats(0.0, 0.95)


def test_speedup_is_one_where_speculation_changes_nothing() -> None:
    constants = np.array([1.0, 0.07, 0.1, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5])
    cost = round_cost(constants, round_terms(num_steps=0))
    assert speedup(1.0, cost, 0.0).tolist() == [1.0]
    assert speedup(1.0, cost, 0.3).tolist() == [1.0]


def test_without_other_time_the_speedup_is_accept_length_over_round_cost() -> None:
    assert float(speedup(2.75, 2.2965)) == pytest.approx(2.75 / 2.2965, rel=1e-14)


def test_the_non_decode_share_bounds_the_speedup() -> None:
    assert float(speedup(1e12, 1.0, 0.2)) == pytest.approx(5.0, rel=1e-9)


def test_speedup_is_the_ratio_of_two_wall_times() -> None:
    """A request of 600 tokens: 1.2 s of prefill, 10 ms a step, rounds of 17 ms with 2.5 tokens."""
    other_s, step_s, round_s, tokens, accept = 1.2, 0.010, 0.017, 600, 2.5
    without_s = other_s + tokens * step_s
    with_s = other_s + tokens / accept * round_s
    found = speedup(accept, round_s / step_s, other_s / without_s)
    assert float(found) == pytest.approx(without_s / with_s, rel=1e-12)


@given(accept_lengths, round_costs, shares)
def test_speedup_rises_with_accept_length_and_falls_with_cost(
    accept: float, cost: float, share: float
) -> None:
    base = float(speedup(accept, cost, share))
    assert float(speedup(accept * 1.01, cost, share)) > base
    assert float(speedup(accept, cost * 1.01, share)) < base
    assert base > 0


@given(accept_lengths, round_costs, shares)
def test_other_time_pulls_the_speedup_towards_one(accept: float, cost: float, share: float) -> None:
    pure, diluted = float(speedup(accept, cost)), float(speedup(accept, cost, share))
    assert abs(np.log(diluted)) <= abs(np.log(pure)) + 1e-12


@given(round_costs, shares)
def test_the_break_even_accept_length_is_the_round_cost(cost: float, share: float) -> None:
    assert float(accept_length_for_speedup(1.0, cost, share)) == pytest.approx(cost, rel=1e-12)
    assert float(speedup(cost, cost, share)) == pytest.approx(1.0, rel=1e-12)


@given(accept_lengths, round_costs, shares)
def test_accept_length_for_a_speedup_is_the_inverse(
    accept: float, cost: float, share: float
) -> None:
    value = speedup(accept, cost, share)
    again = accept_length_for_speedup(value, cost, share)
    assert float(again) == pytest.approx(accept, rel=1e-6)


def test_a_speedup_beyond_the_bound_needs_infinite_accept_length() -> None:
    assert np.isinf(accept_length_for_speedup([2.0, 2.5], 1.5, 0.5)).tolist() == [True, True]


@given(accept_lengths, round_costs, shares)
def test_a_throughput_gives_back_its_round_cost(accept: float, cost: float, share: float) -> None:
    rate = 90.0 * speedup(accept, cost, share)
    found = round_cost_from_throughput(accept, rate, 90.0, share)
    assert float(found) == pytest.approx(cost, rel=1e-9)


@given(accept_lengths, round_costs, st.floats(0.01, 0.9))
def test_elasticities_are_numerical_derivatives(accept: float, cost: float, share: float) -> None:
    found = elasticities(accept, cost, share)
    step = 1e-5
    up, down = np.exp(step), np.exp(-step)

    def log_slope(above: Array, below: Array) -> float:
        return float((np.log(above) - np.log(below)) / (2 * step))

    expected = {
        "accept_length": log_slope(
            speedup(accept * up, cost, share), speedup(accept * down, cost, share)
        ),
        "round_cost": log_slope(
            speedup(accept, cost * up, share), speedup(accept, cost * down, share)
        ),
        "non_decode_share": log_slope(
            speedup(accept, cost, share * up), speedup(accept, cost, share * down)
        ),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-5, abs=1e-7)


def test_scalars_and_arrays_agree() -> None:
    accept, cost, share = [1.5, 2.5], [1.2, 2.0], [0.0, 0.2]
    for function in (speedup, accept_length_for_speedup):
        together = function(accept, cost, share)
        alone = [float(function(*each)) for each in zip(accept, cost, share, strict=True)]
        assert together.tolist() == alone
    grid = speedup(np.array(accept)[:, None], np.array(cost)[None, :])
    assert grid.shape == (2, 2)


def test_a_slower_baseline_is_time_outside_decoding() -> None:
    """Equal decode time per token; one workload adds a quarter of the other's wall time."""
    fast_s, other_s = 10.0, 2.5
    deficit = 1 - fast_s / (fast_s + other_s)
    share = non_decode_share_from_baselines(0.0, 1.0, deficit)
    assert float(share) == pytest.approx(other_s / (fast_s + other_s))
    assert float(non_decode_share_from_baselines(0.1, 0.0, 0.3)) == pytest.approx(0.1)


def curve() -> BatchCurve:
    batch, context = (grid.ravel() for grid in np.meshgrid([1, 4, 16, 64], [0, 16384]))
    return BatchCurve.from_points(batch, context, 0.007 + 4e-4 * batch + 3e-9 * batch * context)


GRADIENT_CASES = {
    "chains": round_terms(num_steps=[0, 1, 3, 7]),
    "trees": round_terms(num_steps=[2, 3, 5, 8], topk=4, num_draft_tokens=32),
    "mixtures": round_terms(
        num_steps=[1, 3, 5, 7], batch_size=8, num_experts=128, experts_per_token=8
    ),
    "batch curve": round_terms(
        num_steps=[1, 3, 5, 3],
        topk=[1, 1, 4, 1],
        batch_size=[1, 8, 4, 64],
        context_tokens=[0, 8192, 16384, 1024],
        curve=curve(),
    ),
}


@pytest.mark.parametrize("terms", GRADIENT_CASES.values(), ids=GRADIENT_CASES.keys())
@pytest.mark.parametrize("measured", [np.nan, 0.12], ids=["modelled share", "measured share"])
def test_the_gradient_of_the_log_speedup_is_the_finite_difference(
    terms: RoundTerms, measured: float, typical: Array
) -> None:
    accept = np.array([1.3, 1.9, 2.6, 3.4])
    deficit = np.array([0.0, 0.1, 0.3, 0.0])
    share = np.full(4, measured)

    def log_speedup(constants: Array, length: Array = accept) -> Array:
        return log_speedup_gradient(constants, terms, length, deficit, share)[0]

    found = log_speedup_gradient(typical, terms, accept, deficit, share)
    value, gradient, by_accept, used, *_ = found
    np.testing.assert_allclose(
        value, np.log(speedup(accept, round_cost(typical, terms), used)), rtol=1e-12
    )
    for index in range(NUM_CONSTANTS):
        step = 1e-6 * typical[index]
        above, below = typical.copy(), typical.copy()
        above[index] += step
        below[index] -= step
        slope = (log_speedup(above) - log_speedup(below)) / (2 * step)
        np.testing.assert_allclose(gradient[:, index], slope, rtol=1e-5, atol=1e-7)
    up, down = accept * np.exp(1e-6), accept * np.exp(-1e-6)
    slope = (log_speedup(typical, up) - log_speedup(typical, down)) / 2e-6
    np.testing.assert_allclose(by_accept, slope, rtol=1e-6)


def test_a_measured_share_replaces_the_modelled_one(
    typical: Array, make_terms: Callable[[int], RoundTerms]
) -> None:
    accept, deficit = np.full(2, 2.5), np.full(2, 0.2)
    measured = np.array([0.3, np.nan])
    used = log_speedup_gradient(typical, make_terms(2), accept, deficit, measured).non_decode_share
    assert used[0] == 0.3
    assert used[1] == pytest.approx(typical[4] + typical[5] * (1 - typical[4]) * 0.2)


@pytest.fixture
def make_terms() -> Callable[[int], RoundTerms]:
    return lambda count: round_terms(num_steps=np.full(count, 3))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 1.0, 0.0), "accept_length"),
        ((2.0, -1.0, 0.0), "round_cost"),
        ((2.0, np.nan, 0.0), "round_cost"),
        ((2.0, 1.0, 1.0), "non_decode_share"),
        ((2.0, 1.0, -0.1), "non_decode_share"),
    ],
)
def test_impossible_arguments_are_refused(arguments: tuple[float, float, float], name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        speedup(*arguments)
    assert refused.value.name == name


def test_a_refusal_names_the_value_that_is_wrong() -> None:
    with pytest.raises(ParameterError, match=r"got -0\.1"):
        speedup(2.0, 1.5, [0.5, -0.1])
