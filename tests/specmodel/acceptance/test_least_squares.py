import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.acceptance.least_squares import jacobian, minimise
from specmodel.acceptance.nodes import normal_nodes, weighted_quantiles

FloatArray = NDArray[np.float64]


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
