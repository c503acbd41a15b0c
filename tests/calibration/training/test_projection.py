import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.training.curves import AccuracyCurves, accuracy_curves
from calibration.training.projection import Projection, ProjectionRefused, project
from specmodel.errors import ParameterError
from tests.calibration.training.run_generator import central

Array = NDArray[np.float64]
GOLDEN = Path(__file__).parents[2] / "golden" / "training_curves.csv"


def run(
    *,
    seen: float = 0.5,
    gain: float = 0.4,
    rates: str = "cosine",
    total: int | None = 10_000,
    every: int = 250,
    noise: float = 0.002,
) -> AccuracyCurves:
    """Three depths that saturate; the fraction of 10,000 steps that has been seen."""
    steps = np.arange(every, seen * 10_000 + 1, every, dtype=np.float64)
    rng = np.random.default_rng(7)
    values = truth(steps, gain) + rng.normal(0.0, noise, size=(steps.size, 3))
    rate = {
        "cosine": 0.5 * (1.0 + np.cos(np.pi * steps / 10_000)),
        "constant": np.ones_like(steps),
        "rising": steps / 10_000,
        "none": np.full_like(steps, np.nan),
    }[rates]
    return accuracy_curves(
        steps, values, kind="conditional", learning_rate=1e-4 * rate, total_steps=total
    )


def truth(steps: Array, gain: float = 0.4) -> Array:
    """Conditional accuracies without noise."""
    rise = 1.0 - np.exp(-steps / 2000.0)
    return np.asarray(0.3 + gain * rise[:, None] * np.array([1.0, 0.9, 0.8]))


def codes(projection: Projection) -> set[str]:
    return {finding.code for finding in projection.findings}


def test_the_end_of_a_saturating_run_is_found() -> None:
    ahead = project(run())
    true = 1.0 + np.cumprod(truth(np.array([10_000.0])), axis=1).sum()
    assert ahead.end is not None
    low, high = central(ahead.end.accept_lengths())
    assert low < true < high
    assert ahead.end.accept_length() == pytest.approx(true, rel=0.02)
    assert ahead.end.conditional.shape == (2000, 3)
    assert ahead.target.step == ahead.end_step == 10_000


def test_the_accept_length_of_a_draw_is_its_chain_with_the_bonus_token() -> None:
    now = project(run()).now
    chain = now.conditional
    by_hand = 1.0 + chain[:, 0] * (1.0 + chain[:, 1] * (1.0 + chain[:, 2]))
    np.testing.assert_allclose(now.accept_lengths(), by_hand)
    np.testing.assert_allclose(now.accept_lengths(2), 1.0 + chain[:, 0] * (1.0 + chain[:, 1]))


def test_fewer_than_five_points_are_refused() -> None:
    with pytest.raises(ProjectionRefused) as refusal:
        project(run(seen=0.1))
    assert refusal.value.code == "too-few-points"
    assert project(run(seen=0.125)).num_points == 5


def test_points_in_warm_up_do_not_count() -> None:
    steps = np.arange(100.0, 901.0, 100.0)
    rates = np.minimum(steps / 600.0, 1.0)
    curve = accuracy_curves(
        steps, np.full((9, 1), 0.5), kind="joint", learning_rate=rates, total_steps=9000
    )
    with pytest.raises(ProjectionRefused) as refusal:
        project(curve)
    assert refusal.value.code == "too-few-points"


def test_a_projection_before_warm_up_ends_is_refused() -> None:
    with pytest.raises(ProjectionRefused) as refusal:
        project(run(rates="rising"))
    assert refusal.value.code == "before-warm-up-ends"


def test_a_projection_before_the_decay_says_so_and_is_wider_upward() -> None:
    before, during = project(run(rates="constant", noise=0.0005)), project(run(noise=0.0005))
    assert "before-decay" in codes(before)
    assert "before-decay" not in codes(during)
    assert before.end is not None
    low, high = central(before.end.accept_lengths())
    median = before.end.accept_length()
    assert high - median > 1.2 * (median - low)


def test_an_unknown_total_is_said_and_may_be_inferred() -> None:
    inferred = project(run(total=None))
    assert inferred.end_step == pytest.approx(10_000, rel=0.03)
    assert "end-inferred" in codes(inferred)
    unknown = project(run(total=None, rates="constant"))
    assert unknown.end is None
    assert "total-steps-unknown" in codes(unknown)
    assert unknown.target.step == unknown.last_step
    assert project(run(total=None, rates="constant"), 8000).target.step == 8000


def test_no_learning_rate_is_said() -> None:
    assert "learning-rate-unknown" in codes(project(run(rates="none")))


def test_a_flat_run_is_called_flat_and_stays_where_it_is() -> None:
    ahead = project(run(gain=0.0, noise=0.001))
    assert "flat" in codes(ahead)
    assert ahead.end is not None
    assert ahead.end.accept_length() == pytest.approx(1.0 + 0.3 + 0.09 + 0.027, rel=0.01)
    assert "flat" not in codes(project(run(seen=0.3)))


def test_the_interval_widens_with_the_distance() -> None:
    ahead = project(run(seen=0.3))
    widths = [
        high - low
        for low, high in (
            central(ahead.at(step).accept_lengths()) for step in (3000, 4000, 6000, 10_000, 30_000)
        )
    ]
    assert widths == sorted(widths)
    assert ahead.at(3000).accept_length() == pytest.approx(ahead.now.accept_length(), rel=0.01)


def test_a_later_projection_is_narrower() -> None:
    ends = [project(run(seen=seen)).end for seen in (0.2, 0.4, 0.8)]
    widths = [np.ptp(central(end.accept_lengths())) for end in ends if end is not None]
    assert widths == sorted(widths, reverse=True)


def test_the_same_curves_give_the_same_projection() -> None:
    one, other = project(run()), project(run())
    np.testing.assert_array_equal(one.target.conditional, other.target.conditional)


def test_a_step_before_the_last_one_is_refused() -> None:
    with pytest.raises(ParameterError, match="at_step"):
        project(run(), 100.0)


def test_a_record_of_a_bad_batch_hardly_moves_the_projection() -> None:
    curve = run()
    values = curve.conditional.copy()
    values[12] -= 0.15
    spoilt = accuracy_curves(
        curve.steps, values, kind="conditional", learning_rate=curve.rates, total_steps=10_000
    )
    clean, other = project(curve).target, project(spoilt).target
    assert other.accept_length() == pytest.approx(clean.accept_length(), rel=0.02)


# --- real curves ---


def real_curves() -> dict[str, list[dict[str, str]]]:
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["curve"], []).append(row)
    return found


def columns(rows: Iterable[dict[str, str]]) -> tuple[Array, Array]:
    """Epochs done and values, by depth."""
    by_position: dict[float, list[float]] = {}
    for row in rows:
        by_position.setdefault(float(row["position"]) + 1.0, []).append(float(row["value"]))
    return np.array(list(by_position)), np.array(list(by_position.values()))


def test_the_last_third_of_the_real_curve_lies_in_its_intervals() -> None:
    epochs, values = columns(real_curves()["public-report-02a"])
    first = epochs <= 2.0 / 3.0 * epochs[-1]
    assert (int(first.sum()), int((~first).sum())) == (8, 5)
    seen = accuracy_curves(epochs[first], values[first], kind="joint", total_steps=int(epochs[-1]))
    ahead = project(seen)
    noise = np.random.default_rng(0).normal(0.0, ahead.point_error[0], size=2000)
    inside, errors = [], []
    for epoch, value in zip(epochs[~first], values[~first, 0], strict=True):
        draws = ahead.at(epoch).conditional[:, 0]
        low, high = np.quantile(draws + noise, (0.05, 0.95))
        inside.append(low <= value <= high)
        errors.append(abs(np.median(draws) - value) / (1.0 + value))
    assert all(inside)
    assert max(errors) < 0.01


def test_no_other_real_curve_has_enough_points() -> None:
    enough = set()
    for name, rows in real_curves().items():
        epochs, _ = columns(rows)
        if (epochs <= 2.0 / 3.0 * epochs[-1]).sum() >= 5:
            enough.add(name)
    assert enough == {"public-report-02a"}
    epochs, values = columns(real_curves()["public-report-08"])
    with pytest.raises(ProjectionRefused, match="too-few-points"):
        project(accuracy_curves(epochs, values, kind="conditional"))


def test_points_of_a_moment_say_nothing_of_the_rest_of_a_run() -> None:
    steps = np.arange(700.0, 705.0)
    values = np.array([[0.60], [0.61], [0.60], [0.62], [0.61]])
    curves = accuracy_curves(steps, values, kind="marginal", total_steps=5000)
    with pytest.raises(ProjectionRefused, match="within 4 steps, and 4296 lie ahead") as raised:
        project(curves)
    assert raised.value.code == "too-few-points"
