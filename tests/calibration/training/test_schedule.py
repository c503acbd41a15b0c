import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.training.schedule import Decay, Schedule, read_schedule

Array = NDArray[np.float64]

TOTAL, WARM_UP = 10_000, 300


def printed(shape: str, steps: Array, floor: float = 0.0) -> Array:
    """Learning rates with three digits, as trainers print them."""
    progress = np.clip((steps - WARM_UP) / (TOTAL - WARM_UP), 0.0, 1.0)
    value = {
        "cosine": 0.5 * (1.0 + np.cos(np.pi * progress)),
        "linear": 1.0 - progress,
        "wsd": np.clip((1.0 - progress) / 0.2, 0.0, 1.0),
        "constant": np.ones_like(progress),
    }[shape]
    rate = np.where(steps < WARM_UP, steps / WARM_UP, floor + (1.0 - floor) * value)
    return np.array([float(f"{each:.2e}") for each in 2e-4 * rate])


def read(shape: str, seen: float, *, total: bool = False, floor: float = 0.0) -> Schedule:
    steps = np.arange(10.0, seen * TOTAL + 1, 10.0)
    return read_schedule(steps, printed(shape, steps, floor), total_steps=TOTAL if total else None)


@pytest.mark.parametrize("seen", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("shape", ["cosine", "linear"])
def test_the_form_and_the_planned_end_follow_from_the_rates(shape: str, seen: float) -> None:
    found = read(shape, seen)
    assert found.decay.value == shape
    assert found.end == pytest.approx(TOTAL, rel=0.02)
    assert found.decay_begun is True
    assert not found.end_known


@pytest.mark.parametrize("shape", ["cosine", "linear", "wsd", "constant"])
def test_warm_up_ends_at_the_peak(shape: str) -> None:
    assert read(shape, 0.3).warm_up_end == pytest.approx(WARM_UP, abs=20)
    assert not read(shape, 0.3).in_warm_up
    assert read(shape, 0.02).in_warm_up


def test_a_constant_rate_has_no_end_and_no_decay_yet() -> None:
    found = read("wsd", 0.7)
    assert found.decay is Decay.CONSTANT
    assert found.decay_begun is False
    assert found.end is None
    assert read("wsd", 0.7, total=True).end == TOTAL


def test_a_late_decay_is_seen_with_its_end() -> None:
    found = read("wsd", 0.9)
    assert found.decay_begun is True
    assert found.decay_start == pytest.approx(0.8 * TOTAL, rel=0.02)
    assert found.end == pytest.approx(TOTAL, rel=0.02)
    assert found.relative_rate([0.95 * TOTAL])[0] == pytest.approx(0.26, abs=0.03)


def test_a_known_end_fixes_the_floor() -> None:
    found = read("cosine", 0.6, total=True, floor=0.1)
    assert found.end_known
    assert found.floor == pytest.approx(0.1, abs=0.02)
    assert found.relative_rate([TOTAL])[0] == pytest.approx(0.1, abs=0.02)


def test_an_early_cosine_does_not_tell_its_end() -> None:
    """Where it has hardly fallen, a floor and a longer run look the same."""
    found = read("cosine", 0.12)
    assert found.end is None or found.end == pytest.approx(TOTAL, rel=0.15)


def test_a_second_warm_up_does_not_hide_the_decay() -> None:
    steps = np.arange(10.0, 6001.0, 10.0)
    rates = printed("cosine", steps)
    again = (steps > 3000) & (steps < 3200)
    rates[again] *= (steps[again] - 3000) / 200
    found = read_schedule(steps, rates)
    assert found.decay is Decay.COSINE
    assert found.end == pytest.approx(TOTAL, rel=0.02)
    assert not found.in_warm_up


def test_an_unknown_form_is_called_unknown() -> None:
    steps = np.arange(10.0, 4001.0, 10.0)
    rates = 1e-4 * (0.55 + 0.45 * np.sign(np.sin(steps / 200.0)))
    assert read_schedule(steps, rates, total_steps=9000).decay is Decay.UNKNOWN


@pytest.mark.parametrize("rates", [[], [0.0, 0.0], [float("nan")] * 2])
def test_without_rates_nothing_is_said(rates: list[float]) -> None:
    found = read_schedule([1.0, 2.0][: len(rates)], rates, total_steps=50)
    assert not found.known
    assert found.decay_begun is None
    assert found.end == 50
    assert found.relative_rate([1.0, 40.0]).tolist() == [1.0, 1.0]
