import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.training.learning_curve import CurveDraws, draw_curves, shape_grid

Array = NDArray[np.float64]

STEPS = np.arange(1.0, 41.0) / 40.0


def drawn(accuracies: Array, error: float = 0.002, seed: int = 0) -> CurveDraws:
    return draw_curves(
        steps=STEPS,
        summed_rate=None,
        fallen=np.zeros_like(STEPS),
        accuracies=accuracies,
        errors=np.full(accuracies.shape, error),
        num_draws=1000,
        rng=np.random.default_rng(seed),
    )


def test_every_shape_rises_from_minus_one_to_zero_and_on() -> None:
    shapes, _ = shape_grid(with_rate=True)
    first = np.full(shapes.rate.size, 0.1)
    rise = shapes.rise(first, np.tile([0.1, 0.5, 1.0, 3.0], (first.size, 1)))
    np.testing.assert_allclose(rise[:, 0], -1.0)
    np.testing.assert_allclose(rise[:, 2], 0.0, atol=1e-12)
    assert np.all(np.diff(rise, axis=1) > 0.0)


def test_an_exponential_is_told_from_a_power_law() -> None:
    exponential = (0.7 - 0.6 * np.exp(-STEPS / 0.2))[:, None]
    power = (0.75 - 0.15 * (STEPS + 0.03) ** -0.5)[:, None]
    rng = np.random.default_rng(4)
    for values, name in ((exponential, "exponential"), (power, "power")):
        weights = drawn(values + rng.normal(0.0, 0.002, size=values.shape)).form_weights()
        assert sum(weights.values()) == pytest.approx(1.0)
        assert weights[name] + weights[f"{name}-logit"] > 0.8


def test_the_level_at_the_last_point_is_known_better_than_a_point() -> None:
    rng = np.random.default_rng(5)
    values = (0.7 - 0.5 * np.exp(-STEPS / 0.15))[:, None] + rng.normal(0.0, 0.01, size=(40, 1))
    draws = drawn(values, error=0.01)
    level = draws.coefficients[:, 0, 0]
    level = np.where(draws.logit, 1.0 / (1.0 + np.exp(-level)), level)
    assert np.median(level) == pytest.approx(0.7 - 0.5 * np.exp(-1 / 0.15), abs=0.012)
    assert np.std(level) < 0.01


def test_depths_whose_scatter_moves_together_are_drawn_together() -> None:
    rng = np.random.default_rng(6)
    curve = (0.6 - 0.4 * np.exp(-STEPS / 0.2))[:, None] * np.ones(2)
    shared = rng.normal(0.0, 0.01, size=(40, 1)) * np.ones(2)
    alone = rng.normal(0.0, 0.01, size=(40, 2))

    def correlation(values: Array) -> float:
        draws = drawn(values, error=0.01)
        level = draws.coefficients[draws.logit, :, 0]
        return float(np.asarray(np.corrcoef(level.T))[0, 1])

    assert correlation(curve + shared) > correlation(curve + alone) + 0.2


def test_nothing_breaks_where_accuracies_are_zero_or_one() -> None:
    for value in (0.0, 1.0):
        assert np.all(np.isfinite(drawn(np.full((40, 2), value)).coefficients))
