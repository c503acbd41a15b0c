"""What to measure next, and whether it then does what was promised."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from calibration import fit
from calibration.fit.summary import FitSummary, fit_summary
from specmodel.acceptance import carry_accept_length
from specmodel.calibration import Calibration
from specmodel.errors import ExtrapolationWarning
from specmodel.question import Estimate

HEAD = "num_steps,batch_size,accept_length,throughput,baseline"


def summary(folder: Path, lines: Sequence[str]) -> FitSummary:
    path = folder / "bench.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
    return fit_summary([path])


def half_width(found: Calibration, accept: float, depth: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        one: Estimate = found.predict(accept, depth=depth, baseline_tokens_per_s=90.0).speedup
    return (one.high - one.low) / (2 * one.median)


def test_a_run_that_is_named_narrows_the_answers_as_it_was_promised(tmp_path: Path) -> None:
    """A round of 1.14 + .07 k; the advice is followed with the true value."""
    said = summary(tmp_path, [f"1,1,1.7,{90 * 1.7 / 1.21:.3f},90"]).next_measurements
    deep = next(one for one in said if "depth 7" in one)
    promised = [int(value) / 100 for value in re.findall(r"± (\d+) %", deep)]
    assert len(promised) == 2
    assert promised[0] < promised[1]
    one = fit(tmp_path / "bench.csv")
    asked = [(depth, float(carry_accept_length(1.7, 1, depth).value)) for depth in (2, 3, 5, 8)]
    before = sum(half_width(one, accept, depth) for depth, accept in asked) / len(asked)
    assert before == pytest.approx(promised[1], abs=0.02)
    deep_accept = float(carry_accept_length(1.7, 1, 7).value)
    (tmp_path / "bench.csv").write_text(
        f"{HEAD}\n1,1,1.7,{90 * 1.7 / 1.21:.3f},90\n"
        f"7,1,{deep_accept:.4f},{90 * deep_accept / 1.63:.3f},90\n",
        encoding="utf-8",
    )
    two = fit(tmp_path / "bench.csv")
    after = sum(half_width(two, accept, depth) for depth, accept in asked) / len(asked)
    assert after == pytest.approx(promised[0], abs=0.03)


def test_the_most_useful_comes_first_and_what_cannot_help_is_not_named(tmp_path: Path) -> None:
    said = summary(
        tmp_path, ["3,1,2.4,160,90", "5,1,2.8,170,90", "7,1,3.0,165,90"]
    ).next_measurements
    ratios = [
        int(after) / int(before)
        for one in said
        for after, before in [re.findall(r"± (\d+) %", one)]
    ]
    assert ratios
    assert all(ratio <= 1.0 for ratio in ratios)  # rounded per cents
    assert ratios == sorted(ratios) or max(ratios) - min(ratios) < 0.05
    assert not any("depth" in one.split(";")[0] and "same load" in one for one in said)


def test_many_rows_are_advised_without_trying(tmp_path: Path) -> None:
    rows = [f"3,1,{2 + 0.005 * run:.3f},{150 + 0.3 * run:.2f},90" for run in range(120)]
    said = summary(tmp_path, rows).next_measurements
    assert any("depth 7" in one for one in said)
    assert not any("±" in one for one in said)
