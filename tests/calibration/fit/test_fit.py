"""From points to a calibration: the reference case, what is learned, what is refused."""

from pathlib import Path

import numpy as np
import pytest

from calibration import fit, read_points
from calibration.points.arrays import with_expert_counts
from calibration.points.packaged import packaged_table
from calibration.points.table import numbers
from specmodel import Calibration
from specmodel.errors import ExtrapolationWarning, FitError, IncompatiblePointsError


def bench(folder: Path, text: str) -> Path:
    """A benchmark file."""
    path = folder / "bench.csv"
    path.write_text(text)
    return path


@pytest.fixture
def reference(tmp_path: Path) -> Calibration:
    return fit(bench(tmp_path, "accept_length,throughput,baseline\n2.1,82.3,90.0\n"))


def test_the_reference_point_gives_its_round_cost(reference: Calibration) -> None:
    """theory.md E5: 2.1 x 90 / 82.3 = 2.2965; E6: break-even is that, not 2.2, not 1.15."""
    assert reference.observations[0].round_cost[1] == pytest.approx(2.2965, abs=5e-5)
    answer = reference.predict(2.1)
    assert 2.25 <= answer.round_cost.median <= 2.33
    assert answer.break_even_accept_length.median == pytest.approx(answer.round_cost.median)
    assert answer.round_cost.low < 2.2965 < answer.round_cost.high
    assert answer.round_cost.low > 1.15


def test_the_reference_prediction_is_near_the_identity_with_an_honest_width(
    reference: Calibration,
) -> None:
    """theory.md E5 and E8: 107.8 by the identity; about 90 to 120 with one point."""
    with pytest.warns(ExtrapolationWarning, match="accept_length 2.75"):
        rate = reference.predict(2.75).output_tokens_per_s
    assert rate is not None
    assert 103 <= rate.median <= 110
    assert 88 <= rate.low <= 99
    assert 113 <= rate.high <= 125


def test_one_point_cannot_tell_fixed_cost_from_step_cost(reference: Calibration) -> None:
    """The sum is known to a few per cent, each part to a quarter or worse."""
    found = {one.name: one for one in reference.constants}
    cost = reference.predict(2.1).round_cost
    assert (cost.high - cost.low) / cost.median < 0.15
    for name in ("fixed_cost", "step_cost"):
        one = found[name]
        assert (one.high - one.low) / one.value > 0.25


def test_constants_that_the_points_do_not_touch_stay_at_the_prior(reference: Calibration) -> None:
    for one in reference.constants:
        if one.name in {"tree_cost", "expert_ratio", "batch_growth_share", "kv_row_share"}:
            assert one.learned == pytest.approx(0.0, abs=1e-9)
            assert one.value == pytest.approx(one.prior_value)
            assert one.prior_dominated


def test_more_points_teach_more() -> None:
    points = read_points(packaged_table("specbundle-llama31-8b").path)
    few = points.where(np.arange(len(points)) < 5)
    learned = [
        {one.name: one.learned for one in fit(part, profile=False).constants}
        for part in (few, points)
    ]
    for name in ("fixed_cost", "step_cost", "tree_cost"):
        assert learned[1][name] > learned[0][name]


def test_profile_and_normal_intervals_agree_where_much_is_learned() -> None:
    points = read_points(packaged_table("specbundle-llama31-8b").path)
    profiled = {one.name: one for one in fit(points).constants}
    normal = {one.name: one for one in fit(points, profile=False).constants}
    for name in ("fixed_cost", "step_cost"):
        assert profiled[name].low == pytest.approx(normal[name].low, rel=0.08)
        assert profiled[name].high == pytest.approx(normal[name].high, rel=0.08)


def test_the_order_of_rows_does_not_matter() -> None:
    points = read_points(packaged_table("specbundle-kimi-k2").path)
    shuffled = points.where(np.ones(len(points), dtype=np.bool_))
    shuffled.frame.iloc[:] = shuffled.frame.iloc[::-1].to_numpy()
    first, second = (fit(one, profile=False).posterior.constants for one in (points, shuffled))
    np.testing.assert_allclose(first, second, rtol=1e-3)


def test_expert_counts_are_looked_up_by_name(tmp_path: Path) -> None:
    path = bench(
        tmp_path,
        "target_model,accept_length,throughput,baseline,num_steps\n"
        "Qwen/Qwen3-30B-A3B-Instruct-2507,2.5,130,100,3\n"
        "meta-llama/Llama-3.1-8B-Instruct,2.5,170,100,3\n"
        "something of mine,2.5,150,100,3\n",
    )
    frame = with_expert_counts(read_points(path).frame)
    np.testing.assert_array_equal(numbers(frame, "num_experts"), [128, 0, np.nan])
    np.testing.assert_array_equal(numbers(frame, "experts_per_token"), [8, 0, np.nan])


def test_a_row_far_from_the_others_is_named(tmp_path: Path) -> None:
    lines = [
        f"w{i},{k},{1.4 + 0.35 * k:.3f},{100 * (1.4 + 0.35 * k) / (1.1 + 0.06 * k):.2f},100"
        for i in range(6)
        for k in (1, 3, 5)
    ]
    fields = lines[7].split(",")
    lines[7] = ",".join([*fields[:3], f"{0.7 * float(fields[3]):.2f}", fields[4]])
    header = "workload,num_steps,accept_length,throughput,baseline\n"
    calibration = fit(bench(tmp_path, header + "\n".join(lines) + "\n"))
    assert any("line 9" in note and "standard deviations" in note for note in calibration.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_steps,throughput\n0,90\n", "add a run with speculation"),
        (
            "accept_length,throughput,baseline\n2.1,400,90.0\n2.1,410,95.0\n",
            "baselines of this system are unsound",
        ),
    ],
)
def test_points_without_a_round_cost_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FitError, match=message):
        fit(bench(tmp_path, text))


def test_an_unsound_system_is_fitted_only_by_force() -> None:
    path = packaged_table("specbundle-llama4-scout").path
    with pytest.raises(FitError, match="--force"):
        fit(path)
    assert fit(path, force=True, profile=False).num_points == 70


def test_two_systems_in_one_file_need_a_name(tmp_path: Path) -> None:
    path = bench(
        tmp_path, "accept_length,throughput,baseline,gpu\n2.1,82.3,90,H200\n2.2,50.1,45,RTX 4090\n"
    )
    with pytest.raises(IncompatiblePointsError, match="--system"):
        fit(path)
    assert fit(path, system="4090").num_points == 1


def test_replicates_are_told(tmp_path: Path) -> None:
    text = (
        "num_steps,accept_length,throughput,baseline\n3,2.5,150,100\n3,2.5,156,100\n5,2.9,160,100\n"
    )
    notes = fit(bench(tmp_path, text)).notes
    assert any("1 configuration(s) were measured several times" in note for note in notes)


def test_a_prediction_outside_the_points_warns(tmp_path: Path) -> None:
    text = "num_steps,accept_length,throughput,baseline\n3,2.5,150,100\n5,2.9,160,100\n"
    calibration = fit(bench(tmp_path, text))
    with pytest.warns(
        ExtrapolationWarning, match="num_steps 9 is outside the measured range 3 to 5"
    ):
        calibration.predict(2.7, num_steps=9.0)


BY_COLUMN = "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens\n3,1,3.0,142.857,100,200,50\n"
BY_ROW = "k,accept_length,tok/s,ttft_ms,output_tokens,batch_size\n0,1,50,800,100,1\n3,2.4,68.97,800,100,1\n"
MEASURED_SHARE = ((BY_COLUMN, 1.5, 142.857), (BY_ROW, 1.3, 68.97))
"""Rows with TTFT and output length: f = .2/.5 and .8/2, so R = 1.5 and 1.3, and what was measured."""


@pytest.mark.parametrize(("text", "round_cost", "rate"), MEASURED_SHARE)
def test_a_measured_non_decode_share_is_kept_for_predictions(
    tmp_path: Path, text: str, round_cost: float, rate: float
) -> None:
    found = fit(bench(tmp_path, text))
    (observation,) = found.observations
    assert observation.decode_round_cost == pytest.approx(round_cost, rel=1e-3)
    found.save(tmp_path / "calibration.json")
    for calibration in (found, Calibration.load(tmp_path / "calibration.json")):
        answer = calibration.predict(observation.accept_length_at)
        assert answer.non_decode_share == pytest.approx(0.4)
        assert answer.round_cost.low < round_cost < answer.round_cost.high
        output = answer.output_tokens_per_s
        assert output is not None
        assert output.low < rate < output.high < 1.3 * output.low
        assert output.median == pytest.approx(rate, rel=0.02)


def test_a_measured_non_decode_share_is_believed_of_other_loads_too(tmp_path: Path) -> None:
    """f = .4 at batch 1: the share at batch 4 is unknown, but not the prior's .06."""
    found = fit(bench(tmp_path, BY_COLUMN))
    with pytest.warns(ExtrapolationWarning, match="batch_size 4"):
        answer = found.predict(3.0, num_steps=3, topk=1, batch_size=4)
    assert 0.2 < answer.non_decode_share < 0.45
    share = next(one for one in found.constants if one.name == "non_decode_share")
    assert not share.prior_dominated
    assert share.low < 0.4 < share.high


def test_a_time_to_the_first_token_that_contradicts_the_rounds_is_not_used(tmp_path: Path) -> None:
    """1000/TPOT beside TTFT: as end to end R = .6, which cannot be; decode-only it is 1.33 and 1.64."""
    header = "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens\n"
    lines = "2,1,2.4,200,111.1,150,40\n4,1,3.1,210,111.1,150,40\n"
    found = fit(bench(tmp_path, header + lines))
    costs = [one.decode_round_cost for one in found.observations]
    assert costs == pytest.approx([1.333, 1.640], abs=1e-3)
    assert any("2 rows: end to end, ttft_ms and output_tokens" in note for note in found.notes)
    answer = found.predict(3.1, num_steps=4, topk=1, batch_size=1)
    assert answer.output_tokens_per_s is not None
    assert answer.output_tokens_per_s.median == pytest.approx(210, rel=0.06)


@pytest.mark.parametrize(
    ("lines", "spread"),
    [
        ("4,1.5,30,50\n4,3.0,60,50\n", "0.0%"),  # R 2.5 both: other prompts, not another time
        ("4,2.0,40,50\n4,2.0,44,50\n", "6.7%"),  # R 2.5 and 2.273: sd .1607 over mean 2.386
    ],
)
def test_repeats_are_judged_by_their_round_costs(tmp_path: Path, lines: str, spread: str) -> None:
    found = fit(bench(tmp_path, f"num_steps,accept_length,throughput,baseline\n{lines}"))
    assert [note for note in found.notes if "several times" in note] == [
        (
            f"1 configuration(s) were measured several times: their round costs spread by {spread} "
            "(root mean square)"
        )
    ]
