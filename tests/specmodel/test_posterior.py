from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_internal, to_natural
from specmodel.cost import BatchCurve, round_cost, round_terms
from specmodel.effects import NEW
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Noise, Prior
from specmodel.speedup import log_speedup_gradient, speedup

Array = NDArray[np.float64]

NOISE = Noise(row_log_sd=0.02, configuration_log_sd=0.03, run_log_sd=0.04, degrees_of_freedom=9.0)
CONFIGURATIONS, RUNS = 3, 2
SIZE = NUM_CONSTANTS + CONFIGURATIONS + RUNS


def curve() -> BatchCurve:
    return BatchCurve.from_points([1, 8, 64], [0, 0, 0], [0.008, 0.011, 0.03])


@pytest.fixture
def posterior(typical: Array) -> Posterior:
    """Constants and effects that are correlated with each other."""
    mixing = np.random.default_rng(5).normal(size=(SIZE, SIZE))
    effects = np.array([0.03, -0.02, 0.01, 0.05, -0.03])
    return Posterior(
        mean=np.concatenate([to_internal(typical), effects]),
        covariance=1e-5 * (mixing @ mixing.T + np.eye(SIZE)),
        num_configurations=CONFIGURATIONS,
        noise=NOISE,
        noise_scale=1.3,
        effect_scale=1.3,
        degrees_of_freedom=9.0,
        prior_covariance=np.eye(NUM_CONSTANTS),
    )


@pytest.fixture
def rows(make_rows: Callable[..., Rows]) -> Rows:
    return make_rows(
        terms=round_terms(
            num_steps=[1, 3, 5, 3, 7, 2],
            topk=[1, 1, 4, 1, 1, 1],
            batch_size=[1, 8, 8, 3, 8, 1],
            curve=curve(),
        ),
        accept_length=[1.6, 2.4, 2.9, 2.2, 3.4, 2.0],
        baseline_deficit=[0, 0.1, 0.2, 0, 0.3, 0],
        measured_share=[np.nan, np.nan, np.nan, 0.2, np.nan, np.nan],
        configuration=[0, 1, 2, NEW, 1, NEW],
        run=[0, 1, 1, 0, NEW, NEW],
    )


def test_the_variance_is_that_of_a_dense_product(posterior: Posterior, rows: Rows) -> None:
    _, gradient, decode, *_ = log_speedup_gradient(
        posterior.constants,
        rows.terms,
        rows.accept_length,
        rows.baseline_deficit,
        rows.measured_share,
    )
    accept_log_sd = 0.05
    scale = posterior.noise_scale**2
    for row in range(len(rows)):
        jacobian = np.zeros(SIZE)
        jacobian[:NUM_CONSTANTS] = gradient[row] * slope(posterior.constants)
        drawn = scale * NOISE.row_log_sd**2
        drawn += (decode[row] * accept_log_sd) ** 2
        if rows.configuration[row] == NEW:
            drawn += decode[row] ** 2 * scale * NOISE.configuration_log_sd**2
        else:
            jacobian[NUM_CONSTANTS + rows.configuration[row]] = -decode[row]
        if rows.run[row] == NEW:
            drawn += scale * NOISE.run_log_sd**2
        else:
            jacobian[NUM_CONSTANTS + CONFIGURATIONS + rows.run[row]] = 1.0
        learned = jacobian @ posterior.covariance @ jacobian
        found = posterior.predict(rows, accept_log_sd=accept_log_sd)
        assert found.log_sd[row] ** 2 == pytest.approx(learned + drawn, rel=1e-10)
        # A part that is known to be normal only raises the degrees of freedom of the noise.
        assert found.degrees_of_freedom[row] >= 9.0


def test_the_centre_holds_the_effects_of_what_was_seen(posterior: Posterior, rows: Rows) -> None:
    found = posterior.predict(rows)
    constants = posterior.constants
    share = found.non_decode_share
    effects = posterior.mean[NUM_CONSTANTS:]
    of_cost = np.array([effects[0], effects[1], effects[2], 0, effects[1], 0])
    of_run = np.array([effects[3], effects[4], effects[4], effects[3], 0, 0])
    cost = round_cost(constants, rows.terms) * np.exp(of_cost)
    expected = np.log(speedup(rows.accept_length, cost, share)) + of_run
    np.testing.assert_allclose(found.location, expected, rtol=1e-12)


def test_the_interval_is_that_of_simulated_measurements(posterior: Posterior, rows: Rows) -> None:
    """Draws of constants, effects and noise, through the exact speed-up: no derivative in sight."""
    rng = np.random.default_rng(11)
    draws = 20_000
    drawn = rng.multivariate_normal(posterior.mean, posterior.covariance, draws)
    constants = to_natural(drawn[:, :NUM_CONSTANTS])[:, None, :]
    effects = np.concatenate([drawn[:, NUM_CONSTANTS:], np.zeros((draws, 1))], axis=1)
    level = posterior.noise_scale

    def noise(log_sd: float) -> Array:
        return np.asarray(level * log_sd * rng.standard_normal((draws, len(rows))))

    of_cost = np.where(
        rows.configuration == NEW, noise(NOISE.configuration_log_sd), effects[:, rows.configuration]
    )
    of_run = np.where(
        rows.run == NEW, noise(NOISE.run_log_sd), effects[:, CONFIGURATIONS + rows.run]
    )
    share = constants[..., NAMES.index("non_decode_share")]
    kappa = constants[..., NAMES.index("baseline_share")]
    share = np.where(
        np.isfinite(rows.measured_share),
        rows.measured_share,
        share + kappa * (1 - share) * rows.baseline_deficit,
    )
    cost = round_cost(constants, rows.terms) * np.exp(of_cost)
    measured = np.log(speedup(rows.accept_length, cost, share)) + of_run + noise(NOISE.row_log_sd)
    found = posterior.predict(rows)
    np.testing.assert_allclose(measured.mean(axis=0), found.location, atol=0.005)
    np.testing.assert_allclose(measured.std(axis=0), found.log_sd, rtol=0.03)


def test_a_new_configuration_and_a_new_run_are_less_certain(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    known = known_posterior()
    effects = Posterior(
        mean=np.concatenate([known.mean, np.zeros(2)]),
        covariance=np.diag([0.0] * NUM_CONSTANTS + [1e-6, 1e-6]),
        num_configurations=1,
        noise=NOISE,
        noise_scale=1.0,
        effect_scale=1.0,
        degrees_of_freedom=9.0,
        prior_covariance=np.eye(NUM_CONSTANTS),
    )
    rows = make_rows(num_steps=[3, 3, 3, 3], configuration=[0, NEW, 0, NEW], run=[0, 0, NEW, NEW])
    found = effects.predict(rows)
    decode = found.by_accept_length[0]
    np.testing.assert_allclose(found.by_accept_length, decode)
    assert found.log_sd[0] == pytest.approx(np.sqrt(0.02**2 + 1e-6 * (1 + decode**2)), rel=1e-9)
    assert found.log_sd[3] == pytest.approx(
        np.sqrt(0.02**2 + (decode * 0.03) ** 2 + 0.04**2), rel=1e-9
    )
    assert found.log_sd[0] < found.log_sd[1] < found.log_sd[2] < found.log_sd[3]


def test_quantiles_and_probabilities_are_those_of_student_t(
    posterior: Posterior, rows: Rows
) -> None:
    found = posterior.predict(rows)
    for probability in (0.05, 0.5, 0.95):
        expected = np.exp(
            stats.t.ppf(probability, found.degrees_of_freedom, found.location, found.log_sd)
        )
        np.testing.assert_allclose(found.quantile(probability), expected, rtol=2e-3)
    above = stats.t.sf(np.log(1.4), found.degrees_of_freedom, found.location, found.log_sd)
    np.testing.assert_allclose(found.probability_above(1.4), above, atol=2e-3)


def test_the_prior_is_the_posterior_of_no_points(make_prior: Callable[..., Prior]) -> None:
    prior = make_prior()
    found = Posterior.from_prior(prior)
    np.testing.assert_array_equal(found.mean, prior.mean)
    assert (found.num_configurations, found.mean.size) == (0, NUM_CONSTANTS)
    assert found.noise_scale == 1.0
    np.testing.assert_array_equal(found.prior_covariance, prior.covariance)


def test_predicting_rows_together_is_the_same_as_one_by_one(
    posterior: Posterior, rows: Rows
) -> None:
    together = posterior.predict(rows)
    for row in range(len(rows)):
        alone = posterior.predict(rows.take(np.array([row])))
        assert alone.location[0] == pytest.approx(together.location[row], rel=1e-12)
        assert alone.log_sd[0] == pytest.approx(together.log_sd[row], rel=1e-12)


def test_no_rows_give_no_prediction(posterior: Posterior, rows: Rows) -> None:
    none = posterior.predict(rows.take(np.array([], dtype=np.intp)))
    assert none.location.size == none.quantile(0.9).size == 0


def test_without_points_only_the_noise_has_heavy_tails(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Satterthwaite: a normal variance v and one of nu degrees of freedom w give nu ((v + w)/w)^2."""
    prior = make_prior(noise=NOISE)
    found = Posterior.from_prior(prior).predict(make_rows(num_steps=[3.0]))
    drawn = NOISE.row_log_sd**2 + NOISE.run_log_sd**2
    drawn += (found.by_accept_length[0] * NOISE.configuration_log_sd) ** 2
    expected = NOISE.degrees_of_freedom * (found.log_sd[0] ** 2 / drawn) ** 2
    assert found.degrees_of_freedom[0] == pytest.approx(expected, rel=1e-9)


def test_an_effect_that_no_point_told_of_predicts_as_a_new_one(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Its variance is the prior's, as heavy in the tails as the noise that the prior takes it from."""
    prior = make_prior(sd=0.05, noise=NOISE)
    variances = [NOISE.configuration_log_sd**2, NOISE.run_log_sd**2]
    told_nothing = replace(
        Posterior.from_prior(prior),
        mean=np.append(prior.mean, [0.0, 0.0]),
        covariance=np.diag([*np.diag(prior.covariance), *variances]),
        num_configurations=1,
    )
    rows = make_rows(num_steps=[3] * 4, configuration=[0, NEW, 0, NEW], run=[0, 0, NEW, NEW])
    found = told_nothing.predict(rows)
    np.testing.assert_allclose(found.log_sd, found.log_sd[3], rtol=1e-9)
    np.testing.assert_allclose(found.degrees_of_freedom, found.degrees_of_freedom[3], rtol=1e-9)
    # the prior's own variance is normal: it makes the tails lighter than those of the noise
    assert found.degrees_of_freedom[3] > 1.1 * NOISE.degrees_of_freedom
