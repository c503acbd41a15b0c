import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.acceptance import (
    DEFAULT_TAIL,
    TAILS,
    AbstractTail,
    BetaGeometricTail,
    ConstantTail,
    ExponentialTail,
    FirstThenConstantTail,
    GeometricDecayTail,
    PowerLawTail,
    WeibullTail,
    beta_conditional_accuracy,
)
from specmodel.errors import ParameterError

families = pytest.mark.parametrize("family", TAILS.values(), ids=list(TAILS))
DEPTH = np.arange(1, 13)
LEVEL = 0.8
FIRST = 1.0 / (1.0 + np.exp(-LEVEL))


def parameters_of(family: AbstractTail, spread: float) -> list[float]:
    mean, sd = family.prior.full_mean(), family.prior.full_sd()
    return [float(value) for value in mean + spread * sd]


@families
@given(level=st.floats(-30.0, 30.0), shape=st.floats(-8.0, 8.0))
def test_conditionals_are_lawful_for_any_parameters(
    family: AbstractTail, level: float, shape: float
) -> None:
    parameters = [level, *(shape for _ in family.prior.mean)]
    curve = family.conditional_accuracy(parameters, np.arange(1, 60))
    assert np.all((curve >= 0.0) & (curve <= 1.0))


@families
@pytest.mark.parametrize("spread", [-1.0, 0.0, 1.0])
def test_first_depth_rises_with_the_level(family: AbstractTail, spread: float) -> None:
    parameters = np.array(parameters_of(family, spread))
    higher = parameters + np.eye(parameters.size)[0]
    low = family.conditional_accuracy(parameters, [1])
    assert family.conditional_accuracy(higher, [1]) > low


@families
def test_many_curves_at_once_equal_one_by_one(family: AbstractTail) -> None:
    many = np.array([parameters_of(family, spread) for spread in (-0.5, 0.0, 0.5)])
    table = family.conditional_accuracy(many, DEPTH)
    assert table.shape == (3, DEPTH.size)
    for row, parameters in zip(table, many, strict=True):
        assert row == pytest.approx(family.conditional_accuracy(parameters, DEPTH))


@families
def test_depth_zero_is_refused(family: AbstractTail) -> None:
    with pytest.raises(ParameterError, match="depth"):
        family.conditional_accuracy(parameters_of(family, 0.0), [0])


def test_constant_does_not_move() -> None:
    assert ConstantTail().conditional_accuracy([LEVEL], DEPTH) == pytest.approx([FIRST] * 12)


def test_first_then_constant_has_two_values() -> None:
    curve = FirstThenConstantTail().conditional_accuracy([LEVEL, -LEVEL], DEPTH)
    assert curve == pytest.approx([FIRST] + [0.5] * 11)


def test_exponential_runs_from_first_to_asymptote() -> None:
    curve = ExponentialTail().conditional_accuracy([LEVEL, -LEVEL, np.log(2.0)], [1, 3, 200])
    assert curve == pytest.approx([FIRST, 0.5 + (FIRST - 0.5) / np.e, 0.5])


def test_exponential_with_a_vanishing_length_is_first_then_constant() -> None:
    sudden = ExponentialTail().conditional_accuracy([LEVEL, -0.5, -8.0], DEPTH)
    constant = FirstThenConstantTail().conditional_accuracy([LEVEL, -0.5], DEPTH)
    assert sudden == pytest.approx(constant)


def test_geometric_decay_has_a_constant_ratio() -> None:
    curve = GeometricDecayTail().conditional_accuracy([LEVEL, 0.2], DEPTH)
    assert curve[1:] / curve[:-1] == pytest.approx([np.exp(-0.2)] * 11)


def test_power_law_halves_when_depth_doubles() -> None:
    curve = PowerLawTail().conditional_accuracy([LEVEL, 1.0], [1, 2, 4, 8])
    assert curve == pytest.approx(FIRST / np.array([1, 2, 4, 8]))


def test_weibull_survival_is_a_stretched_power() -> None:
    curve = WeibullTail().conditional_accuracy([LEVEL, np.log(1.3)], DEPTH)
    assert np.cumprod(curve) == pytest.approx(FIRST**DEPTH**1.3)


def test_beta_geometric_is_the_beta_distribution_of_requests() -> None:
    curve = BetaGeometricTail().conditional_accuracy([LEVEL, 0.2], DEPTH)
    assert curve == pytest.approx(beta_conditional_accuracy(FIRST, 0.2, DEPTH))


@pytest.mark.parametrize("family", [GeometricDecayTail(), PowerLawTail()])
def test_decay_families_cannot_rise(family: AbstractTail) -> None:
    curve = family.conditional_accuracy([LEVEL, -1.0], DEPTH)
    assert np.all(np.diff(curve) <= 1e-12)


def test_names_find_the_families_and_the_default_comes_first() -> None:
    assert all(TAILS[name].name == name for name in TAILS)
    assert next(iter(TAILS.values())) is DEFAULT_TAIL
    assert sum(family.prior.weight for family in TAILS.values()) == pytest.approx(1.0)
