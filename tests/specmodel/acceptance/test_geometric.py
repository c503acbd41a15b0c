from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import (
    geometric_accept_length,
    geometric_accept_length_limit,
    geometric_acceptance_rate,
    operations_factor,
)
from specmodel.errors import ParameterError

Rows = list[dict[str, str]]


def series_sum(rate: float, depth: int) -> float:
    return sum(rate**i for i in range(depth + 1))


def test_published_values(golden: Callable[[str], Rows]) -> None:
    for row in golden("leviathan2023"):
        rate, depth = float(row["acceptance_rate"]), int(row["num_steps"])
        if row["quantity"] == "accept_length":
            found = float(geometric_accept_length(rate, depth))
        else:
            found = float(operations_factor(rate, depth, 0.0))
        assert found == pytest.approx(float(row["value"]), abs=6e-4)


def test_limits() -> None:
    assert float(geometric_accept_length(0.0, 7)) == 1.0
    assert float(geometric_accept_length(1.0, 7)) == 8.0
    assert float(geometric_accept_length(0.7, 0)) == 1.0
    assert float(geometric_acceptance_rate(1.0, 5)) == 0.0
    assert float(geometric_acceptance_rate(6.0, 5)) == 1.0


@given(st.floats(0.0, 1.0), st.integers(0, 40))
def test_closed_form_is_the_series_sum(rate: float, depth: int) -> None:
    found = float(geometric_accept_length(rate, depth))
    assert found == pytest.approx(series_sum(rate, depth), rel=1e-12)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
def test_closed_form_is_exact_near_one(gap: float) -> None:
    rate = 1.0 - gap
    assert float(geometric_accept_length(rate, 30)) == pytest.approx(
        series_sum(rate, 30), rel=1e-13
    )


@given(st.floats(0.0, 1.0), st.integers(1, 40))
def test_inverse_round_trip(rate: float, depth: int) -> None:
    length = geometric_accept_length(rate, depth)
    again = geometric_accept_length(geometric_acceptance_rate(length, depth), depth)
    assert float(again) == pytest.approx(float(length), rel=1e-12)


def test_inverse_at_depth_one_and_two_has_a_closed_form() -> None:
    lengths = np.linspace(1.0, 2.0, 11)
    assert geometric_acceptance_rate(lengths, 1) == pytest.approx(lengths - 1.0, abs=1e-12)
    quadratic = (np.sqrt(4.0 * np.linspace(1.0, 3.0, 11) - 3.0) - 1.0) / 2.0
    found = geometric_acceptance_rate(np.linspace(1.0, 3.0, 11), 2)
    assert found == pytest.approx(quadratic, abs=1e-12)


def test_scalars_and_arrays_agree() -> None:
    rates, depths = np.array([0.1, 0.5, 0.9]), np.array([[2], [7]])
    table = geometric_accept_length(rates, depths)
    assert table.shape == (2, 3)
    assert table[1, 2] == pytest.approx(series_sum(0.9, 7))
    inverse = geometric_acceptance_rate(table, depths)
    assert inverse == pytest.approx(np.broadcast_to(rates, (2, 3)))


@given(st.floats(0.0, 0.99), st.integers(0, 30))
def test_endless_chain_bounds_every_depth(rate: float, depth: int) -> None:
    assert float(geometric_accept_length(rate, depth)) <= float(geometric_accept_length_limit(rate))


def test_endless_chain_is_the_limit() -> None:
    deep = float(geometric_accept_length(0.8, 400))
    assert deep == pytest.approx(float(geometric_accept_length_limit(0.8)))


def test_operations_without_speculation_are_those_of_the_target() -> None:
    assert float(operations_factor(0.8, 0, 0.3)) == 1.0


@pytest.mark.parametrize("rate", [-0.1, 1.1, 74.2, float("nan")])
def test_unlawful_rates_are_refused(rate: float) -> None:
    with pytest.raises(ParameterError, match="acceptance_rate"):
        geometric_accept_length(rate, 3)


def test_impossible_accept_lengths_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"at most num_steps \+ 1 = 4"):
        geometric_acceptance_rate([2.0, 4.2], 3)
    with pytest.raises(ParameterError, match="at least 1"):
        geometric_acceptance_rate(0.9, 3)
    with pytest.raises(ParameterError, match="below 1"):
        geometric_accept_length_limit(1.0)
    with pytest.raises(ParameterError, match="whole"):
        geometric_accept_length(0.5, 2.5)
