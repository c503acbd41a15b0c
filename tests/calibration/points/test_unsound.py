"""Rounds that cannot be so cheap, and repeated runs."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.points.reading import read_points
from calibration.points.systems import systems
from calibration.points.table import Points
from calibration.points.unsound import (
    Soundness,
    assess_soundness,
    implied_round_cost,
    replicate_groups,
)
from specmodel.speedup import ROUND_COST_NOISE

BAD = Path(__file__).parents[2] / "fixtures" / "bad"


def points_of(folder: Path, text: str) -> Points:
    (folder / "bench.csv").write_text(text)
    return read_points(folder / "bench.csv")


def assess(folder: Path, *rows: str, header: str = "workload,tau,tok/s,baseline") -> Soundness:
    return assess_soundness(points_of(folder, "\n".join([header, *rows, ""])))


def test_round_cost_is_only_known_with_all_three(tmp_path: Path) -> None:
    points = points_of(tmp_path, "k,tau,tok/s,baseline\n3,2.1,82.3,90\n,2.1,82.3,\n")
    assert implied_round_cost(points.frame) == pytest.approx([2.1 * 90 / 82.3, np.nan], nan_ok=True)


def test_a_run_without_speculation_has_no_round(tmp_path: Path) -> None:
    points = points_of(tmp_path, "k,tau,tok/s,baseline\n3,2.1,82.3,90\n0,1,90,80\n")
    assert np.isnan(implied_round_cost(points.frame)).tolist() == [False, True]


def test_sound_points_are_all_kept(tmp_path: Path) -> None:
    soundness = assess(tmp_path, "chat,2.1,90,80", "code,2.5,110,80")
    assert soundness.sound
    assert soundness.kept.all()
    assert soundness.warnings == ()


def test_a_round_cheaper_than_a_step_is_named_and_one_of_a_step_is_not(tmp_path: Path) -> None:
    # 2.3 x 90 / 207 is 1, and in doubles a little less; 2.299 x 90 / 207 is less
    points = points_of(tmp_path, "k,tau,tok/s,baseline\n3,2.3,207,90\n3,2,160,80\n3,2.299,207,90\n")
    assert implied_round_cost(points.frame)[0] < 1
    assert [w.lines for w in points.warnings if w.code == "round_cost_below_one"] == [(4,)]


@pytest.mark.parametrize(("round_cost", "broken"), [(0.96, True), (0.98, False), (1.0, False)])
def test_only_more_than_noise_breaks_a_baseline(
    tmp_path: Path, round_cost: float, broken: bool
) -> None:
    row = f"chat,{2 * round_cost},160,80"
    assert bool(assess(tmp_path, row, "code,2.5,110,80").broken) is broken
    assert pytest.approx(0.03) == ROUND_COST_NOISE


def test_the_spread_of_a_row_widens_what_noise_explains(tmp_path: Path) -> None:
    header = "workload,tau,tok/s,baseline,spread"
    rows = ("chat,1.9,160,80,{}", "code,2.5,110,80,")
    assert assess(tmp_path, *(row.format("1%") for row in rows), header=header).broken
    assert not assess(tmp_path, *(row.format("4%") for row in rows), header=header).broken


def test_one_broken_baseline_sets_its_workload_aside() -> None:
    soundness = assess_soundness(read_points(BAD / "one_broken_baseline.csv"))
    assert soundness.sound
    assert soundness.broken == ("chat",)
    assert soundness.kept.tolist() == [False, False, True]
    (warning,) = soundness.warnings
    assert warning.code == "baseline_set_aside"
    assert warning.lines == (2, 3)
    assert "0.76" in warning.message
    assert warning.message.endswith("; 2 rows are set aside")


def test_two_broken_baselines_make_a_system_unsound() -> None:
    soundness = assess_soundness(read_points(BAD / "two_broken_baselines.csv"))
    assert not soundness.sound
    assert soundness.broken == ("chat", "code")
    assert soundness.kept.tolist() == [False, False, False, True]
    assert soundness.warnings[-1].code == "unsound_system"
    assert "would be set aside" in soundness.warnings[0].message


def test_rows_that_are_kept_by_force_are_not_said_to_be_set_aside() -> None:
    points = read_points(BAD / "one_broken_baseline.csv")
    forced = assess_soundness(points, force=True)
    assert forced.warnings[0].message.endswith("; 2 rows would be set aside")
    assert forced.kept.tolist() == assess_soundness(points).kept.tolist()


def test_a_system_of_which_nothing_is_left_is_unsound(tmp_path: Path) -> None:
    soundness = assess(tmp_path, "chat,1.5,240,120", "chat,2.5,240,120")
    assert not soundness.sound
    assert not soundness.kept.any()


def test_without_a_workload_only_the_same_baseline_is_suspect(tmp_path: Path) -> None:
    soundness = assess(tmp_path, ",1.5,240,121.6", ",2.31,214,124.5", ",2.9,230,121.6")
    assert soundness.sound
    assert soundness.kept.tolist() == [False, True, False]


def test_a_broken_baseline_is_broken_at_every_batch(tmp_path: Path) -> None:
    soundness = assess(
        tmp_path,
        *("chat,1.5,240,121,1", "chat,2.5,1400,800,8", "code,2.5,1400,800,8"),
        header="workload,tau,tok/s,baseline,batch",
    )
    assert soundness.kept.tolist() == [False, False, True]


def test_runs_without_speculation_go_with_their_workload(tmp_path: Path) -> None:
    soundness = assess(
        tmp_path,
        *("chat,0,,121", "chat,3,1.5,240", "code,0,,80", "code,3,2.5,110"),
        header="workload,k,tau,tok/s",
    )
    assert soundness.kept.tolist() == [False, False, True, True]


@given(scale=st.floats(0.01, 100), round_costs=st.lists(st.floats(0.5, 5), min_size=1, max_size=6))
def test_soundness_does_not_depend_on_the_speed_of_the_machine(
    tmp_path_factory: pytest.TempPathFactory, scale: float, round_costs: list[float]
) -> None:
    folder = tmp_path_factory.getbasetemp()

    def rows(factor: float) -> list[str]:
        return [
            f"w{number},{4.0!r},{factor * 400 / cost!r},{factor * 100!r}"
            for number, cost in enumerate(round_costs)
        ]

    slow, fast = assess(folder, *rows(1.0)), assess(folder, *rows(scale))
    assert slow.broken == fast.broken
    expected = [f"w{n}" for n, cost in enumerate(round_costs) if cost < 1 - ROUND_COST_NOISE]
    if not any(abs(cost - 1 + ROUND_COST_NOISE) < 1e-9 for cost in round_costs):
        assert list(slow.broken) == expected


def test_repeated_runs_carry_their_spread(tmp_path: Path) -> None:
    points = points_of(
        tmp_path,
        "k,tau,tok/s,baseline,date\n3,2.4,100,80,Mon\n5,2.6,104,80,Mon\n3,2.5,104,80,Tue\n",
    )
    (group,) = replicate_groups(points.frame)
    assert group.rows == (0, 2)
    assert group.relative_sd == pytest.approx(np.std([100, 104], ddof=1) / 102)
    costs = [2.4 * 80 / 100, 2.5 * 80 / 104]
    assert group.round_cost_relative_sd == pytest.approx(np.std(costs, ddof=1) / np.mean(costs))


def test_repeated_baselines_are_replicates_without_a_round_cost(tmp_path: Path) -> None:
    points = points_of(tmp_path, "k,tau,tok/s\n0,,79.4\n0,,79.0\n3,2.1,90\n")
    (group,) = replicate_groups(points.frame)
    assert (group.rows, group.round_cost_relative_sd) == ((0, 1), None)


@pytest.mark.parametrize(
    "column", ["batch_size", "workload", "draft_model", "topk", "gpu", "variant"]
)
def test_runs_of_another_configuration_are_no_replicates(tmp_path: Path, column: str) -> None:
    points = points_of(tmp_path, f"k,tau,tok/s,{column}\n3,2.1,90,1\n3,2.1,90,2\n")
    assert replicate_groups(points.frame) == ()


def test_every_system_is_judged_alone(tmp_path: Path) -> None:
    points = points_of(
        tmp_path,
        "gpu,workload,tau,tok/s,baseline\na,x,1.5,240,120\na,y,1.5,240,120\nb,x,2.5,240,120\n",
    )
    assert [assess_soundness(system.points).sound for system in systems(points)] == [False, True]


def time_warnings(folder: Path, header: str, *rows: str) -> list[tuple[str, tuple[int, ...], str]]:
    points = points_of(folder, "\n".join([header, *rows, ""]))
    return [(w.code, w.lines, w.message) for w in points.warnings if "contradicts" in w.code]


def test_a_first_token_that_takes_the_whole_request_is_said(tmp_path: Path) -> None:
    header = "k,tau,tok/s,baseline,batch,output_tokens,ttft_ms"
    rows = [f"3,2.1,{tok_s},400,4,100,{ttft_ms}" for tok_s, ttft_ms in ((500, 940), (501, 960))]
    ((code, lines, message),) = time_warnings(tmp_path, header, *rows)  # 4 x 100 / 400 = 1 s
    assert (code, lines) == ("ttft_contradicts_throughput", (3,))
    assert "960 against 1000 ms (line 3)" in message


def test_first_token_and_baseline_may_be_those_of_baseline_rows(tmp_path: Path) -> None:
    header = "k,tau,tok/s,batch,output_tokens,ttft_ms"
    ((_, lines, _),) = time_warnings(
        tmp_path, header, "0,,400,4,100,2000", "3,2.1,500,4,100,2000", "0,,400,4,1000,2000"
    )
    assert lines == (2, 3)


def test_a_throughput_per_user_is_that_of_one_request(tmp_path: Path) -> None:
    header = "tau,tok/s,baseline,batch,output_tokens,ttft_ms,throughput_scope"
    row = "2.1,120,100,8,100,2000,"  # 1 s a request per user, 8 s as the whole batch
    assert time_warnings(tmp_path, header, row + "per_user")
    for scope in ("aggregate", "", "per_gpu"):
        assert not time_warnings(tmp_path, header, row + scope)


def test_a_baseline_without_prefill_contradicts_no_first_token(tmp_path: Path) -> None:
    header = "k,tau,tok/s,batch,output_tokens,ttft_ms,baseline_step_time_ms"
    assert not time_warnings(tmp_path, header, "3,2.1,120,1,100,2000,10")
    header = "k,tau,tok/s,batch,output_tokens,ttft_ms,step_time_ms"
    assert not time_warnings(tmp_path, header, "0,,,1,100,2000,10", "3,2.1,120,1,100,2000,")


@pytest.mark.parametrize(
    ("step_ms", "said"), [(20, False), (29, False), (31, True), (11, False), (9, True)]
)
def test_a_step_time_far_from_what_the_throughput_implies_is_said(
    tmp_path: Path, step_ms: float, said: bool
) -> None:
    header = "k,tau,tok/s,baseline,batch,step_time_ms"
    row = f"3,2.5,1000,900,8,{step_ms}"  # 2.5 x 8 / 1000 = 20 ms
    found = time_warnings(tmp_path, header, row)
    assert [(code, lines) for code, lines, _ in found] == (
        [("step_time_contradicts_throughput", (2,))] if said else []
    )
    assert all(f"{step_ms} against 20 ms (line 2)" in message for _, _, message in found)


def test_without_a_batch_or_per_user_no_step_time_is_compared(tmp_path: Path) -> None:
    header = "k,tau,tok/s,baseline,batch,step_time_ms,throughput_scope"
    assert not time_warnings(tmp_path, header, "3,2.5,1000,900,,99,", "3,2.5,10,9,8,99,per_user")


def test_one_token_a_step_without_speculation(tmp_path: Path) -> None:
    header = "k,tau,tok/s,batch,step_time_ms"
    assert not time_warnings(tmp_path, header, "0,,800,8,10", "3,2.5,1000,8,20")
    ((_, lines, _),) = time_warnings(tmp_path, header, "0,,800,8,25", "3,2.5,1000,8,20")
    assert lines == (2,)
