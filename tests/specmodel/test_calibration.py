"""What a calibration says of its constants."""

from dataclasses import replace

import numpy as np
import pytest

from specmodel import Baseline, Baselines, Calibration, load_prior
from specmodel.constants import NAMES, to_internal


@pytest.fixture
def unfitted() -> Calibration:
    return Calibration.from_prior(load_prior(experts_known=True))


def at_step_of(calibration: Calibration, step_time_s: float) -> Calibration:
    """The same calibration with one measured baseline."""
    entry = Baseline(
        workload="",
        batch_size=1.0,
        context_tokens=np.nan,
        tokens_per_s=1.0 / step_time_s,
        step_time_s=step_time_s,
    )
    return replace(calibration, baselines=Baselines(entries=(entry,)))


def test_without_points_nothing_is_learned(unfitted: Calibration) -> None:
    for one in unfitted.constants:
        assert one.learned == 0.0
        assert one.prior_dominated
        assert one.low < one.value < one.high
        assert one.value == pytest.approx(one.prior_value)


def test_a_draft_step_is_told_in_steps_of_the_measured_load(unfitted: Calibration) -> None:
    """A launch of fixed seconds is a larger share of a faster step."""
    values = [
        {one.name: one.value for one in at_step_of(unfitted, step_s).constants}["step_cost"]
        for step_s in (0.020, 0.010, 0.005)
    ]
    assert values[0] < values[1] < values[2]
    raw = unfitted.posterior.constants[NAMES.index("step_cost")]
    assert values[1] == pytest.approx(raw)
    exponent = unfitted.posterior.constants[NAMES.index("draft_time_exponent")]
    assert values[2] == pytest.approx(raw * 2.0**exponent)


def test_the_interval_at_a_load_is_that_of_draws(unfitted: Calibration) -> None:
    """Monte-Carlo: constants drawn on the internal scale, then taken to a step of 5 ms."""
    prior = unfitted.prior
    rng = np.random.default_rng(1)
    drawn = rng.multivariate_normal(prior.mean, prior.covariance, 200_000)
    step = np.exp(drawn[:, NAMES.index("step_cost")])
    exponent = 1.0 / (1.0 + np.exp(-drawn[:, NAMES.index("draft_time_exponent")]))
    low, high = np.quantile(step * 2.0**exponent, [0.05, 0.95])
    found = {one.name: one for one in at_step_of(unfitted, 0.005).constants}["step_cost"]
    assert found.low == pytest.approx(low, rel=0.03)
    assert found.high == pytest.approx(high, rel=0.03)


def test_learning_is_judged_against_the_widened_prior(unfitted: Calibration) -> None:
    posterior = unfitted.posterior
    wide = replace(posterior, prior_covariance=4.0 * posterior.prior_covariance)
    for one in replace(unfitted, posterior=wide).constants:
        assert one.learned == pytest.approx(0.5)


def test_values_survive_the_internal_scale(unfitted: Calibration) -> None:
    natural = np.array([one.value for one in unfitted.constants])
    np.testing.assert_allclose(to_internal(natural), unfitted.posterior.mean, rtol=1e-9)
