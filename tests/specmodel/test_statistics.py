import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specmodel.errors import ParameterError
from specmodel.statistics import student_t_cdf, student_t_quantile

NODES = [1, 1.2, 1.5, 2, 2.2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20, 30, 60, 1e5]


@pytest.mark.parametrize("freedom", NODES)
def test_probabilities_at_the_nodes_are_exact(freedom: float) -> None:
    values = np.concatenate([np.linspace(-8, 8, 401), [-300, -30, 30, 300]])
    found = student_t_cdf(values, freedom)
    np.testing.assert_allclose(found, stats.t.cdf(values, freedom), atol=3e-6)


def test_probabilities_between_the_nodes_are_within_a_thousandth() -> None:
    freedom = np.geomspace(1, 1e4, 150)[:, None]
    values = np.linspace(-10, 10, 121)[None, :]
    found = student_t_cdf(values, freedom)
    np.testing.assert_allclose(found, stats.t.cdf(values, freedom), atol=1e-3)


@pytest.mark.parametrize("probability", [0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995])
def test_quantiles_are_within_one_percent(probability: float) -> None:
    freedom = np.geomspace(2, 1e6, 200)
    found = student_t_quantile(probability, freedom)
    np.testing.assert_allclose(found, stats.t.ppf(probability, freedom), rtol=0.01, atol=1e-6)


@given(st.floats(0.01, 0.99), st.floats(1, 1e6))
def test_the_quantile_is_the_inverse_of_the_probability(probability: float, freedom: float) -> None:
    value = student_t_quantile(probability, freedom)
    assert float(student_t_cdf(value, freedom)) == pytest.approx(probability, abs=5e-3)


@given(st.floats(-50, 50), st.floats(1, 1e6))
def test_the_distribution_is_symmetric(value: float, freedom: float) -> None:
    both = float(student_t_cdf(value, freedom)) + float(student_t_cdf(-value, freedom))
    assert both == pytest.approx(1.0, abs=1e-9)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    values = np.linspace(-4, 4, 81)
    found = student_t_cdf(values, 1e12)
    np.testing.assert_allclose(found, stats.norm.cdf(values), atol=1e-5)


def test_scalars_and_arrays_agree() -> None:
    values, freedom = np.array([-1.0, 0.3, 2.0]), np.array([1.0, 7.0, 90.0])
    together = student_t_cdf(values, freedom)
    alone = [float(student_t_cdf(v, f)) for v, f in zip(values, freedom, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert student_t_cdf(values[:, None], freedom[None, :]).shape == (3, 3)
    assert student_t_quantile(0.9, freedom).shape == (3,)


def test_fewer_degrees_of_freedom_make_wider_intervals() -> None:
    assert np.all(np.diff(student_t_quantile(0.95, np.geomspace(1, 1e5, 60))) < 0)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ParameterError, match="degrees_of_freedom"):
        student_t_cdf(0.0, 0.5)
    with pytest.raises(ParameterError, match="degrees_of_freedom"):
        student_t_quantile(0.9, np.nan)
    for probability in (0.0, 1.0):
        with pytest.raises(ParameterError, match="probability"):
            student_t_quantile(probability, 5)
