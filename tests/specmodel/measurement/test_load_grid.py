"""Values between measured loads: power laws are exact, ends are said, holes are allowed."""

import math

import pytest

from specmodel.errors import ParameterError
from specmodel.measurement.load_grid import Beyond, Load, interpolate

AXES = ("batch", "context")
BATCHES, CONTEXTS = (1, 2, 8, 64), (512, 2048, 32768)


def power_law(batch: float, context: float) -> float:
    return 3e-4 * math.pow(batch, 0.25) * math.pow(context, 0.125)


GRID: dict[Load, float] = {(float(b), float(c)): power_law(b, c) for b in BATCHES for c in CONTEXTS}


@pytest.mark.parametrize("batch", [1, 1.5, 4, 63])
@pytest.mark.parametrize("context", [512, 1000, 2048, 20000])
def test_a_power_law_is_reproduced_between_the_measured_loads(batch: float, context: float) -> None:
    found = interpolate(GRID, (batch, context), AXES)
    assert found.value == pytest.approx(power_law(batch, context), rel=1e-12)
    assert found.beyond == ()


def test_a_power_law_goes_on_past_the_measured_loads_and_that_is_said() -> None:
    found = interpolate(GRID, (128, 256), AXES)
    assert found.value == pytest.approx(power_law(128, 256), rel=1e-12)
    assert set(found.beyond) == {Beyond("batch", 128, 1, 64), Beyond("context", 256, 512, 32768)}


def test_a_measured_load_gives_the_measurement_itself() -> None:
    points: dict[Load, float] = {(1.0, 512.0): 2.0, (1.0, 2048.0): 7.0, (2.0, 512.0): 3.0}
    found = interpolate(points, (1, 2048), AXES)
    assert found.value == pytest.approx(7.0, rel=1e-15)
    assert found.beyond == ()


def test_a_hole_is_filled_along_its_own_row_and_said() -> None:
    points: dict[Load, float] = {(1.0, 512.0): 2.0, (1.0, 2048.0): 4.0, (8.0, 512.0): 5.0}
    found = interpolate(points, (8, 2048), AXES)
    assert found.value == pytest.approx(5.0)
    assert found.beyond == (Beyond("context", 2048, 512, 512),)


def test_past_the_end_a_time_that_fell_by_noise_does_not_go_on_falling() -> None:
    points: dict[Load, float] = {(1.0,): 2.0, (2.0,): 1.9}
    assert interpolate(points, (64,), ("batch",)).value == pytest.approx(1.9)
    assert interpolate(points, (0.5,), ("batch",)).value == pytest.approx(2.0)
    assert interpolate(points, (math.sqrt(2),), ("batch",)).value == pytest.approx(
        math.sqrt(2.0 * 1.9)
    )


def test_a_time_affine_in_the_context_is_bounded_by_the_lines_from_above() -> None:
    points: dict[Load, float] = {(float(c),): 1e-4 + 1e-9 * c for c in (512, 2048, 8192, 32768)}
    for context in (700, 1024, 5000, 20000):
        exact = 1e-4 + 1e-9 * context
        found = interpolate(points, (context,), ("context",)).value
        assert exact <= found <= 1.03 * exact


def test_no_context_costs_what_one_token_costs() -> None:
    points: dict[Load, float] = {(0.0,): 2.0, (1.0,): 2.0, (1024.0,): 4.0}
    assert interpolate(points, (0.5,), ("context",)).value == pytest.approx(2.0)
    assert interpolate(points, (32,), ("context",)).value == pytest.approx(math.sqrt(8.0))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_an_impossible_load_is_refused_by_name(wrong: float) -> None:
    with pytest.raises(ParameterError, match="context must be finite and not negative"):
        interpolate(GRID, (1, wrong), AXES)
