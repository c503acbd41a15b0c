import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from specmodel.acceptance import FullAccuracy
from specmodel.acceptance.tails import (
    DEFAULT_TAIL,
    TAILS,
    TailFamily,
    fit_tail,
    jacobian,
    minimise,
    normal_nodes,
    weighted_quantiles,
)
from tests.specmodel.acceptance.depth_sweep import (
    ACCEPT_LENGTH_NOISE,
    accept_length_of,
    fit_tail_to_accept_lengths,
    geometric_acceptance_rate,
)

FloatArray = NDArray[np.float64]

families = pytest.mark.parametrize("family", TAILS.values(), ids=list(TAILS))
DEPTH = np.arange(1, 13)
LEVEL = 0.8
FIRST = 1.0 / (1.0 + np.exp(-LEVEL))


def parameters_of(family: TailFamily, spread: float) -> list[float]:
    mean, sd = family.mean, family.sd
    return [float(value) for value in mean + spread * sd]


@families
@given(level=st.floats(-30.0, 30.0), shape=st.floats(-8.0, 8.0))
def test_conditionals_are_lawful_for_any_parameters(
    family: TailFamily, level: float, shape: float
) -> None:
    parameters = [level, *(shape for _ in family.shape_mean)]
    curve = family.conditional_accuracy(parameters, np.arange(1, 60))
    assert np.all((curve >= 0.0) & (curve <= 1.0))


@families
@pytest.mark.parametrize("spread", [-1.0, 0.0, 1.0])
def test_first_depth_rises_with_the_level(family: TailFamily, spread: float) -> None:
    parameters = np.array(parameters_of(family, spread))
    higher = parameters + np.eye(parameters.size)[0]
    low = family.conditional_accuracy(parameters, [1])
    assert family.conditional_accuracy(higher, [1]) > low


@families
def test_many_curves_at_once_equal_one_by_one(family: TailFamily) -> None:
    many = np.array([parameters_of(family, spread) for spread in (-0.5, 0.0, 0.5)])
    table = family.conditional_accuracy(many, DEPTH)
    assert table.shape == (3, DEPTH.size)
    for row, parameters in zip(table, many, strict=True):
        assert row == pytest.approx(family.conditional_accuracy(parameters, DEPTH))


def test_constant_does_not_move() -> None:
    assert TAILS["constant"].conditional_accuracy([LEVEL], DEPTH) == pytest.approx([FIRST] * 12)


def test_first_then_constant_has_two_values() -> None:
    curve = TAILS["first-then-constant"].conditional_accuracy([LEVEL, -LEVEL], DEPTH)
    assert curve == pytest.approx([FIRST] + [0.5] * 11)


def test_exponential_runs_from_first_to_asymptote() -> None:
    curve = TAILS["exponential"].conditional_accuracy([LEVEL, -LEVEL, np.log(2.0)], [1, 3, 200])
    assert curve == pytest.approx([FIRST, 0.5 + (FIRST - 0.5) / np.e, 0.5])


def test_exponential_with_a_vanishing_length_is_first_then_constant() -> None:
    sudden = TAILS["exponential"].conditional_accuracy([LEVEL, -0.5, -8.0], DEPTH)
    constant = TAILS["first-then-constant"].conditional_accuracy([LEVEL, -0.5], DEPTH)
    assert sudden == pytest.approx(constant)


def test_geometric_decay_has_a_constant_ratio() -> None:
    curve = TAILS["geometric-decay"].conditional_accuracy([LEVEL, 0.2], DEPTH)
    assert curve[1:] / curve[:-1] == pytest.approx([np.exp(-0.2)] * 11)


def test_power_law_halves_when_depth_doubles() -> None:
    curve = TAILS["power-law"].conditional_accuracy([LEVEL, 1.0], [1, 2, 4, 8])
    assert curve == pytest.approx(FIRST / np.array([1, 2, 4, 8]))


def test_weibull_survival_is_a_stretched_power() -> None:
    curve = TAILS["weibull"].conditional_accuracy([LEVEL, np.log(1.3)], DEPTH)
    assert np.cumprod(curve) == pytest.approx(FIRST**DEPTH**1.3)


@pytest.mark.parametrize("family", [TAILS["geometric-decay"], TAILS["power-law"]])
def test_decay_families_cannot_rise(family: TailFamily) -> None:
    curve = family.conditional_accuracy([LEVEL, -1.0], DEPTH)
    assert np.all(np.diff(curve) <= 1e-12)


def test_names_find_the_families_and_the_default_comes_first() -> None:
    assert all(TAILS[name].name == name for name in TAILS)
    assert next(iter(TAILS.values())) is DEFAULT_TAIL
    assert sum(family.weight for family in TAILS.values()) == pytest.approx(1.0)


def test_beta_geometric_is_the_beta_distribution_of_requests() -> None:
    """Moments of a Beta distribution with this mean and correlation within a request."""
    total = 1.0 / 0.2 - 1.0
    survival = np.cumprod((FIRST * total + DEPTH - 1) / (total + DEPTH - 1))
    curve = TAILS["beta-geometric"].conditional_accuracy([LEVEL, 0.2], DEPTH)
    assert np.cumprod(curve) == pytest.approx(survival)


def curve_of(family: TailFamily, spread: float, depth: int) -> FullAccuracy:
    parameters = family.mean + spread * family.sd
    parameters[0] = 0.9
    return FullAccuracy(
        np.cumprod(family.conditional_accuracy(parameters, np.arange(1, depth + 1)))
    )


@families
def test_noise_free_depth_sweep_is_continued_by_its_own_family(family: TailFamily) -> None:
    truth = curve_of(family, 0.5, 16)
    depths = np.arange(1, 9)
    lengths = [truth.accept_length(int(depth)) for depth in depths]
    tail = fit_tail_to_accept_lengths(depths, lengths, family, relative_noise=1e-4)
    assert accept_length_of(tail, 16) == pytest.approx(truth.accept_length(), rel=2e-3)


@families
def test_list_is_continued_by_its_own_family(family: TailFamily) -> None:
    truth = curve_of(family, 0.3, 16)
    tail = fit_tail(FullAccuracy(truth.values[:8]), family)
    assert accept_length_of(tail, 16) == pytest.approx(truth.accept_length(), rel=0.01)


@families
@pytest.mark.parametrize("lengths", [(2.64, 3.01), (3.40, 4.50), (2.08, 2.27), (1.28, 1.29)])
def test_fit_finds_the_optimum_that_scipy_finds(
    family: TailFamily, lengths: tuple[float, float]
) -> None:
    mean, sd = family.mean, family.sd
    accepted = np.array(lengths) - 1.0

    def residual(parameters: FloatArray) -> FloatArray:
        survival = np.cumprod(family.conditional_accuracy(parameters, np.arange(1, 6)))
        data = (np.cumsum(survival)[[2, 4]] / accepted - 1.0) / ACCEPT_LENGTH_NOISE
        return np.concatenate([data, (parameters - mean) / sd])

    starts = [
        np.array([level, *(mean[1:] * factor)]) for level in (0.0, 2.0) for factor in (0.5, 2)
    ]
    best = min(optimize.least_squares(residual, start).cost for start in starts)
    tail = fit_tail_to_accept_lengths([3, 5], lengths, family)
    assert 0.5 * np.sum(residual(tail.parameters) ** 2) <= best + 1e-3


def test_one_depth_and_no_shape_is_the_geometric_chain() -> None:
    tail = fit_tail_to_accept_lengths([5], [2.75], TAILS["constant"])
    expected = float(geometric_acceptance_rate(2.75, 5))
    assert tail.family.conditional_accuracy(tail.parameters, [1, 9]) == pytest.approx(
        [expected] * 2, abs=1e-3
    )


def test_constant_list_stays_constant_in_the_default_family() -> None:
    tail = fit_tail(FullAccuracy(0.7 ** np.arange(1, 9)), TAILS["exponential"])
    assert tail.family.conditional_accuracy(tail.parameters, [8, 12]) == pytest.approx(
        [0.7, 0.7], abs=0.015
    )


def test_decay_length_stays_at_its_prior_with_two_data_and_moves_with_more() -> None:
    family = TAILS["exponential"]
    slow = FullAccuracy(
        np.cumprod(family.conditional_accuracy([1.5, -1.5, np.log(4.0)], range(1, 13)))
    )
    runs = [3, 5]
    two = fit_tail_to_accept_lengths(runs, [slow.accept_length(k) for k in runs], family)
    runs = list(range(1, 13))
    many = fit_tail_to_accept_lengths(
        runs, [slow.accept_length(k) for k in runs], family, relative_noise=1e-3
    )
    assert abs(two.parameters[2] - np.log(1.5)) < 0.5 * family.shape_sd[1]
    assert np.exp(many.parameters[2]) == pytest.approx(4.0, rel=0.1)
    assert np.std(many.draws[:, 2]) < 0.4 * np.std(two.draws[:, 2])


def test_draws_reproduce_what_was_measured() -> None:
    family = TAILS["first-then-constant"]
    tail = fit_tail_to_accept_lengths([5], [2.75], family)
    survival = np.cumprod(family.conditional_accuracy(tail.draws, np.arange(1, 6)), axis=-1)
    lengths = 1.0 + survival.sum(axis=-1)
    assert np.mean(lengths) == pytest.approx(2.75, abs=0.005)
    assert np.std(lengths) == pytest.approx(1.75 * ACCEPT_LENGTH_NOISE, rel=0.2)


def test_fit_is_a_function_of_its_input() -> None:
    full = FullAccuracy([0.7, 0.4, 0.2])
    first, second = (fit_tail(full, TAILS["exponential"]) for _ in range(2))
    assert first.draws.tolist() == second.draws.tolist()


@families
def test_lists_that_end_at_zero_are_fitted(family: TailFamily) -> None:
    tail = fit_tail(FullAccuracy([0.263, 0.02, 0.0, 0.0]), family)
    assert np.all(np.isfinite(tail.parameters))
    assert accept_length_of(tail, 8) < 1.5


@families
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (4.0, 6.0)])
def test_bounds_of_accept_length_are_fitted(
    family: TailFamily, lengths: tuple[float, float]
) -> None:
    tail = fit_tail_to_accept_lengths([3, 5], lengths, family)
    assert np.all(np.isfinite(tail.draws))
    assert 1.0 <= accept_length_of(tail, 7) <= 8.0


def test_linear_problems_have_their_closed_form() -> None:
    generator = np.random.default_rng(1)
    design = generator.normal(size=(6, 3))
    targets = generator.normal(size=(5, 6))
    found = minimise(
        lambda p: p @ design.T - targets, np.zeros((5, 3)), np.full(3, 10.0), tolerance=1e-14
    )
    expected = np.linalg.lstsq(design, targets.T, rcond=None)[0].T
    assert found == pytest.approx(expected, abs=1e-6)


def test_curved_valley_is_followed_to_its_end() -> None:
    def rosenbrock(p: FloatArray) -> FloatArray:
        return np.stack([1.0 - p[..., 0], 10.0 * (p[..., 1] - p[..., 0] ** 2)], axis=-1)

    found = minimise(
        rosenbrock, np.array([[-1.2, 1.0], [3.0, -2.0]]), np.full(2, 10.0), tolerance=1e-14
    )
    assert found == pytest.approx(np.ones((2, 2)), abs=1e-4)


def test_jacobian_of_a_product() -> None:
    def product(p: FloatArray) -> FloatArray:
        return np.stack([p[..., 0] * p[..., 1], p[..., 0] ** 2], axis=-1)

    point = np.array([[2.0, 3.0]])
    found = jacobian(product, point, product(point))
    assert found[0] == pytest.approx(np.array([[3.0, 2.0], [4.0, 0.0]]), abs=1e-5)


def test_nodes_have_mean_zero_and_unit_variance() -> None:
    nodes = normal_nodes(32, 3)
    assert nodes.shape == (64, 3)
    assert nodes.mean(axis=0) == pytest.approx([0.0] * 3, abs=1e-12)
    assert nodes.var(axis=0) == pytest.approx([1.0] * 3)
    assert normal_nodes(32, 3) is nodes


def test_quantiles_of_equal_weights_are_those_of_the_sample() -> None:
    values = np.random.default_rng(3).normal(size=(2001, 2))
    found = weighted_quantiles(values, np.ones(2001), (0.05, 0.5, 0.95))
    expected = np.quantile(values, [0.05, 0.5, 0.95], axis=0)
    assert found == pytest.approx(expected, abs=0.01)


def test_weight_counts_like_repetition() -> None:
    generator = np.random.default_rng(9)
    values, times = generator.normal(size=2000), generator.integers(1, 4, 2000)
    weighted = weighted_quantiles(values[:, None], times.astype(np.float64), (0.05, 0.95))
    repeated = np.quantile(np.repeat(values, times), [0.05, 0.95])
    assert weighted[:, 0] == pytest.approx(repeated, abs=0.01)
