"""Histograms of accepted drafts, against the rounds that they count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.acceptance_counts import MOST_STEPS, AcceptHistogram, pooled
from specmodel.errors import ParameterError

ROUNDS = st.lists(st.integers(0, 7), min_size=1, max_size=60)


def counted(rounds: list[int], length: int = 8) -> AcceptHistogram:
    return AcceptHistogram(np.bincount(rounds, minlength=length).tolist())


@given(rounds=ROUNDS)
def test_every_figure_is_a_mean_over_the_rounds(rounds: list[int]) -> None:
    histogram = counted(rounds)
    assert histogram.accept_length == pytest.approx(1 + np.mean(rounds), rel=1e-12)
    shares = [np.mean([r >= depth for r in rounds]) for depth in range(1, 8)]
    assert histogram.full_accuracy == pytest.approx(shares, rel=1e-12)
    assert 1 + sum(histogram.full_accuracy) == pytest.approx(histogram.accept_length, rel=1e-12)


@given(rounds=ROUNDS)
def test_the_product_of_conditional_accuracies_is_the_full_one(rounds: list[int]) -> None:
    histogram = counted(rounds)
    products = np.cumprod(histogram.conditional_accuracy)
    assert products == pytest.approx(histogram.full_accuracy[: len(products)], rel=1e-9)


@given(first=ROUNDS, second=ROUNDS)
def test_pooling_is_counting_together(first: list[int], second: list[int]) -> None:
    together = counted(first + second)
    assert counted(first) + counted(second) == together
    assert pooled([counted(first), counted(second)]) == together


def test_a_shorter_histogram_is_filled_with_zeros() -> None:
    assert (AcceptHistogram((5,)) + AcceptHistogram((1, 2, 3))).counts == (6, 2, 3)
    assert pooled([]) is None


def test_conditional_accuracy_ends_where_no_round_arrived() -> None:
    assert AcceptHistogram((1, 1, 0, 0)).conditional_accuracy == (0.5, 0.0)
    assert AcceptHistogram((4, 0, 0)).full_accuracy == (0.0, 0.0)


@pytest.mark.parametrize(
    "counts",
    [*((), (-1, 2), (1.5,), (math.nan,), (math.inf,), (1e30,), (True, 2)), (0,) * (MOST_STEPS + 2)],
)
def test_what_counts_no_rounds_is_refused(counts: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError):
        AcceptHistogram(counts)


def test_without_rounds_there_is_no_accept_length() -> None:
    histogram = AcceptHistogram((0, 0))
    assert histogram.num_rounds == 0
    with pytest.raises(ParameterError, match="1 or more"):
        _ = histogram.accept_length
