"""Intervals of counted accuracies against the exact binomial and against simulation."""

import numpy as np
import pytest
from scipy.stats import binom

from calibration.readers.acceptance_intervals import (
    accept_length_log_sd,
    binomial_interval,
    conditional_intervals,
    full_intervals,
)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.742, 0.95])
@pytest.mark.parametrize("num_trials", [30, 200, 3000])
def test_the_interval_covers_nine_times_in_ten(share: float, num_trials: int) -> None:
    counts = np.arange(num_trials + 1)
    covered = np.array(
        [
            low <= share <= high
            for low, high in (binomial_interval(n / num_trials, num_trials) for n in counts)
        ]
    )
    coverage = float(np.sum(binom.pmf(counts, num_trials, share)[covered]))
    assert coverage == pytest.approx(0.9, abs=0.055)


def test_nothing_counted_tells_nothing() -> None:
    assert binomial_interval(0.5, 0) == (0.0, 1.0)


def test_the_ends_of_the_scale_are_never_passed() -> None:
    assert binomial_interval(0.0, 50)[0] == 0.0
    assert binomial_interval(1.0, 50)[1] == 1.0
    assert binomial_interval(1.0, 50)[0] < 1.0


def test_a_conditional_accuracy_has_only_the_rounds_that_got_there() -> None:
    full = (0.8, 0.4, 0.1)
    conditional = conditional_intervals(full, 1000)
    assert [value for value, _ in conditional] == pytest.approx([0.8, 0.5, 0.25])
    assert conditional[1][1] == binomial_interval(0.5, 800)
    assert conditional[2][1] == binomial_interval(0.25, 400)
    assert full_intervals(full, 1000)[2] == binomial_interval(0.1, 1000)


def test_a_depth_that_no_round_reached_is_unknown() -> None:
    assert conditional_intervals((0.5, 0.0, 0.0), 10)[2] == (0.0, (0.0, 1.0))


def test_the_spread_of_an_accept_length_is_that_of_simulated_runs() -> None:
    conditional = np.array([0.78, 0.68, 0.6])
    full = np.cumprod(conditional)
    rounds, runs = 500, 4000
    random = np.random.default_rng(7)
    accepted = np.cumprod(random.random((runs, rounds, 3)) < conditional, axis=2).sum(axis=2)
    lengths = 1 + accepted.mean(axis=1)
    expected = float(np.std(np.log(lengths)))
    assert accept_length_log_sd(full.tolist(), rounds) == pytest.approx(expected, rel=0.05)
