from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specmodel.errors import ParameterError
from specmodel.optimum import best_num_steps, depth_speedups, marginal_gain

Array = NDArray[np.float64]
Table = list[dict[str, str]]

accuracies = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=10)


def chain(conditional: list[float]) -> Array:
    """Accept length at depths 1, 2, ... of a chain."""
    return np.asarray(1 + np.cumsum(np.cumprod(conditional)))


@pytest.mark.parametrize(("method", "best"), [("EAGLE-1", 3), ("EAGLE-3", 4)])
def test_the_published_best_depths(
    cost_table: Callable[[str], Table], method: str, best: int
) -> None:
    table = [row for row in cost_table("vllm20780") if row["method"] == method]
    depth, accept, cost, speedups = (
        np.array([float(row[name]) for row in table])
        for name in ("num_steps", "accept_length", "round_cost", "speedup")
    )
    np.testing.assert_allclose(depth_speedups(depth, accept, cost), speedups, atol=6e-4)
    assert int(best_num_steps(depth, accept, cost)) == best
    gains = marginal_gain(depth, accept, cost)
    assert int(depth[np.argmax(gains <= 0)]) == best


@given(accuracies, st.floats(1.0, 2.0), st.floats(0.01, 0.5), st.floats(0.0, 0.8))
def test_the_sign_of_a_gain_is_the_marginal_rule(
    conditional: list[float], fixed: float, per_step: float, share: float
) -> None:
    """Deepen while the token that a step adds per its cost is above the running average."""
    accept = chain(conditional)
    depth = np.arange(1, accept.size + 1)
    cost = fixed + per_step * depth
    full_accuracy = np.cumprod(conditional)
    gains = marginal_gain(depth, accept, cost, share)
    for index in range(accept.size - 1):
        margin = full_accuracy[index + 1] / per_step - accept[index] / cost[index]
        if abs(margin) > 1e-9:
            assert (gains[index] > 0) == (margin > 0)


@given(accuracies, st.floats(1.0, 2.0), st.floats(0.01, 0.5))
def test_the_first_gain_that_is_not_positive_ends_at_the_best_depth(
    conditional: list[float], fixed: float, per_step: float
) -> None:
    accept = chain(conditional)
    depth = np.arange(1, accept.size + 1)
    cost = fixed + per_step * depth
    stops = np.flatnonzero(marginal_gain(depth, accept, cost) <= 0)
    by_rule = depth[stops[0]] if stops.size else depth[-1]
    found = int(best_num_steps(depth, accept, cost))
    value = depth_speedups(depth, accept, cost)
    assert value[found - 1] == pytest.approx(value[by_rule - 1], rel=1e-12)


def test_a_cost_with_steps_may_hide_the_best_depth_from_the_marginal_rule() -> None:
    depth, accept = np.arange(1, 6), np.array([1.8, 2.4, 2.9, 3.3, 3.6])
    cost = np.array(
        [1.2, 1.7, 1.75, 1.8, 1.85]
    )  # a graph is padded to the same size from depth 2 on
    assert marginal_gain(depth, accept, cost)[0] < 0
    assert int(best_num_steps(depth, accept, cost)) == 5


def test_no_speculation_is_exactly_one_whatever_stands_there() -> None:
    value = depth_speedups([0, 1], [1.0, 1.7], [1.3, 1.4], 0.2)
    assert float(value[0]) == 1.0
    assert int(best_num_steps([0, 1, 2], [1, 1.2, 1.3], [1, 1.3, 1.5])) == 0


def test_of_equal_depths_the_smaller_is_best() -> None:
    assert int(best_num_steps([4, 2], [3.0, 1.5], [2.0, 1.0])) == 2
    assert int(best_num_steps([0, 3], [1.0, 2.0], [1.0, 2.0])) == 0


def test_other_time_does_not_move_the_best_depth() -> None:
    depth, accept, cost = [1, 2, 3, 4], [1.7, 2.15, 2.4, 2.5], [1.2, 1.33, 1.46, 1.59]
    found = best_num_steps(depth, accept, cost, np.array([[0.0], [0.3], [0.7]]))
    assert np.unique(found).size == 1


def test_many_lines_at_once_are_the_same_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    depth = np.arange(1, 7)
    accept = 1 + np.cumsum(rng.uniform(0.1, 0.5, (4, 6)), axis=1)
    cost = 1.2 + 0.1 * depth
    together = best_num_steps(depth, accept, cost)
    assert together.shape == (4,)
    for row in range(4):
        assert together[row] == best_num_steps(depth, accept[row], cost)
        np.testing.assert_array_equal(
            marginal_gain(depth, accept, cost)[row], marginal_gain(depth, accept[row], cost)
        )


def test_impossible_depths_are_refused() -> None:
    with pytest.raises(ParameterError, match="num_steps must be at least 0"):
        depth_speedups([-1, 2], [1.5, 2.0], [1.2, 1.3])
    with pytest.raises(ParameterError, match="at least one depth"):
        best_num_steps([], [], [])
