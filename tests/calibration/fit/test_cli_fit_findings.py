"""What a fit says of its points: what they tell, what they leave open, what to measure next."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from calibration.fit.diagnosis import diagnose
from calibration.fit.identifiable import constants_in_play, untold_constants
from calibration.fit.next_measurements import next_measurements
from calibration.fit.summary import FitSummary, fit_summary
from calibration.report.fit_text import fit_text
from specmodel.calibration import Calibration


def summary(folder: Path, header: str, lines: Sequence[str]) -> FitSummary:
    path = folder / "bench.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return fit_summary([path])


def fitted(folder: Path, header: str, *lines: str) -> Calibration:
    return summary(folder, header, lines).calibration


@pytest.mark.parametrize(
    ("header", "lines", "extra"),
    [
        ("tau,tok/s,baseline,k", ["2.1,82,80,3"], set()),
        (
            "tau,tok/s,baseline,k,topk,num_draft_tokens",
            ["2.1,82,80,3,1,4", "2.4,85,80,3,4,16"],
            {"tree_cost"},
        ),
        (
            "tau,tok/s,baseline,k,num_experts,experts_per_token",
            ["2.1,82,80,3,128,8"],
            {"expert_ratio"},
        ),
        (
            "tau,tok/s,baseline,k,workload",
            ["2.1,82,80,3,chat", "2.4,85,70,3,code"],
            {"baseline_share"},
        ),
        (
            "tau,tok/s,baseline,k,bs",
            ["2.1,82,80,3,1", "2.1,500,600,3,8"],
            {"batch_growth_share", "draft_time_exponent"},
        ),
        (
            "tau,tok/s,baseline,k,bs,ctx",
            ["2.1,82,80,3,1,0", "2.1,500,600,3,8,0", "2.1,400,500,3,8,32768"],
            {"batch_growth_share", "draft_time_exponent", "kv_row_share"},
        ),
    ],
)
def test_constants_are_in_play_where_points_can_feel_them(
    tmp_path: Path, header: str, lines: list[str], extra: set[str]
) -> None:
    found = set(constants_in_play(fitted(tmp_path, header, *lines)))
    always = {"fixed_cost", "step_cost", "non_decode_share"}
    assert found == always | extra


def test_one_depth_tells_only_a_sum(tmp_path: Path) -> None:
    one = untold_constants(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,82,80,3"))
    assert one[0].summed
    assert one[0].constants == ("fixed_cost", "step_cost")
    two = untold_constants(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,82,80,3", "2.3,80,80,7"))
    assert not any(each.summed for each in two)


def test_a_constant_that_has_what_it_needs_asks_for_more_of_it(tmp_path: Path) -> None:
    found = untold_constants(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,82,80,3"))
    share = next(one for one in found if one.constants == ("non_decode_share",))
    assert share.needs.startswith("two accept lengths")
    lines = ["2.1,82,80,3,a", "2.6,95,80,3,b"]
    found = untold_constants(fitted(tmp_path, "tau,tok/s,baseline,k,workload", *lines))
    shares = [one for one in found if one.constants == ("non_decode_share",)]
    assert all(one.needs.startswith("more runs") for one in shares)


@pytest.mark.parametrize(("depth", "wanted"), [(1, 7), (3, 7), (4, 7), (5, 1), (8, 1)])
def test_the_next_depth_is_the_one_furthest_away(tmp_path: Path, depth: int, wanted: int) -> None:
    said = next_measurements(fitted(tmp_path, "tau,tok/s,baseline,k", f"1.9,82,80,{depth}"))
    assert said[0].startswith(f"the same load at depth {wanted}")


def test_what_was_measured_is_not_asked_for_again(tmp_path: Path) -> None:
    lines = ["2.1,82,80,3,1,a", "2.6,95,80,7,1,b", "2.9,100,80,7,1,c", "2.1,500,600,3,8,a"]
    calibration = fitted(tmp_path, "tau,tok/s,baseline,k,bs,workload", *lines)
    assert next_measurements(calibration) == ()


def test_an_unstated_depth_is_the_first_thing_to_fill_in(tmp_path: Path) -> None:
    said = next_measurements(fitted(tmp_path, "tau,tok/s,baseline", "2.1,82,80"))
    assert "num_steps" in said[0]


def test_a_round_far_dearer_than_public_ones_gets_a_diagnosis(tmp_path: Path) -> None:
    found = diagnose(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,60,80,3"))
    assert found is not None
    assert found.observation.round_cost[1] > found.public.high
    assert "CUDA graph" in found.causes[0]
    assert any("experts" in cause for cause in found.causes)
    assert diagnose(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,120,80,3")) is None


def test_causes_are_those_that_the_system_can_have(tmp_path: Path) -> None:
    header = "tau,tok/s,baseline,k,topk,num_experts,ctx"
    dense = diagnose(fitted(tmp_path, header, "2.1,60,80,3,1,0,32768"))
    assert dense is not None
    assert not any("experts" in cause for cause in dense.causes)
    assert not any("tree" in cause for cause in dense.causes)
    assert any("KV" in cause for cause in dense.causes)


def test_two_depths_tell_whether_drafting_or_the_round_itself_is_dear(tmp_path: Path) -> None:
    """R = .75 + .5 k and 2.4 + .08 k."""
    header = "tau,tok/s,baseline,k"
    drafts = [
        f"{1 + 0.4 * k},{100 * (1 + 0.4 * k) / (0.75 + 0.5 * k):.3f},100,{k}" for k in (1, 3, 5)
    ]
    found = diagnose(fitted(tmp_path, header, *drafts))
    assert found is not None
    assert "0.50 steps for each drafted token" in found.causes[0]
    rounds = [
        f"{1 + 0.4 * k},{100 * (1 + 0.4 * k) / (2.4 + 0.08 * k):.3f},100,{k}" for k in (1, 3, 5)
    ]
    found = diagnose(fitted(tmp_path, header, *rounds))
    assert found is not None
    assert "2.40 steps before any draft" in found.causes[0]


def test_no_advice_is_for_another_engine_or_device(tmp_path: Path) -> None:
    header = "tau,tok/s,baseline,k,gpu,engine,tp"
    found = diagnose(fitted(tmp_path, header, "2.1,60,80,3,EPYC 9554,llama.cpp,"))
    assert found is not None
    assert not [
        one for one in found.causes if "CUDA" in one or "NCCL" in one or "all-reduce" in one
    ]
    found = diagnose(fitted(tmp_path, header, "2.1,60,80,3,H100,vllm,1"))
    assert found is not None
    assert "CUDA graph" in found.causes[0]
    assert not [one for one in found.causes if "NCCL" in one or "all-reduce" in one]


def test_a_threshold_between_two_batches_and_drafts_that_nobody_takes_are_said(
    tmp_path: Path,
) -> None:
    header = "tau,tok/s,baseline,k,bs"
    rows = ["2.4,151.6,120,3,1", "2.4,480,380,3,4", "2.4,525,700,3,8"]  # R 1.9, 1.9, 3.2
    (said,) = summary(tmp_path, header, rows).remarks
    assert "from batch 4 to 8 a round grows from 1.90 to 3.20 steps" in said
    assert "16 and 32 tokens" in said
    (said,) = summary(tmp_path, header, ["1.007,80,100,3,1"]).remarks
    assert "1.26 steps are the price" in said
    assert summary(tmp_path, header, ["2.4,151.6,120,3,1", "2.4,480,400,3,4"]).remarks == ()


def test_who_loses_at_depth_3_is_not_sent_to_depth_7(tmp_path: Path) -> None:
    loses = next_measurements(fitted(tmp_path, "tau,tok/s,baseline,k", "1.5,70,80,3"))
    assert "depth 1" in loses[0]
    wins = next_measurements(fitted(tmp_path, "tau,tok/s,baseline,k", "2.1,120,80,3"))
    assert "depth 7" in wins[0]
    at_one = next_measurements(fitted(tmp_path, "tau,tok/s,baseline,k", "1.3,70,80,1"))
    assert not any("depth" in one for one in at_one)


def test_a_large_batch_is_expensive_for_other_reasons(tmp_path: Path) -> None:
    assert diagnose(fitted(tmp_path, "tau,tok/s,baseline,k,bs", "2.1,600,800,3,64")) is None


def test_the_worst_residual_is_named_by_file_and_line(tmp_path: Path) -> None:
    lines = [f"{1.8 + 0.1 * i:.1f},{80 * (1.8 + 0.1 * i) / 1.4:.2f},80,3,w{i}" for i in range(7)]
    lines[4] = "2.2,140,80,3,w4"
    found = summary(tmp_path, "tau,tok/s,baseline,k,workload", lines).residuals
    assert found.worst_place == "bench.csv, line 6"
    assert found.worst > 0
    assert found.rms <= abs(found.worst)


def test_a_measured_share_is_not_asked_for_and_rounds_are_judged_without_it(tmp_path: Path) -> None:
    """f = .4 and R = 1.5: by hand 2.10 holds the prefill, and is no expensive round."""
    header = "num_steps,batch_size,accept_length,throughput,baseline,ttft_ms,output_tokens"
    found = summary(tmp_path, header, ["3,1,3.0,142.857,100,200,50"])
    assert "non_decode_share" not in {name for one in found.untold for name in one.constants}
    assert not any("tells f" in one for one in found.next_measurements)
    assert found.diagnosis is None
    said = fit_text(found, "calibration.json")
    assert "Decoding alone, by TTFT and output length: 1.5000." in " ".join(said.split())
