from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from calibration.fit.posterior_mode import MapFit, fit_rows
from specmodel.constants import NAMES, NUM_CONSTANTS, to_natural
from specmodel.cost import BatchCurve, RoundTerms, round_cost, round_terms
from specmodel.effects import LOAD_OCTAVES, NEW
from specmodel.posterior import Rows
from specmodel.prior import Noise, Prior
from specmodel.speedup import non_decode_share_from_baselines, speedup
from tests.extent import coverage_bounds, extent

Array = NDArray[np.float64]

TINY = Noise(row_log_sd=1e-5, configuration_log_sd=1e-6, run_log_sd=1e-6, degrees_of_freedom=1e9)
REAL = Noise(row_log_sd=0.02, configuration_log_sd=0.03, run_log_sd=0.03, degrees_of_freedom=8.0)
TRUTH = np.array([1.2, 0.09, 0.15, 0.12, 0.08, 0.7, 0.85, 0.6, 0.7])


def exact_log_speedup(constants: Array, rows: Rows) -> Array:
    """What a noise-free server with these constants would measure."""
    share = non_decode_share_from_baselines(
        constants[NAMES.index("non_decode_share")],
        constants[NAMES.index("baseline_share")],
        rows.baseline_deficit,
    )
    share = np.where(np.isfinite(rows.measured_share), rows.measured_share, share)
    return np.log(speedup(rows.accept_length, round_cost(constants, rows.terms), share))


def grid(*axes: Sequence[float]) -> list[Array]:
    """Every combination of the values of several axes."""
    return [values.ravel() for values in np.meshgrid(*axes, indexing="ij")]


def dense_terms() -> tuple[RoundTerms, Array, Array]:
    depth, branches, deficit, quality = grid([1, 3, 5, 7], [1, 4], [0, 0.2], [0.6, 0.9])
    terms = round_terms(num_steps=depth, topk=branches)
    return terms, 1 + quality * depth**0.6, deficit


def mixture_terms() -> tuple[RoundTerms, Array, Array]:
    depth, batch, deficit, quality = grid([1, 3, 7], [1, 8, 64], [0, 0.2], [0.6, 0.9])
    terms = round_terms(num_steps=depth, batch_size=batch, num_experts=128, experts_per_token=8)
    return terms, 1 + quality * depth**0.6, deficit


def swept_terms() -> tuple[RoundTerms, Array, Array]:
    batches, contexts = [1, 2, 4, 8, 16, 32, 64, 128, 256], [0, 8192, 65536]
    batch, context = grid(batches, contexts)
    curve = BatchCurve.from_points(batch, context, 0.006 + 3e-4 * batch + 4e-9 * batch * context)
    depth, batch, context, quality = grid([1, 3, 7], [1, 4, 16], contexts, [0.6, 0.9])
    terms = round_terms(num_steps=depth, batch_size=batch, context_tokens=context, curve=curve)
    return terms, 1 + quality * depth**0.6, np.zeros_like(depth)


DENSE = ("fixed_cost", "step_cost", "tree_cost", "non_decode_share", "baseline_share")
MIXTURE = ("fixed_cost", "step_cost", "expert_ratio", "non_decode_share", "baseline_share")
SWEPT = (
    "fixed_cost",
    "step_cost",
    "non_decode_share",
    "batch_growth_share",
    "draft_time_exponent",
    "kv_row_share",
)


@pytest.mark.parametrize(
    ("case", "names"),
    [(dense_terms(), DENSE), (mixture_terms(), MIXTURE), (swept_terms(), SWEPT)],
    ids=["dense", "mixture", "batch curve"],
)
def test_known_constants_are_recovered_from_noise_free_rows(
    case: tuple[RoundTerms, Array, Array],
    names: tuple[str, ...],
    make_prior: Callable[..., Prior],
    make_rows: Callable[..., Rows],
) -> None:
    terms, accept, deficit = case
    rows = make_rows(
        terms=terms,
        accept_length=accept,
        baseline_deficit=deficit,
        configuration=np.arange(len(terms)),
        run=0,
    )
    fit = fit_rows(rows, exact_log_speedup(TRUTH, rows), make_prior(sd=2.0, noise=TINY))
    assert np.max(np.abs(fit.residual)) < 1e-5
    found = dict(zip(NAMES, fit.posterior.constants.tolist(), strict=True))
    for name in names:
        assert found[name] == pytest.approx(TRUTH[NAMES.index(name)], rel=0.01), name


def few_rows(make_rows: Callable[..., Rows]) -> Rows:
    """Nine rows of three configurations and three workloads."""
    return make_rows(
        terms=round_terms(
            num_steps=np.repeat([3, 5, 7], 3), batch_size=8, num_experts=128, experts_per_token=8
        ),
        accept_length=[2.1, 2.4, 2.7, 2.4, 2.8, 3.3, 2.5, 3.0, 3.7],
        baseline_deficit=np.tile([0.0, 0.1, 0.25], 3),
        configuration=np.repeat([0, 1, 2], 3),
        run=np.tile([0, 1, 2], 3),
    )


def noisy(rows: Rows, seed: int = 0, log_sd: float = 0.03) -> Array:
    rng = np.random.default_rng(seed)
    return exact_log_speedup(TRUTH, rows) + log_sd * rng.standard_normal(len(rows))


def objective(vector: Array, rows: Rows, measured: Array, prior: Prior, fit: MapFit) -> float:
    """What the fit says it minimises, written out; elasticities, noise and weights as it found them."""
    noise, posterior = prior.noise, fit.posterior
    internal, effects = vector[:NUM_CONSTANTS], vector[NUM_CONSTANTS:]
    split = posterior.num_configurations
    elasticity = posterior.predict(rows).by_accept_length
    fitted = exact_log_speedup(to_natural(internal), rows)
    fitted += effects[split + rows.run] - elasticity * effects[rows.configuration]
    row_sd = posterior.noise_scale * noise.row_log_sd / np.sqrt(fit.weight)
    total = float(np.sum(((measured - fitted) / row_sd) ** 2))
    for value, sd in (
        (effects[:split], noise.configuration_log_sd),
        (effects[split:], noise.run_log_sd),
    ):
        total += float(np.sum(value**2)) / (posterior.effect_scale * sd) ** 2
    away = internal - prior.mean
    return 0.5 * (total + float(away @ np.linalg.solve(fit.prior_width * prior.covariance, away)))


@pytest.mark.parametrize("seed", range(4))
def test_no_other_constants_are_more_likely(
    seed: int, make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    rows, prior = few_rows(make_rows), make_prior(noise=REAL)
    measured = noisy(rows, seed)
    fit = fit_rows(rows, measured, prior)

    def density(vector: Array) -> float:
        return objective(vector, rows, measured, prior, fit)

    found = density(fit.posterior.mean)
    again = minimize(density, fit.posterior.mean, method="BFGS")
    assert float(again.fun) > found - 1e-5
    spread = np.sqrt(np.diag(fit.posterior.covariance))
    assert np.max(np.abs(again.x - fit.posterior.mean) / spread) < 0.01


def test_the_covariance_is_the_inverse_hessian_of_the_objective(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Rows that agree with the centre of the prior: there Gauss-Newton is exact."""
    rows, prior = few_rows(make_rows), make_prior(natural=TRUTH, noise=REAL)
    measured = exact_log_speedup(TRUTH, rows)
    fit = fit_rows(rows, measured, prior)
    np.testing.assert_allclose(fit.posterior.mean[:NUM_CONSTANTS], prior.mean, atol=1e-6)
    size, step = fit.posterior.mean.size, 1e-4
    hessian = np.empty((size, size))

    def shifted(first: int, by: float, second: int, by_too: float) -> float:
        vector = fit.posterior.mean.copy()
        vector[first] += by
        vector[second] += by_too
        return objective(vector, rows, measured, prior, fit)

    for first in range(size):
        for second in range(size):
            hessian[first, second] = (
                shifted(first, step, second, step)
                - shifted(first, step, second, -step)
                - shifted(first, -step, second, step)
                + shifted(first, -step, second, -step)
            ) / (4 * step**2)
    spread = np.sqrt(np.diag(fit.posterior.covariance))
    found = fit.posterior.covariance / np.outer(spread, spread)
    np.testing.assert_allclose(np.linalg.inv(hessian) / np.outer(spread, spread), found, atol=1e-3)


def test_the_noise_scale_solves_its_equation(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    rows = few_rows(make_rows)
    fit = fit_rows(rows, noisy(rows, 3, log_sd=0.10), make_prior(noise=REAL))
    posterior = fit.posterior
    # Oracle: dense generalised least squares on the residuals, constants nearly free.
    elasticity = posterior.predict(rows).by_accept_length
    same_configuration = rows.configuration[:, None] == rows.configuration
    same_run = rows.run[:, None] == rows.run
    covariance = np.diag(REAL.row_log_sd**2 / fit.weight)
    covariance += (
        REAL.configuration_log_sd**2 * same_configuration * np.outer(elasticity, elasticity)
    )
    covariance += REAL.run_log_sd**2 * same_run
    jacobian = np.empty((len(rows), NUM_CONSTANTS))
    centre = posterior.mean[:NUM_CONSTANTS]
    for index in range(NUM_CONSTANTS):
        shift = np.zeros(NUM_CONSTANTS)
        shift[index] = 1e-5
        above = exact_log_speedup(to_natural(centre + shift), rows)
        jacobian[:, index] = (above - exact_log_speedup(to_natural(centre - shift), rows)) / 2e-5
    free = covariance + jacobian @ (10.0 * make_prior().covariance) @ jacobian.T
    chi_square = fit.marginal_residual @ np.linalg.solve(free, fit.marginal_residual)
    assert fit.chi_square == pytest.approx(chi_square, rel=1e-4)
    redundant = float(np.trace(np.linalg.solve(free, covariance)))
    assert fit.redundant == pytest.approx(redundant, rel=1e-4)
    freedom = REAL.degrees_of_freedom + redundant
    assert posterior.degrees_of_freedom == pytest.approx(freedom, rel=1e-4)
    scale = (REAL.degrees_of_freedom + chi_square) / freedom
    assert posterior.noise_scale**2 == pytest.approx(scale, rel=1e-3)
    assert posterior.noise_scale > 1.1
    # Three configurations and three runs say less of the effects' spread than of the rows'.
    effect_scale = (REAL.degrees_of_freedom + 4 * scale) / (REAL.degrees_of_freedom + 4)
    assert posterior.effect_scale**2 == pytest.approx(effect_scale, rel=1e-3)


def test_quiet_rows_lower_the_noise(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    rows = few_rows(make_rows)
    fit = fit_rows(rows, exact_log_speedup(TRUTH, rows), make_prior(natural=TRUTH, noise=REAL))
    assert fit.posterior.noise_scale < 0.85


def one_row(make_rows: Callable[..., Rows]) -> Rows:
    return make_rows(num_steps=3, accept_length=2.1, configuration=0, run=0)


def test_no_rows_leave_the_prior(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    prior = make_prior(noise=REAL)
    none = one_row(make_rows).take(np.array([], dtype=np.intp))
    fit = fit_rows(none, np.array([]), prior)
    np.testing.assert_allclose(fit.posterior.mean, prior.mean, rtol=1e-12)
    np.testing.assert_allclose(fit.posterior.covariance, prior.covariance, rtol=1e-9, atol=1e-12)
    assert fit.posterior.noise_scale == pytest.approx(1.0)
    assert fit.learned == pytest.approx(0.0, abs=1e-9)
    assert fit.posterior.degrees_of_freedom == pytest.approx(REAL.degrees_of_freedom)


def test_one_row_learns_less_than_one_constant(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    prior = make_prior(noise=REAL)
    fit = fit_rows(one_row(make_rows), np.log([82.3 / 90]), prior)
    assert 0.3 < fit.learned < 1.0
    posterior = fit.posterior
    assert fit.redundant < 0.1
    assert posterior.noise_scale == pytest.approx(1.0, abs=0.05)
    assert (posterior.num_configurations, posterior.mean.size) == (1, NUM_CONSTANTS + 2)


@pytest.mark.parametrize(
    ("measured_speedup", "of_width"),
    [(1.5, 0.10), (1.3, 0.15), (82.3 / 90, 0.25)],
    ids=["as expected", "slower", "far slower"],
)
def test_one_row_gives_the_exact_posterior_about(
    measured_speedup: float,
    of_width: float,
    make_prior: Callable[..., Prior],
    make_rows: Callable[..., Rows],
) -> None:
    """Oracle: draws of the prior, weighted by how likely they make the row.

    The normal form is near it, and too narrow where the row is far from what the prior expected.
    """
    noise = Noise(
        row_log_sd=0.04, configuration_log_sd=1e-5, run_log_sd=1e-5, degrees_of_freedom=1e9
    )
    spread = np.array([0.15, 0.4, 0.5, 0.5, 0.8, 0.5, 0.5, 0.5, 0.5])
    prior = make_prior(sd=spread, noise=noise)
    measured = float(np.log(measured_speedup))
    fit = fit_rows(one_row(make_rows), np.array([measured]), prior)
    rng = np.random.default_rng(2)
    count = 200_000
    drawn = prior.mean + spread * rng.standard_normal((count, NUM_CONSTANTS))
    fixed, step, *_ = np.moveaxis(to_natural(drawn), -1, 0)
    share = to_natural(drawn)[:, NAMES.index("non_decode_share")]

    def log_speedup(depth: float, accept: float) -> Array:
        return np.asarray(-np.log(share + (1 - share) * (fixed + step * depth) / accept))

    weight = np.exp(-0.5 * ((measured - log_speedup(3, 2.1)) / noise.row_log_sd) ** 2)
    for depth, accept in ((3, 2.75), (5, 2.75), (7, 3.3)):
        values = log_speedup(depth, accept)
        mean = float(np.average(values, weights=weight))
        log_sd = float(np.sqrt(np.average((values - mean) ** 2, weights=weight)))
        found = fit.posterior.predict(make_rows(num_steps=depth, accept_length=accept))
        learned = float(np.sqrt(found.log_sd[0] ** 2 - noise.row_log_sd**2))
        assert float(found.location[0]) == pytest.approx(mean, abs=0.3 * log_sd)
        assert learned == pytest.approx(log_sd, rel=of_width)


def same_fit(one: MapFit, other: MapFit) -> None:
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(one.posterior.covariance, other.posterior.covariance, atol=1e-7)
    assert one.posterior.noise_scale == pytest.approx(other.posterior.noise_scale, rel=1e-6)


def test_order_of_the_rows_does_not_matter(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    rows, prior = few_rows(make_rows), make_prior(noise=REAL)
    measured = noisy(rows)
    order = np.random.default_rng(4).permutation(len(rows))
    same_fit(fit_rows(rows, measured, prior), fit_rows(rows.take(order), measured[order], prior))


def test_a_replicate_makes_the_answer_more_certain(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    noise = Noise(
        row_log_sd=0.05, configuration_log_sd=0.01, run_log_sd=0.01, degrees_of_freedom=1e9
    )
    prior = make_prior(noise=noise)
    row = one_row(make_rows)
    asked = make_rows(num_steps=3, accept_length=2.75, configuration=0, run=0)
    widths = [
        float(
            fit_rows(
                row.take(np.zeros(count, dtype=np.intp)), np.full(count, np.log(82.3 / 90)), prior
            )
            .posterior.predict(asked)
            .log_sd[0]
        )
        for count in (1, 2, 5, 50)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > noise.row_log_sd


def test_a_stated_spread_makes_a_row_count_less(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    prior, row = make_prior(noise=REAL), one_row(make_rows)
    measured = np.log([82.3 / 90])
    sure = fit_rows(row, measured, prior)
    unsure = fit_rows(row, measured, prior, spread_log_sd=np.array([0.2]))
    unstated = fit_rows(row, measured, prior, spread_log_sd=np.array([np.nan]))
    assert unsure.learned < sure.learned
    same_fit(sure, unstated)


def test_what_no_row_depends_on_stays_at_the_prior(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    prior = make_prior(noise=REAL)
    fit = fit_rows(one_row(make_rows), np.log([82.3 / 90]), prior)
    for name in (
        "tree_cost",
        "expert_ratio",
        "baseline_share",
        "batch_growth_share",
        "kv_row_share",
    ):
        at = NAMES.index(name)
        assert fit.posterior.mean[at] == pytest.approx(prior.mean[at], abs=1e-9)
        assert fit.posterior.covariance[at, at] == pytest.approx(prior.covariance[at, at], rel=1e-6)


def test_effects_take_up_what_the_constants_cannot(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """One workload runs 10 % slower than its accept lengths say, at every depth."""
    rows, prior = few_rows(make_rows), make_prior(natural=TRUTH, sd=0.05, noise=REAL)
    measured = exact_log_speedup(TRUTH, rows) - np.where(rows.run == 1, 0.10, 0.0)
    fit = fit_rows(rows, measured, prior)
    effects = fit.posterior.predict(rows).run_effect[
        [int(np.argmax(rows.run == run)) for run in range(3)]
    ]
    assert effects[1] < -0.05
    assert np.max(np.abs(effects[[0, 2]])) < 0.03


def slopes(fit: MapFit, rows: Rows, measured: Array, prior: Prior) -> Array:
    """Slope of the objective at the fit along each constant and effect, per standard deviation."""
    mean, spread = fit.posterior.mean, np.sqrt(np.diag(fit.posterior.covariance))
    found = np.empty(mean.size)
    for index in range(mean.size):
        shift = np.zeros(mean.size)
        shift[index] = 1e-3 * spread[index]
        above = objective(mean + shift, rows, measured, prior, fit)
        below = objective(mean - shift, rows, measured, prior, fit)
        found[index] = (above - below) / 2e-3
    return found


@pytest.mark.parametrize("seed", range(10))
def test_the_fit_settles_far_from_the_prior_too(
    seed: int, make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    rng = np.random.default_rng(seed)
    rows, prior = few_rows(make_rows), make_prior(noise=REAL)
    unlikely = to_natural(prior.mean + 1.25 * rng.standard_normal(NUM_CONSTANTS))
    measured = exact_log_speedup(unlikely, rows) + 0.05 * rng.standard_normal(len(rows))
    found = slopes(fit_rows(rows, measured, prior), rows, measured, prior)
    assert np.max(np.abs(found)) < 1e-3


def test_the_fit_settles_where_a_share_of_time_loses_its_effect(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Whole Gauss-Newton steps swing for ever here: near 0 a share does nothing, and steps are long."""
    noise = Noise(
        row_log_sd=0.03, configuration_log_sd=0.02, run_log_sd=0.03, degrees_of_freedom=6.0
    )
    prior = make_prior(
        natural=np.array([1.083, 0.064, 0.129, 0.045, 0.058, 0.446, 0.741, 0.519, 0.768]),
        sd=[0.06, 0.56, 0.32, 0.41, 0.87, 2.1, 1.22, 0.59, 0.93],
        noise=noise,
    )
    rows = few_rows(make_rows)
    measured = np.log([1.12, 1.17, 1.30, 1.24, 1.46, 1.27, 1.35, 1.44, 1.34])
    found = slopes(fit_rows(rows, measured, prior), rows, measured, prior)
    assert np.max(np.abs(found)) < 1e-3


def test_the_truth_is_inside_its_interval_as_often_as_said(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Systems drawn from the prior itself, four rows each; the next configuration is predicted."""
    noise = Noise(
        row_log_sd=0.02, configuration_log_sd=0.02, run_log_sd=0.03, degrees_of_freedom=1e9
    )
    sd = np.array([0.12, 0.3, 0.3, 0.4, 0.6, 0.5, 0.5, 0.5, 0.5])
    prior = make_prior(sd=sd, noise=noise, systems=1000)
    rows = make_rows(
        num_steps=[3, 3, 5, 5, 7],
        accept_length=[2.2, 2.6, 2.5, 3.0, 3.2],
        configuration=[0, 0, 1, 1, 2],
        run=[0, 1, 0, 1, 1],
    )
    seen, asked = rows.take(np.arange(4)), make_rows(num_steps=7, accept_length=3.2, run=1)
    rng = np.random.default_rng(8)
    trials, inside = extent(test=150, prove=400), 0
    for _ in range(trials):
        constants = to_natural(prior.mean + sd * rng.standard_normal(NUM_CONSTANTS))
        of_cost = 0.02 * rng.standard_normal(3)[rows.configuration]
        of_run = 0.03 * rng.standard_normal(2)[rows.run]
        share = constants[NAMES.index("non_decode_share")]
        cost = round_cost(constants, rows.terms) * np.exp(of_cost)
        value = np.log(speedup(rows.accept_length, cost, share)) + of_run
        value = value + 0.02 * rng.standard_normal(5)
        answer = fit_rows(seen, value[:4], prior).posterior.predict(asked)
        low, high = np.log(answer.quantile(0.05)[0]), np.log(answer.quantile(0.95)[0])
        inside += int(low <= value[4] <= high)
    # Three standard errors of a binomial with 400 trials at 0.9 are 0.045.
    low, high = coverage_bounds(trials, proven=(0.855, 0.945))
    assert low <= inside / trials <= high


def test_a_system_unlike_the_public_ones_moves_the_constants_not_the_noise(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """A tight prior that expects 30 % more: the only point is believed, and the prior widened."""
    noise = Noise(
        row_log_sd=0.012, configuration_log_sd=0.016, run_log_sd=0.027, degrees_of_freedom=3.3
    )
    tight = make_prior(sd=0.08, noise=noise, systems=7)
    row, measured = one_row(make_rows), np.log([82.3 / 90])
    fit = fit_rows(row, measured, tight)
    assert fit.prior_width > 2.0
    assert fit.posterior.noise_scale == pytest.approx(1.0, abs=0.05)
    answer = fit.posterior.predict(row)
    assert float(np.exp(answer.location[0])) == pytest.approx(82.3 / 90, rel=0.03)
    np.testing.assert_allclose(
        fit.posterior.prior_covariance, fit.prior_width * tight.covariance, rtol=1e-9
    )


def test_a_system_like_the_public_ones_leaves_the_prior_as_wide_as_it_was(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    prior = make_prior(natural=TRUTH, noise=REAL, systems=7)
    rows = few_rows(make_rows)
    assert fit_rows(rows, exact_log_speedup(TRUTH, rows), prior).prior_width == 1.0


def test_a_prior_from_no_systems_is_not_widened(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    fit = fit_rows(one_row(make_rows), np.log([82.3 / 90]), make_prior(sd=0.05, noise=REAL))
    assert fit.prior_width == 1.0


def test_one_bad_row_does_not_move_the_others(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Half the throughput in one row: it loses its weight, the rest is fitted as without it."""
    rows, prior = few_rows(make_rows), make_prior(natural=TRUTH, noise=REAL)
    clean = noisy(rows, log_sd=0.01)
    spoilt = clean.copy()
    spoilt[4] -= np.log(2.0)
    without = np.arange(len(rows)) != 4
    asked = rows.take(np.array([3, 5]))
    found = fit_rows(rows, spoilt, prior)
    kept = fit_rows(rows.take(without), clean[without], prior)
    assert found.weight[4] < 0.1
    assert np.min(found.weight[without]) > 0.5
    np.testing.assert_allclose(
        found.posterior.predict(asked).location, kept.posterior.predict(asked).location, atol=0.03
    )


def test_a_measured_configuration_is_remembered_however_far_its_curve_was_carried(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    curve = BatchCurve.from_points([1, 2], [0, 0], [0.010, 0.011])
    terms = round_terms(num_steps=[3, 3], batch_size=[1, 64], context_tokens=0, curve=curve)
    rows = make_rows(terms=terms, accept_length=2.4, configuration=[0, 1], run=[0, 1])
    measured = np.log([1.5, 0.8])
    prior = make_prior(noise=replace(REAL, growth_share=1.0))
    posterior = fit_rows(rows, measured, prior, curve=curve).posterior
    answer = posterior.predict(rows)
    np.testing.assert_allclose(answer.location, measured, atol=0.03)
    assert np.max(answer.log_sd) < 0.06
    new = posterior.predict(replace(rows, configuration=np.full(2, NEW)))
    assert new.log_sd[1] > 1.5 * answer.log_sd[1]


def test_repeats_of_one_run_do_not_make_another_run_certain(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """Ten copies of a row: their agreement is about rows, not about configurations and runs."""
    row, prior = one_row(make_rows), make_prior(noise=REAL)
    copies = row.take(np.zeros(10, dtype=np.intp))
    fit = fit_rows(copies, np.full(10, np.log(82.3 / 90)), prior)
    assert fit.posterior.noise_scale < 0.8
    assert fit.posterior.effect_scale == pytest.approx(1.0, abs=0.05)
    other = fit.posterior.predict(make_rows(num_steps=3, accept_length=2.1, configuration=0))
    assert other.log_sd[0] > REAL.run_log_sd


def test_effects_over_loads_are_a_gaussian_process(
    make_prior: Callable[..., Prior], make_rows: Callable[..., Rows]
) -> None:
    """With the constants known and no non-decode share, ln S is linear: kriging of the residuals."""
    natural = TRUTH.copy()
    natural[NAMES.index("non_decode_share")] = 1e-9
    noise = Noise(
        row_log_sd=0.01, configuration_log_sd=0.01, run_log_sd=1e-9, degrees_of_freedom=1e9,
        load_log_sd=0.08,
    )  # fmt: skip
    batches = np.array([1.0, 2.0, 4.0, 16.0])
    rows, asked = (
        make_rows(
            terms=round_terms(num_steps=3, batch_size=at), accept_length=2.0, configuration=index
        )
        for at, index in ((batches, np.arange(4)), (np.array([8.0, 64.0]), NEW))
    )
    rows = replace(rows, run=np.zeros(4, dtype=np.intp))
    away = np.array([0.03, 0.05, 0.02, -0.06])
    prior = make_prior(natural=natural, sd=1e-6, noise=noise)
    found = fit_rows(rows, exact_log_speedup(natural, rows) + away, prior).posterior.predict(asked)

    def shared(one: Array, two: Array) -> Array:
        apart = np.log2(one)[:, None] - np.log2(two)
        return np.asarray(0.08**2 * np.exp(-0.5 * (apart / LOAD_OCTAVES["batch"]) ** 2))

    known = shared(batches, batches) + 2 * 0.01**2 * np.eye(4)
    weights = np.linalg.solve(known, shared(batches, np.array([8.0, 64.0]))).T
    expected = exact_log_speedup(natural, asked) + weights @ away
    np.testing.assert_allclose(found.location, expected, atol=1e-4)
    left = 0.08**2 - np.einsum("ij,ji->i", weights, shared(batches, np.array([8.0, 64.0])))
    np.testing.assert_allclose(found.log_sd**2, left + 2 * 0.01**2, rtol=0.01)
    assert found.log_sd[1] > 1.3 * found.log_sd[0]
