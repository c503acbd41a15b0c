"""Medians, differences, slopes and spreads, against numbers worked out by hand."""

import math

import pytest

from drafter.timing.stopwatch import (
    Samples,
    difference,
    fitted_line,
    relative_difference,
    step_difference,
)


def steady(time_s: float, count: int = 3) -> Samples:
    return Samples(first=(time_s,) * count, second=(time_s,) * count)


def test_one_sample_that_was_held_up_moves_neither_median_nor_spread() -> None:
    samples = Samples(first=(1.0, 1.0, 50.0), second=(1.0, 1.0, 1.0))
    assert samples.median_s == 1.0
    assert relative_difference(*samples.run_medians_s) == 0.0
    assert samples.num_samples == 6


def test_the_spread_is_the_difference_of_two_runs_over_their_mean() -> None:
    assert relative_difference(9.0, 11.0) == pytest.approx(0.2)
    assert relative_difference(0.0, 0.0) == 0.0
    assert relative_difference(-1.0, 1.0) == 2.0


def test_the_scatter_sees_what_medians_hide() -> None:
    calm, wild = Samples(first=(1.0,) * 5, second=(1.0,) * 5), (1.0, 1.0, 2.0, 2.0, 2.0)
    assert calm.scatter == 0.0
    assert Samples(first=wild, second=wild).scatter == pytest.approx(0.5)


def test_flush_and_launch_cancel_in_a_difference() -> None:
    flush, both = steady(120e-6), steady(1120e-6)
    found = difference(both, flush)
    assert found.time_s == pytest.approx(1e-3)
    assert (found.spread, found.num_samples) == (0.0, 6)


def test_a_difference_spreads_by_more_than_what_it_is_taken_of() -> None:
    flush = Samples(first=(1.0,), second=(1.1,))
    both = Samples(first=(2.1,), second=(2.0,))
    # the runs give 1.1 and 0.9
    assert difference(both, flush).spread == pytest.approx(0.2)


def test_the_slope_over_depths_is_the_time_of_a_step_whatever_comes_before() -> None:
    def drafts(launch_s: float) -> dict[int, Samples]:
        return {depth: steady(launch_s + 230e-6 + 200e-6 * (depth - 1)) for depth in (1, 3, 5, 7)}

    for launch_s in (0.0, 1e-3):
        found = step_difference(drafts(launch_s))
        assert found.time_s == pytest.approx(200e-6)
        assert found.spread == pytest.approx(0.0, abs=1e-9)


def test_a_line_is_fitted_by_least_squares() -> None:
    # normal equations by hand: x = 0, 1, 2, y = 1, 2, 4; slope 3/2, start 5/6
    slope_s, bend = fitted_line({1: 1.0, 2: 2.0, 3: 4.0})
    assert slope_s == pytest.approx(1.5)
    # the middle one is 1/3 below the line
    assert bend == pytest.approx((1 / 3) / 1.5)


def test_a_line_that_falls_has_no_slope_to_measure_a_bend_in() -> None:
    assert fitted_line({1: 2.0, 3: 1.0})[1] == math.inf
