from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from calibration.fit.posterior_mode import fit_rows
from specmodel.cost import BatchCurve, round_cost, round_terms
from specmodel.errors import ParameterError
from specmodel.optimum import choose_among, choose_depth, draw_rounds
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Noise, Prior
from specmodel.speedup import speedup

Array = NDArray[np.float64]

PURE = np.array([1.1, 0.08, 0.12, 0.06, 1e-12, 0.5, 0.8, 0.7, 0.9])
SILENT = Noise(row_log_sd=0.3, configuration_log_sd=0.0, run_log_sd=0.0, degrees_of_freedom=1e9)
REAL = Noise(row_log_sd=0.02, configuration_log_sd=0.03, run_log_sd=0.04, degrees_of_freedom=8.0)
DEPTHS = np.array([0.0, 1, 2, 3, 4, 5, 7])
ACCEPT = np.array([1.0, 1.7, 2.2, 2.5, 2.7, 2.8, 2.9])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_known_costs_leave_no_doubt_and_no_measurement_noise(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    rows = make_rows(num_steps=DEPTHS, accept_length=ACCEPT)
    choice = choose_depth(known_posterior(PURE, noise=SILENT), rows, rng=generator())
    expected = np.where(DEPTHS == 0, 1.0, speedup(ACCEPT, round_cost(PURE, rows.terms)))
    np.testing.assert_allclose(np.median(choice.speedup, axis=0), expected, rtol=1e-9)
    np.testing.assert_allclose(choice.speedup.std(axis=0), 0, atol=1e-12)
    best = int(np.argmax(expected))
    assert choice.best == best
    assert choice.best_num_steps == DEPTHS[best]
    assert (choice.probability, choice.regret) == (1.0, 0.0)
    np.testing.assert_allclose(choice.expected_regret, 1 - expected / expected.max(), rtol=1e-6)


def test_two_uncertain_depths_against_the_closed_form(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    """ln S of two depths, each with its own normal error: X, their difference, is normal."""
    sd = 0.05
    noise = Noise(row_log_sd=0.3, configuration_log_sd=sd, run_log_sd=0.2, degrees_of_freedom=1e12)
    rows = make_rows(num_steps=[2, 4], accept_length=[2.2, 2.65])
    draws = 40_000
    choice = choose_depth(
        known_posterior(PURE, noise=noise), rows, num_draws=draws, rng=generator()
    )
    values = np.log(rows.accept_length / round_cost(PURE, rows.terms))
    gap, spread = values[1] - values[0], sd * np.sqrt(2)
    assert choice.probability_best[1] == pytest.approx(norm.cdf(gap / spread), abs=0.01)

    def regret(behind: float) -> float:
        """E[max(0, 1 - exp(-X))] for X normal around `behind`."""
        return float(
            norm.cdf(behind / spread)
            - np.exp(-behind + spread**2 / 2) * norm.cdf((behind - spread**2) / spread)
        )

    expected = [regret(gap), regret(-gap)]
    np.testing.assert_allclose(choice.expected_regret, expected, rtol=0.03)
    assert choice.best == int(np.argmin(expected))


def test_what_is_common_to_all_depths_does_not_move_the_choice_among_them(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    noise = Noise(row_log_sd=0.0, configuration_log_sd=0.0, run_log_sd=0.3, degrees_of_freedom=1e9)
    posterior = known_posterior(PURE, noise=noise)
    chains = make_rows(num_steps=DEPTHS[1:], accept_length=ACCEPT[1:])
    choice = choose_depth(posterior, chains, rng=generator())
    assert choice.probability == 1.0
    with_none = make_rows(num_steps=DEPTHS, accept_length=ACCEPT)
    against_none = choose_depth(posterior, with_none, num_draws=20_000, rng=generator())
    value = np.log(np.median(choice.speedup, axis=0).max())
    assert against_none.probability_best[0] == pytest.approx(norm.cdf(-value / 0.3), abs=0.01)
    np.testing.assert_array_equal(against_none.speedup[:, 0], 1.0)


def test_a_better_drafter_is_better_at_every_depth(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    rows = make_rows(num_steps=[3, 4, 5], accept_length=[2.0, 2.15, 2.2])
    choice = choose_depth(
        known_posterior(PURE, noise=SILENT),
        rows,
        accept_log_sd=0.1,
        num_draws=20_000,
        rng=generator(),
    )
    logs = np.log(choice.speedup)
    np.testing.assert_allclose(logs.std(axis=0), 0.1, rtol=0.03)
    np.testing.assert_allclose(np.diff(logs, axis=1).std(axis=0), 0, atol=1e-9)
    assert choice.probability == 1.0


def test_accept_lengths_stay_possible(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    posterior = known_posterior(PURE, noise=SILENT)
    rows = make_rows(num_steps=[1, 3], accept_length=[1.9, 3.8])
    choice = choose_depth(posterior, rows, accept_log_sd=[0.5, 0.5], rng=generator())
    tokens = choice.speedup * round_cost(PURE, rows.terms)
    assert np.all(tokens >= 1 - 1e-9)
    np.testing.assert_allclose(tokens.max(axis=0), [2, 4])


def test_given_accept_lengths_are_used_as_they_are(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    posterior = known_posterior(PURE, noise=SILENT)
    rows = make_rows(num_steps=[2, 4], accept_length=[2.0, 2.5])
    given = generator(1).uniform(1.2, 2.8, (500, 2))
    choice = choose_depth(
        posterior, rows, accept_length_draws=given, num_draws=500, rng=generator()
    )
    np.testing.assert_allclose(choice.speedup, given / round_cost(PURE, rows.terms), rtol=1e-9)
    wins = np.argmax(choice.speedup, axis=1)
    np.testing.assert_allclose(choice.probability_best, [np.mean(wins == 0), np.mean(wins == 1)])


def test_the_recommended_depth_need_not_be_the_one_most_often_best(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    """Deep wins a little in 60 % of the draws and loses a lot in the others."""
    rows = make_rows(num_steps=[2, 6], accept_length=[2.0, 2.6])
    cost = round_cost(PURE, rows.terms)
    win = np.arange(100) < 60
    given = cost * np.stack([np.full(100, 1.5), np.where(win, 1.53, 1.20)], axis=1)
    choice = choose_depth(
        known_posterior(PURE, noise=SILENT),
        rows,
        accept_length_draws=given,
        num_draws=100,
        rng=generator(),
    )
    np.testing.assert_allclose(choice.probability_best, [0.4, 0.6])
    assert choice.best_num_steps == 2
    assert choice.regret == pytest.approx(0.6 * (1 - 1.5 / 1.53))


def test_order_of_the_candidates_does_not_matter_and_ties_go_to_the_smaller_depth(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    posterior = known_posterior(PURE, noise=SILENT)
    rows = make_rows(num_steps=DEPTHS, accept_length=ACCEPT)
    order = np.array([3, 0, 6, 5, 1, 2, 4])
    found = choose_depth(posterior, rows.take(order), rng=generator())
    straight = choose_depth(posterior, rows, rng=generator())
    assert found.best_num_steps == straight.best_num_steps
    np.testing.assert_allclose(found.probability_best, straight.probability_best[order])
    equal = np.tile(round_cost(PURE, make_rows(num_steps=[5, 2]).terms), (10, 1))
    tied = choose_depth(
        posterior,
        make_rows(num_steps=[5, 2]),
        accept_length_draws=1.4 * equal,
        num_draws=10,
        rng=generator(),
    )
    assert tied.best_num_steps == 2


def test_equal_seeds_give_equal_choices(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    posterior = Posterior.from_prior(make_prior(noise=REAL, sd=0.3))
    rows = make_rows(num_steps=DEPTHS, accept_length=ACCEPT)
    one, again, other = (
        choose_depth(posterior, rows, accept_log_sd=0.05, rng=generator(seed)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one.speedup, again.speedup)
    assert not np.array_equal(one.speedup, other.speedup)
    assert one.probability_best.sum() == pytest.approx(1.0)


@pytest.fixture
def fitted(make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]) -> Posterior:
    """A system measured at two depths and in two workloads."""
    rows = make_rows(
        num_steps=[3, 3, 5, 5],
        accept_length=[2.2, 2.6, 2.5, 3.0],
        configuration=[0, 0, 1, 1],
        run=[0, 1, 0, 1],
    )
    measured = np.log([1.42, 1.71, 1.45, 1.80])
    many = replace(REAL, degrees_of_freedom=1e9)
    return fit_rows(rows, measured, make_prior(noise=many, sd=0.2)).posterior


def test_draws_spread_as_the_prediction_without_its_measurement_noise(
    fitted: Posterior, make_rows: Callable[..., Rows]
) -> None:
    curve = BatchCurve.from_points([1, 8], [0, 0], [0.009, 0.014])
    rows = make_rows(
        terms=round_terms(num_steps=[3, 5, 4, 4, 3], batch_size=[1, 1, 1, 1, 2], curve=curve),
        accept_length=[2.2, 3.0, 2.4, 2.4, 2.4],
        configuration=[0, 1, -1, -1, -1],
        run=[0, 1, 0, -1, -1],
    )
    draws = draw_rounds(fitted, rows, num_draws=40_000, rng=generator())
    logs = np.log(draws.speedup(rows.accept_length))
    found = fitted.predict(rows)
    row_sd = fitted.noise_scale * fitted.noise.row_log_sd
    np.testing.assert_allclose(logs.mean(axis=0), found.location, atol=0.008)
    np.testing.assert_allclose(logs.std(axis=0) ** 2, found.log_sd**2 - row_sd**2, rtol=0.05)


def test_effects_of_what_was_seen_are_shared_by_the_rows_that_have_them(
    fitted: Posterior, make_rows: Callable[..., Rows]
) -> None:
    rows = make_rows(
        num_steps=[3, 5, 4, 7, 4], accept_length=2.5, configuration=-1, run=[0, 0, -1, -1, 1]
    )
    effect = draw_rounds(fitted, rows, rng=generator()).run_effect
    np.testing.assert_array_equal(effect[:, 0], effect[:, 1])
    np.testing.assert_array_equal(effect[:, 2], effect[:, 3])
    assert not np.array_equal(effect[:, 0], effect[:, 2])
    assert not np.array_equal(effect[:, 0], effect[:, 4])


def test_new_runs_of_chains_and_of_trees_differ(
    fitted: Posterior, make_rows: Callable[..., Rows]
) -> None:
    rows = make_rows(terms=round_terms(num_steps=[3, 5, 3, 5], topk=[1, 1, 4, 4]))
    effect = draw_rounds(fitted, rows, rng=generator()).run_effect
    np.testing.assert_array_equal(effect[:, 0], effect[:, 1])
    np.testing.assert_array_equal(effect[:, 2], effect[:, 3])
    assert abs(np.corrcoef(effect[:, 0], effect[:, 2])[0, 1]) < 0.1


def test_one_error_of_the_batch_curve_moves_all_depths(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    curve = BatchCurve.from_points([1, 8], [0, 0], [0.009, 0.014])
    terms = round_terms(num_steps=[1, 3, 7], batch_size=8, curve=curve)
    posterior = known_posterior(PURE, noise=replace(SILENT, growth_share=1.0))
    rows = make_rows(terms=terms)
    draws = draw_rounds(posterior, rows, num_draws=20_000, rng=generator())
    logs = np.log(draws.round_cost)
    spread = posterior.predict(rows).round_cost_log_sd
    assert np.all(np.diff(spread) > 0)
    np.testing.assert_allclose(logs.std(axis=0), spread, rtol=0.03)
    assert np.min(np.corrcoef(logs.T)) > 0.8


def test_few_degrees_of_freedom_make_the_noise_of_draws_heavy_tailed(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    posterior = replace(known_posterior(PURE, noise=REAL), degrees_of_freedom=4.0)
    draws = draw_rounds(posterior, make_rows(num_steps=[3]), num_draws=50_000, rng=generator())
    scaled = draws.run_effect[:, 0] / REAL.run_log_sd
    assert np.mean(np.abs(scaled) > 2.776) == pytest.approx(0.05, abs=0.005)


def test_a_measured_share_is_not_drawn(fitted: Posterior, make_rows: Callable[..., Rows]) -> None:
    rows = make_rows(num_steps=[3, 5], accept_length=2.5, measured_share=[0.1, np.nan])
    draws = draw_rounds(fitted, rows, num_draws=200, rng=generator())
    np.testing.assert_array_equal(draws.non_decode_share[:, 0], 0.1)
    assert draws.non_decode_share[:, 1].std() > 0


@pytest.mark.parametrize(("method", "best"), [("EAGLE-1", 3), ("EAGLE-3", 4)])
def test_the_published_best_depths(
    cost_table: Callable[[str], list[dict[str, str]]], method: str, best: int
) -> None:
    table = [row for row in cost_table("vllm20780") if row["method"] == method]
    depth, accept, cost, speedups = (
        np.array([float(row[name]) for row in table])
        for name in ("num_steps", "accept_length", "round_cost", "speedup")
    )
    found = speedup(accept, cost)
    np.testing.assert_allclose(found, speedups, atol=6e-4)
    assert choose_among(depth, found[None]).best_num_steps == best


def test_impossible_arguments_are_refused(
    known_posterior: Callable[..., Posterior], make_rows: Callable[..., Rows]
) -> None:
    posterior, rows = known_posterior(), make_rows(num_steps=[2, 4])
    none = rows.take(np.array([], dtype=np.intp))
    with pytest.raises(ParameterError, match="at least one row"):
        choose_depth(posterior, none, rng=generator())
    with pytest.raises(ParameterError, match="num_draws"):
        choose_depth(posterior, rows, num_draws=0, rng=generator())
    with pytest.raises(ParameterError, match="accept_log_sd must be finite"):
        choose_depth(posterior, rows, accept_log_sd=-0.1, rng=generator())
    with pytest.raises(ParameterError, match="one number or 2"):
        choose_depth(posterior, rows, accept_log_sd=[0.1, 0.1, 0.1], rng=generator())
    with pytest.raises(ParameterError, match="accept_length must be finite and at least 1"):
        choose_depth(posterior, make_rows(accept_length=0.9), rng=generator())
    with pytest.raises(ParameterError, match=r"of shape \(10, 2\)"):
        choose_depth(
            posterior, rows, accept_length_draws=np.ones((9, 2)), num_draws=10, rng=generator()
        )
    with pytest.raises(ParameterError, match="which hold the spread"):
        choose_depth(
            posterior,
            rows,
            accept_log_sd=0.1,
            accept_length_draws=np.ones((10, 2)),
            num_draws=10,
            rng=generator(),
        )
    with pytest.raises(ParameterError, match="accept_length_draws must be finite"):
        choose_depth(
            posterior, rows, accept_length_draws=np.zeros((10, 2)), num_draws=10, rng=generator()
        )
