import csv
import math
from pathlib import Path

import numpy as np
import pytest

from calibration.training.paired_runs import (
    PAIRED_RUNS,
    PairedRun,
    learn_paired_prior,
    leave_one_run_out,
)
from specmodel.acceptance import TRANSFER_PRIOR, TRANSFER_PRIOR_UNMATCHED
from specmodel.errors import ParameterError

GOLDEN = Path(__file__).parents[2] / "golden" / "acceptance_paired_runs.csv"


def pair(run: str, ratio: float) -> PairedRun:
    return PairedRun(run=run, offline=2.0, served=1.0 + ratio, num_steps=5, matched=True, remark="")


def test_the_pairs_of_the_golden_table_are_all_there_and_qualify() -> None:
    known = {
        (one.run, one.offline, one.served, one.num_steps, one.matched)
        for one in PAIRED_RUNS
        if one.qualifies
    }
    with GOLDEN.open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 9
    for row in rows:
        assert (
            row["run"],
            float(row["offline_accept_length"]),
            float(row["served_accept_length"]),
            int(row["num_steps"]),
            row["matched"] == "yes",
        ) in known


def test_ratios_are_those_that_the_reference_prints() -> None:
    printed = {
        ("public-report-01a", 2.315): 0.84,
        ("public-report-01b", 2.637): 0.86,
        ("public-report-01b", 2.52): 0.80,
        ("public-report-03", 1.45): 0.70,
        ("public-report-03", 1.36): 0.78,
        ("public-report-02a", 1.431): 0.36,
        ("public-report-12", 1.719): 0.53,
        ("public-report-12", 1.574): 0.42,
        ("hf-kimi-k2.6-mla-v1", 2.30): 1.37,
        ("dspark-kimi-k3", 3.934): 1.15,
        ("dspark-kimi-k3", 5.418): 1.48,
        ("public-report-14", 1.936): 0.65,
        ("public-report-16b", 2.157): 0.72,
        ("public-report-16c", 2.108): 0.71,
    }
    found = {(one.run, one.served): one for one in PAIRED_RUNS}
    for key, ratio in printed.items():
        assert math.exp(found[key].log_ratio) == pytest.approx(ratio, abs=0.0055), key


def test_bugs_replays_and_over_fit_tests_are_named_and_left_out() -> None:
    left_out = {one.run: one.left_out for one in PAIRED_RUNS if not one.qualifies}
    assert left_out["eagle-264"].startswith("bug")
    assert left_out["spec-d8efd6f8-overfit"].startswith("over-fit")
    for run in ("public-report-14", "public-report-16b", "public-report-16c"):
        assert left_out[run].startswith("offline replay")
    used = {one.pair.run for one in leave_one_run_out()}
    assert used == {
        "public-report-01a",
        "public-report-01b",
        "public-report-03",
        "public-report-02a",
        "public-report-12",
        "hf-kimi-k2.6-mla-v1",
        "dspark-kimi-k3",
    }


def test_left_out_runs_lie_in_their_90_percent_intervals_in_85_percent_of_the_pairs() -> None:
    held_out = leave_one_run_out()
    assert np.mean([one.covered for one in held_out]) >= 0.85
    by_run: dict[str, list[bool]] = {}
    for one in held_out:
        by_run.setdefault(one.pair.run, []).append(one.covered)
    assert np.mean([np.mean(covered) for covered in by_run.values()]) >= 0.85


def test_a_left_out_pair_does_not_move_its_own_interval() -> None:
    before = leave_one_run_out()[0].predicted
    moved = PairedRun(
        run="public-report-01a",
        offline=2.561,
        served=1.05,
        num_steps=3,
        matched=True,
        remark="",
    )
    others = [one for one in PAIRED_RUNS if one.run != "public-report-01a"]
    assert leave_one_run_out([moved, *others])[0].predicted == before


def test_pairs_that_do_not_qualify_do_not_move_the_prior() -> None:
    sound = [one for one in PAIRED_RUNS if one.qualifies]
    assert learn_paired_prior(sound) == learn_paired_prior(PAIRED_RUNS)


def test_intervals_cover_new_runs_of_a_known_population() -> None:
    generator = np.random.default_rng(11)
    inside = []
    for _ in range(1500):
        means = np.log(0.8) + 0.4 * generator.standard_normal(7)
        runs = [pair(f"run {index}", math.exp(mean)) for index, mean in enumerate(means)]
        estimate = learn_paired_prior(runs).interval(2.0)
        ratio = math.exp(math.log(0.8) + 0.4 * generator.standard_normal())
        inside.append(estimate.low <= 1.0 + ratio <= estimate.high)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.025)


def test_moments_are_told_apart() -> None:
    generator = np.random.default_rng(12)
    means = 0.4 * generator.standard_normal(3000)
    runs = [
        pair(f"run {index}", math.exp(mean + 0.1 * generator.standard_normal()))
        for index, mean in enumerate(means)
        for _ in range(2)
    ]
    learned = learn_paired_prior(runs)
    assert learned.between == pytest.approx(0.4, rel=0.05)
    assert learned.within == pytest.approx(0.1, rel=0.05)
    assert learned.median == pytest.approx(1.0, abs=0.03)


def test_the_priors_in_use_agree_with_the_pairs() -> None:
    learned = learn_paired_prior().factor
    assert learned.median == pytest.approx(TRANSFER_PRIOR_UNMATCHED.median, abs=0.05)
    assert learned.total_sd == pytest.approx(TRANSFER_PRIOR_UNMATCHED.total_sd, abs=0.06)
    width = 1.6449 * TRANSFER_PRIOR.total_sd
    matched = [one for one in PAIRED_RUNS if one.qualifies and one.matched]
    assert len(matched) == 6
    assert all(abs(one.log_ratio - math.log(TRANSFER_PRIOR.median)) < width for one in matched)


def test_a_served_length_is_capped_by_its_depth() -> None:
    assert learn_paired_prior().interval(3.9, 3).high == 4.0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ParameterError):
        learn_paired_prior([pair("one", 0.8), pair("two", 0.9)])
    with pytest.raises(ParameterError):
        learn_paired_prior().interval(0.9)
    with pytest.raises(ParameterError, match="eagle-264"):
        _ = next(one for one in PAIRED_RUNS if one.run == "eagle-264").log_ratio
