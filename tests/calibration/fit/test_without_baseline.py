"""Points without a baseline: rounds in milliseconds, the best depth, and what waits for a baseline."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from calibration import fit
from specmodel.calibration import Calibration
from specmodel.errors import ExtrapolationWarning, FitError, UsageError
from specmodel.units import MILLI

Fitted = Callable[[str], Calibration]


@pytest.fixture
def fitted(tmp_path: Path) -> Fitted:
    def of(text: str) -> Calibration:
        bench = tmp_path / "bench.csv"
        bench.write_text(text, encoding="utf-8")
        fit(bench).save(tmp_path / "calibration.json")
        return Calibration.load(tmp_path / "calibration.json")

    return of


LADDER = "k,batch,accept_length,tok/s\n1,1,1.7,85\n3,1,2.4,96\n5,1,2.7,90\n"


def round_ms(found: Calibration, depth: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ExtrapolationWarning
        )  # depths and accept lengths between rows
        parts = found.predict(1.7, depth=depth).prediction.breakdown
    return sum(part.time_s or 0.0 for part in parts) / MILLI


def test_rounds_are_17_5_and_2_5_ms_a_step_and_depth_3_is_best(fitted: Fitted) -> None:
    found = fitted(LADDER)
    for depth in range(1, 6):
        assert round_ms(found, depth) == pytest.approx(17.5 + 2.5 * depth, rel=0.02)
    answer = found.predict(depth=range(1, 6))
    assert answer.choice is not None
    assert answer.choice.best_num_steps == 3
    assert answer.best == 2
    assert 0.3 < answer.choice.probability < 1.0
    assert answer.choice.regret < 0.03
    rates = [float(one.prediction.output_tokens_per_s or 0.0) for one in answer.depths]
    assert rates[0::2] == pytest.approx([85.0, 96.0, 90.0], rel=0.01)


def test_what_compares_with_no_speculation_waits_for_a_baseline(fitted: Fitted) -> None:
    found = fitted(LADDER)
    alone = found.predict(2.4, depth=3)
    record = alone.to_dict()
    assert record["speedup"]["median"] is None
    assert record["probability_faster"] is None
    assert record["break_even_accept_length"]["median"] is None
    assert record["output_tokens_per_s"]["median"] == pytest.approx(96.0, rel=0.01)
    with_one = found.predict(2.4, depth=3, baseline_tokens_per_s=80.0)
    assert float(with_one.speedup) == pytest.approx(1.2, rel=0.01)
    assert float(with_one.break_even_accept_length) == pytest.approx(2.0, rel=0.01)
    assert with_one.probability_faster > 0.95
    assert found.predict(2.4, depth=3, baseline_tokens_per_s=96.0).probability_faster == (
        pytest.approx(0.5, abs=0.05)
    )
    with pytest.raises(UsageError, match="--baseline"):
        found.predict(target_speedup=1.2, depth=3)


def test_the_probability_is_that_of_the_interval(fitted: Fitted) -> None:
    """At a baseline of the lower end of the tokens/s it is .95, at the upper end .05."""
    found = fitted(LADDER)
    output = found.predict(2.4, depth=3).output_tokens_per_s
    assert output is not None
    for rate, chance in ((output.low, 0.95), (output.high, 0.05)):
        answer = found.predict(2.4, depth=3, baseline_tokens_per_s=rate)
        assert answer.probability_faster == pytest.approx(chance, abs=1e-3)


def test_a_given_baseline_says_the_same_as_one_in_the_points(fitted: Fitted) -> None:
    """The right value is that of the identity: round cost accept x baseline / throughput."""
    found = fitted(LADDER)
    for depth, accept, rate in ((1, 1.7, 85.0), (3, 2.4, 96.0), (5, 2.7, 90.0)):
        answer = found.predict(accept, depth=depth, baseline_tokens_per_s=50.0)
        assert float(answer.round_cost) == pytest.approx(accept * 50.0 / rate, rel=0.02)


def test_loads_without_a_baseline_have_rounds_of_their_own(fitted: Fitted) -> None:
    """25 and 40 ms; a step without speculation would break even at 10 ms."""
    found = fitted("concurrency,throughput,accept_length,num_steps\n2,200,2.5,3\n8,500,2.5,3\n")
    for batch, time_ms, rate in ((2, 25.0, 200.0), (8, 40.0, 500.0)):
        answer = found.predict(2.5, depth=3, batch_size=batch)
        assert float(answer.output_tokens_per_s or 0.0) == pytest.approx(rate, rel=1e-3)
        times = [part.time_s or 0.0 for part in answer.prediction.breakdown]
        assert sum(times) / MILLI == pytest.approx(time_ms, rel=1e-3)
    even = found.predict(2.5, depth=3, batch_size=2, baseline_tokens_per_s=2 / 0.010)
    assert float(even.speedup) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_random_rounds_come_back(fitted: Fitted, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fixed, step = 5 + 30 * rng.random(), 0.3 + 4 * rng.random()
    lines = ["k,batch,accept_length,tok/s"]
    for depth in (1, 2, 4, 7):
        accept = 1 + 0.6 * (1 - 0.6**depth) / 0.4
        rate = 1000 * accept / (fixed + step * depth) * np.exp(0.01 * rng.standard_normal())
        lines.append(f"{depth},1,{accept:.4f},{rate:.4f}")
    found = fitted("\n".join(lines) + "\n")
    for depth in (1, 3, 5, 7):
        assert round_ms(found, depth) == pytest.approx(fixed + step * depth, rel=0.05)
    ask = dict(zip((1, 3, 5, 7), (1.6, 2.176, 2.38336, 2.4580096), strict=True))
    best = max(ask, key=lambda depth: ask[depth] / (fixed + step * depth))
    choice = found.predict(depth=(1, 3, 5, 7)).choice
    assert choice is not None
    chosen = choice.best_num_steps
    lost = ask[chosen] / (fixed + step * chosen) / (ask[best] / (fixed + step * best))
    assert lost > 0.97


def test_accept_length_and_speedup_alone_are_a_fit_without_rates(fitted: Fitted) -> None:
    found = fitted("accept_length,speedup\n2.4,1.6\n3.0,2.0\n")
    assert found.observations[0].round_cost == pytest.approx((1.5, 1.5, 1.5))
    answer = found.predict(2.7)
    assert float(answer.speedup) == pytest.approx(1.8, rel=0.01)
    assert answer.output_tokens_per_s is None
    given = found.predict(2.7, baseline_tokens_per_s=50.0).output_tokens_per_s
    assert given is not None
    assert given.median == pytest.approx(90.0, rel=0.01)


def test_points_without_rounds_are_still_refused(fitted: Fitted) -> None:
    with pytest.raises(FitError, match="nothing to fit"):
        fitted("num_steps,tok/s\n0,90\n0,91\n")


def test_pictures_show_throughputs_or_say_what_they_need(
    specmodel: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "bench.csv").write_text(LADDER, encoding="utf-8")
    drawn = specmodel("fit", "bench.csv", "--plot", "fit.svg")
    assert drawn.exit_code == 0
    assert "speed-up" not in (tmp_path / "fit.svg").read_text(encoding="utf-8")
    refused = specmodel("predict", "--depth", "1:5", "--plot", "answer.svg")
    assert refused.exit_code == 2
    assert "give --baseline" in refused.stderr
    assert not (tmp_path / "answer.svg").exists()
    assert specmodel("predict", "--depth", "1:5", "--json").exit_code == 0
