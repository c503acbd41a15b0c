from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.cost import expected_experts, expert_loads, round_cost, round_terms
from specmodel.errors import ParameterError

Table = list[dict[str, str]]


def test_published_numbers_of_experts(cost_table: Callable[[str], Table]) -> None:
    rows = [row for row in cost_table("moesd2025") if row["quantity"] == "active_experts"]
    assert len(rows) == 8
    for row in rows:
        found = expected_experts(
            int(row["num_tokens"]), int(row["num_experts"]), int(row["experts_per_token"])
        )
        assert float(found) == pytest.approx(float(row["value"]), abs=6e-5)


def test_published_thresholds_of_full_activation(cost_table: Callable[[str], Table]) -> None:
    rows = [row for row in cost_table("moesd2025") if row["quantity"] == "full_activation_tokens"]
    assert len(rows) == 3
    for row in rows:
        experts, per_token = int(row["num_experts"]), int(row["experts_per_token"])
        tokens, share = int(row["value"]), float(row["activated_share"])
        below, reached = expected_experts([tokens - 1, tokens], experts, per_token) / experts
        assert below < share <= reached


@pytest.mark.parametrize(("tokens", "experts", "per_token"), [(4, 16, 2), (8, 64, 6), (12, 32, 1)])
def test_expected_experts_is_the_mean_of_uniform_routing(
    tokens: int, experts: int, per_token: int
) -> None:
    rng = np.random.default_rng(3)
    trials = 4000
    touched = np.zeros((trials, experts), dtype=bool)
    for _ in range(tokens):
        chosen = np.argsort(rng.random((trials, experts)), axis=1)[:, :per_token]
        np.put_along_axis(touched, chosen, values=True, axis=1)
    counts = touched.sum(axis=1)
    found = float(expected_experts(tokens, experts, per_token))
    assert found == pytest.approx(counts.mean(), abs=4 * counts.std() / np.sqrt(trials))


def test_expected_experts_limits() -> None:
    assert float(expected_experts(0, 64, 4)) == 0.0
    assert float(expected_experts(1, 64, 4)) == pytest.approx(4.0, rel=1e-12)
    assert float(expected_experts(10_000, 64, 4)) == pytest.approx(64.0, rel=1e-12)
    assert float(expected_experts(3, 8, 8)) == pytest.approx(8.0, rel=1e-12)


@given(st.integers(1, 200), st.integers(1, 512), st.data())
def test_experts_rise_with_tokens_at_a_falling_rate(
    tokens: int, experts: int, data: st.DataObject
) -> None:
    per_token = data.draw(st.integers(1, experts))
    counts = expected_experts(np.arange(tokens, tokens + 3), experts, per_token)
    steps = np.diff(counts)
    assert np.all(steps >= 0)
    assert steps[1] <= steps[0] + 1e-9
    assert np.all(counts <= experts * (1 + 1e-12))


def test_loads_are_zero_for_dense_and_unknown_models_and_one_for_one_token() -> None:
    loads = expert_loads([1, 8, 8, 1], [0, np.nan, 0, 128], [0, np.nan, np.nan, 8])
    np.testing.assert_allclose(loads, [0, 0, 0, 1], rtol=1e-12)


def test_scalars_and_arrays_agree() -> None:
    tokens, experts = [1, 8, 33], [16, 128, 512]
    together = expected_experts(tokens, experts, 8)
    one_by_one = [float(expected_experts(t, e, 8)) for t, e in zip(tokens, experts, strict=True)]
    assert together.tolist() == one_by_one


def test_growth_is_the_ratio_of_two_step_times() -> None:
    ratio, before, after = 0.2, 3.0, 7.5
    terms = replace(
        round_terms(num_steps=[3]), loads=np.array([before]), loads_added=np.array([after - before])
    )
    constants = np.array([1.0, 0.0, 0.0, ratio, 0.0, 0.0, 1.0, 1.0, 1.0])
    found = float(round_cost(constants, terms)[0])
    assert found == pytest.approx((1 + ratio * after) / (1 + ratio * before), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1, 8, 2), "num_tokens"),
        ((1, 0, 1), "num_experts"),
        ((1, 8, 9), "experts_per_token"),
        ((1, 8, 0), "experts_per_token"),
    ],
)
def test_impossible_counts_are_refused(arguments: tuple[int, int, int], name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        expected_experts(*arguments)
    assert refused.value.name == name
