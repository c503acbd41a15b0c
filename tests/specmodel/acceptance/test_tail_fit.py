import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from specmodel.acceptance import (
    TAILS,
    AbstractTail,
    ConstantTail,
    ExponentialTail,
    FirstThenConstantTail,
    FullAccuracy,
    fit_tail,
    fit_tail_to_accept_lengths,
    geometric_acceptance_rate,
)
from specmodel.acceptance.tail_fit import ACCEPT_LENGTH_NOISE
from specmodel.errors import ParameterError

FloatArray = NDArray[np.float64]

families = pytest.mark.parametrize("family", TAILS.values(), ids=list(TAILS))


def curve_of(family: AbstractTail, spread: float, depth: int) -> FullAccuracy:
    parameters = family.prior.full_mean() + spread * family.prior.full_sd()
    parameters[0] = 0.9
    return FullAccuracy(
        np.cumprod(family.conditional_accuracy(parameters, np.arange(1, depth + 1)))
    )


@families
def test_noise_free_depth_sweep_is_continued_by_its_own_family(family: AbstractTail) -> None:
    truth = curve_of(family, 0.5, 16)
    depths = np.arange(1, 9)
    lengths = [truth.accept_length(int(depth)) for depth in depths]
    tail = fit_tail_to_accept_lengths(depths, lengths, family, relative_noise=1e-4)
    assert tail.accept_length(16) == pytest.approx(truth.accept_length(), rel=2e-3)


@families
def test_list_is_continued_by_its_own_family(family: AbstractTail) -> None:
    truth = curve_of(family, 0.3, 16)
    tail = fit_tail(truth.truncate(8), family)
    assert tail.accept_length(16) == pytest.approx(truth.accept_length(), rel=0.01)


@families
@pytest.mark.parametrize("lengths", [(2.64, 3.01), (3.40, 4.50), (2.08, 2.27), (1.28, 1.29)])
def test_fit_finds_the_optimum_that_scipy_finds(
    family: AbstractTail, lengths: tuple[float, float]
) -> None:
    mean, sd = family.prior.full_mean(), family.prior.full_sd()
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
    tail = fit_tail_to_accept_lengths([5], [2.75], ConstantTail())
    expected = float(geometric_acceptance_rate(2.75, 5))
    assert tail.conditional_accuracy([1, 9]) == pytest.approx([expected] * 2, abs=1e-3)


def test_constant_list_stays_constant_in_the_default_family() -> None:
    tail = fit_tail(FullAccuracy(0.7 ** np.arange(1, 9)), ExponentialTail())
    assert tail.conditional_accuracy([8, 12]) == pytest.approx([0.7, 0.7], abs=0.015)


def test_decay_length_stays_at_its_prior_with_two_data_and_moves_with_more() -> None:
    family = ExponentialTail()
    slow = FullAccuracy(
        np.cumprod(family.conditional_accuracy([1.5, -1.5, np.log(4.0)], range(1, 13)))
    )
    runs = [3, 5]
    two = fit_tail_to_accept_lengths(runs, [slow.accept_length(k) for k in runs], family)
    runs = list(range(1, 13))
    many = fit_tail_to_accept_lengths(
        runs, [slow.accept_length(k) for k in runs], family, relative_noise=1e-3
    )
    assert abs(two.parameters[2] - np.log(1.5)) < 0.5 * family.prior.sd[1]
    assert np.exp(many.parameters[2]) == pytest.approx(4.0, rel=0.1)
    assert np.std(many.draws[:, 2]) < 0.4 * np.std(two.draws[:, 2])


def test_draws_reproduce_what_was_measured() -> None:
    family = FirstThenConstantTail()
    tail = fit_tail_to_accept_lengths([5], [2.75], family)
    survival = np.cumprod(family.conditional_accuracy(tail.draws, np.arange(1, 6)), axis=-1)
    lengths = 1.0 + survival.sum(axis=-1)
    assert np.mean(lengths) == pytest.approx(2.75, abs=0.005)
    assert np.std(lengths) == pytest.approx(1.75 * ACCEPT_LENGTH_NOISE, rel=0.2)


def test_fit_is_a_function_of_its_input() -> None:
    full = FullAccuracy([0.7, 0.4, 0.2])
    first, second = (fit_tail(full, ExponentialTail()) for _ in range(2))
    assert first.draws.tolist() == second.draws.tolist()


@families
def test_lists_that_end_at_zero_are_fitted(family: AbstractTail) -> None:
    tail = fit_tail(FullAccuracy([0.263, 0.02, 0.0, 0.0]), family)
    assert np.all(np.isfinite(tail.parameters))
    assert tail.accept_length(8) < 1.5


@families
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (4.0, 6.0)])
def test_bounds_of_accept_length_are_fitted(
    family: AbstractTail, lengths: tuple[float, float]
) -> None:
    tail = fit_tail_to_accept_lengths([3, 5], lengths, family)
    assert np.all(np.isfinite(tail.draws))
    assert 1.0 <= tail.accept_length(7) <= 8.0


def test_impossible_runs_are_refused() -> None:
    with pytest.raises(ParameterError, match="one per depth"):
        fit_tail_to_accept_lengths([3, 5], [2.6], ConstantTail())
    with pytest.raises(ParameterError, match=r"accept_length\[0\]"):
        fit_tail_to_accept_lengths([3, 5], [4.2, 4.3], ConstantTail())
    with pytest.raises(ParameterError, match="not none"):
        fit_tail_to_accept_lengths([], [], ConstantTail())
