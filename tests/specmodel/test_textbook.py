from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.errors import ParameterError
from specmodel.textbook import leviathan_speedup, moesd_speedup, textbook_speedup

Table = list[dict[str, str]]


def test_published_speedups_with_a_draft_cost(cost_table: Callable[[str], Table]) -> None:
    rows = cost_table("leviathan2023")
    assert len(rows) == 12
    for row in rows:
        found = leviathan_speedup(
            float(row["acceptance_rate"]), int(row["num_steps"]), float(row["draft_cost_ratio"])
        )
        assert float(found) == pytest.approx(float(row["speedup_from_formula"]), abs=6e-5)


def test_the_textbook_is_far_off_on_its_own_measurements(
    cost_table: Callable[[str], Table],
) -> None:
    rows = cost_table("leviathan2023")
    formula = np.array([float(row["speedup_from_formula"]) for row in rows])
    measured = np.array([float(row["speedup_measured"]) for row in rows])
    assert np.mean(np.abs(formula / measured - 1)) == pytest.approx(0.177, abs=0.001)


@given(st.floats(0, 1), st.integers(0, 12), st.floats(0, 1))
def test_the_walltime_factor_is_a_simulated_ratio_of_times(
    rate: float, depth: int, ratio: float
) -> None:
    """Tokens of a round by summing over where the first rejection falls."""
    chances = [rate**accepted * (1 - rate) for accepted in range(depth)] + [rate**depth]
    tokens = sum(chance * (accepted + 1) for accepted, chance in enumerate(chances))
    found = float(leviathan_speedup(rate, depth, ratio))
    assert found == pytest.approx(tokens / (depth * ratio + 1), rel=1e-9)


def test_speedup_is_one_without_draft_tokens() -> None:
    assert float(leviathan_speedup(0.8, 0, 0.1)) == 1.0
    assert float(textbook_speedup(1.0, 0, 0.1)) == 1.0
    assert float(moesd_speedup(1.0, 0, 0.1, 1.0)) == 1.0


def test_an_existing_gain_needs_acceptance_above_the_draft_cost() -> None:
    depths = np.arange(1, 30)
    assert np.max(leviathan_speedup(0.31, depths, 0.30)) > 1
    assert np.max(leviathan_speedup(0.29, depths, 0.30)) < 1


def test_the_batched_form_is_the_textbook_where_verification_is_free() -> None:
    free = moesd_speedup(2.75, 3, 0.05, 1.0)
    assert float(free) == pytest.approx(float(textbook_speedup(2.75, 3, 0.05)), rel=1e-14)


def test_the_batched_form_is_a_ratio_of_times() -> None:
    """Draft step 2 ms, target step 20 ms, verification 30 ms, sampling 1 ms, 4 drafts, 3.2 tokens."""
    per_token_s = (4 * 2 + 30 + 1) / 3.2
    found = moesd_speedup(3.2, 4, 2 / 20, 20 / 30, 1 / 20)
    assert float(found) == pytest.approx(20 / per_token_s, rel=1e-12)


def test_scalars_and_arrays_agree() -> None:
    rates, depths, ratios = [0.5, 0.8], [2, 6], [0.02, 0.1]
    together = leviathan_speedup(rates, depths, ratios)
    alone = [float(leviathan_speedup(*each)) for each in zip(rates, depths, ratios, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-14)
    assert textbook_speedup(np.ones((2, 1)), [[1, 2, 3]], 0.1).shape == (2, 3)
    assert moesd_speedup([1.5, 2.0], 3, 0.1, [[0.5], [0.8]]).shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.9, 3.0, 0.1), "accept_length"),
        ((np.nan, 3.0, 0.1), "accept_length"),
        ((2.0, -1.0, 0.1), "num_steps"),
        ((2.0, 3.0, -0.1), "draft_cost_ratio"),
        ((2.0, 3.0, np.inf), "draft_cost_ratio"),
    ],
)
def test_impossible_arguments_are_refused(arguments: tuple[float, float, float], name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        textbook_speedup(*arguments)
    assert refused.value.name == name


def test_a_target_efficiency_must_be_positive() -> None:
    with pytest.raises(ParameterError, match="target_efficiency must be finite and above 0, got 0"):
        moesd_speedup(2.0, 3, 0.1, 0.0)
