from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import (
    beta_accept_length,
    beta_conditional_accuracy,
    geometric_accept_length,
    heterogeneous_full_accuracy,
    throughput_accept_length,
)
from specmodel.errors import ParameterError

Rows = list[dict[str, str]]


def test_published_values(golden: Callable[[str], Rows]) -> None:
    for row in golden("beta_geometric"):
        found = beta_accept_length(
            float(row["mean_acceptance_rate"]), float(row["correlation"]), int(row["num_steps"])
        )
        assert float(found) == pytest.approx(float(row["accept_length"]), abs=6e-4)


@pytest.mark.parametrize(("mean", "correlation"), [(0.7, 0.1), (0.4, 0.3), (0.85, 0.02)])
def test_moments_match_drawn_requests(mean: float, correlation: float) -> None:
    total = 1.0 / correlation - 1.0
    generator = np.random.default_rng(7)
    rates = generator.beta(mean * total, (1.0 - mean) * total, size=400_000)
    drawn = 1.0 + sum(np.mean(rates**i) for i in range(1, 8))
    assert float(beta_accept_length(mean, correlation, 7)) == pytest.approx(drawn, rel=2e-3)


@given(st.floats(0.0, 1.0), st.integers(0, 20))
def test_equal_requests_are_the_geometric_chain(mean: float, depth: int) -> None:
    found = float(beta_accept_length(mean, 0.0, depth))
    assert found == pytest.approx(float(geometric_accept_length(mean, depth)), rel=1e-9)


def test_all_or_nothing_requests_are_linear_in_depth() -> None:
    assert beta_accept_length([0.0, 0.3, 1.0], 1.0, 4).tolist() == pytest.approx([1.0, 2.2, 5.0])


@given(st.floats(0.01, 0.99), st.floats(0.0, 0.9), st.floats(0.0, 0.1), st.integers(2, 10))
def test_accept_length_rises_with_correlation(
    mean: float, correlation: float, more: float, depth: int
) -> None:
    low = float(beta_accept_length(mean, correlation, depth))
    assert float(beta_accept_length(mean, correlation + more, depth)) >= low - 1e-12


def test_conditionals_rise_towards_the_easy_requests() -> None:
    conditional = beta_conditional_accuracy(0.6, 0.2, np.arange(1, 200))
    assert np.all(np.diff(conditional) > 0.0)
    assert conditional[-1] > 0.98


def test_common_decay_factors_out() -> None:
    decay = np.array([1.0, 0.9, 0.8])
    plain = heterogeneous_full_accuracy(0.7, 0.1, np.ones(3))
    decayed = heterogeneous_full_accuracy(0.7, 0.1, decay)
    assert decayed.values == pytest.approx(plain.values * np.cumprod(decay))


def test_published_domain_means(golden: Callable[[str], Rows]) -> None:
    lengths = [float(row["accept_length"]) for row in golden("minimax_m3")]
    assert np.mean(lengths) == pytest.approx(2.803, abs=5e-4)
    assert throughput_accept_length(lengths) == pytest.approx(2.748, abs=5e-4)


def test_two_and_four_average_to_eight_thirds() -> None:
    assert throughput_accept_length([2.0, 4.0]) == pytest.approx(8.0 / 3.0)


def test_output_lengths_weigh_tokens_over_rounds() -> None:
    rounds = 100.0 / 2.0 + 300.0 / 4.0
    assert throughput_accept_length([2.0, 4.0], [100, 300]) == pytest.approx(400.0 / rounds)


@given(st.lists(st.floats(1.0, 8.0), min_size=1, max_size=20))
def test_throughput_mean_is_never_above_the_plain_mean(lengths: list[float]) -> None:
    found = throughput_accept_length(lengths)
    assert min(lengths) - 1e-9 <= found <= np.mean(lengths) + 1e-9


def test_unlawful_input_is_refused() -> None:
    with pytest.raises(ParameterError):
        throughput_accept_length([])
    with pytest.raises(ParameterError):
        throughput_accept_length([2.0], [0.0])
    with pytest.raises(ParameterError):
        beta_accept_length(0.7, 1.2, 3)
