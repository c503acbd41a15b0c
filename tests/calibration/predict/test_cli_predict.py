"""`specmodel predict`: depths, targets, JSON, defaults and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from specmodel import Calibration
from specmodel.errors import ImpossibleAnswerError

Run = Callable[..., Result]

KEYS = {
    *("schema_version", "accept_length", "num_steps", "topk", "num_draft_tokens", "batch_size"),
    *("round_cost", "speedup", "output_tokens_per_s", "tpot_ms", "per_user_tokens_per_s"),
    *("break_even_accept_length", "probability_faster", "breakdown", "warnings", "calibration"),
    *("calibration_system", "calibration_fitted_at"),
}
FULL = ".742,.47,.29,.15,.097"


def asked(run: Run, *arguments: str | Path) -> dict[str, Any]:
    result = run("predict", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer["warnings"]]


def error(run: Run, *arguments: str | Path) -> tuple[int, str]:
    """Exit status and the one line of an error."""
    result = run("predict", *arguments)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return result.exit_code, line


# --- one depth ---


def test_the_keys_of_an_answer_are_those_of_the_contract(specmodel: Run, here: Path) -> None:
    answer = asked(specmodel, "--accept", "2.75")
    assert set(answer) == KEYS
    assert answer["calibration"] == here.name
    for name in ("round_cost", "speedup", "output_tokens_per_s", "tpot_ms"):
        assert answer[name]["low"] < answer[name]["median"] < answer[name]["high"]
    assert sum(part["share"] for part in answer["breakdown"]) == pytest.approx(1.0)
    assert set(answer["breakdown"][0]) == {"term", "share", "time_ms"}


@pytest.mark.usefixtures("here")
def test_time_per_token_is_the_inverse_of_a_user_s_throughput(specmodel: Run) -> None:
    answer = asked(specmodel, "--accept", "2.75")
    assert answer["tpot_ms"]["low"] * answer["per_user_tokens_per_s"]["high"] == pytest.approx(1e3)


@pytest.mark.usefixtures("here")
def test_tokens_per_s_is_the_speedup_times_the_baseline(specmodel: Run) -> None:
    answer = asked(specmodel, "--accept", "2.75", "--baseline", "100")
    ratio = answer["output_tokens_per_s"]["median"] / answer["speedup"]["median"]
    assert ratio == pytest.approx(100.0)


def test_without_a_calibration_the_packaged_prior_answers_and_is_named(specmodel: Run) -> None:
    answer = asked(specmodel, "--accept", "2.75", "--depth", "5")
    assert answer["calibration"] == "packaged prior"
    assert "packaged_prior" in codes(answer)
    assert answer["output_tokens_per_s"] is None
    assert answer["tpot_ms"] is None
    assert "no_baseline" in codes(answer)


def test_the_packaged_prior_needs_a_depth(specmodel: Run) -> None:
    status, line = error(specmodel, "--accept", "2.75")
    assert status == 2
    assert "--depth" in line


@pytest.mark.usefixtures("here")
def test_a_depth_beside_points_that_state_none_is_warned_of(specmodel: Run) -> None:
    assert "unknown_depth" in codes(asked(specmodel, "--accept", "2.75", "--depth", "5"))
    assert "unknown_depth" in codes(asked(specmodel, "--full", FULL))
    assert "unknown_depth" not in codes(asked(specmodel, "--accept", "2.75"))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("option", "axis"),
    [(("--batch-size", "8"), "batch 8"), (("--context-tokens", "9000"), "context 9000")],
)
def test_a_load_that_the_points_do_not_state_is_warned_of(
    specmodel: Run, option: tuple[str, str], axis: str
) -> None:
    answer = asked(specmodel, "--accept", "2.75", "--baseline", "90", *option)
    assert any(warning["message"].startswith(axis) for warning in answer["warnings"])


@pytest.mark.usefixtures("here")
def test_a_tree_is_outside_points_of_chains(specmodel: Run) -> None:
    answer = asked(
        specmodel, "--accept", "2.75", "--depth", "5", "--topk", "4", "--num-draft-tokens", "16"
    )
    assert any("topk 4 is outside" in warning["message"] for warning in answer["warnings"])
    assert answer["num_draft_tokens"] == 16


def test_more_draft_tokens_than_any_measured_tree_are_warned_of(
    specmodel: Run, tmp_path: Path
) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text(
        "tau,tok/s,baseline,k,topk,num_draft_tokens\n2.4,118,77,3,4,8\n2.6,121,77,4,4,8\n",
        encoding="utf-8",
    )
    assert specmodel("fit", bench).exit_code == 0
    tree = ("--accept", "2.5", "--depth", "4", "--topk", "4", "--num-draft-tokens")
    inside, outside = (asked(specmodel, *tree, tokens) for tokens in ("8", "21"))
    said = [w["message"] for w in outside["warnings"] if w["code"] == "extrapolation"]
    assert said == ["draft tokens 21 is outside what was measured, 8"]
    assert "extrapolation" not in codes(inside)


@pytest.mark.usefixtures("here")
def test_a_baseline_of_another_load_is_warned_of(specmodel: Run) -> None:
    assert "baseline_differs" in codes(asked(specmodel, "--accept", "2.75", "--baseline", "45"))
    assert "baseline_differs" not in codes(asked(specmodel, "--accept", "2.75", "--baseline", "88"))


def test_a_depth_that_cannot_pay_is_called_out(specmodel: Run, reference_at_depth_3: Path) -> None:
    answer = asked(
        specmodel, "--accept", "1.9", "--calibration", reference_at_depth_3, "--depth", "1"
    )
    needed = answer["break_even_accept_length"]["median"]
    assert ("out_of_reach" in codes(answer)) == (needed > 2.0)


@pytest.mark.usefixtures("here")
def test_the_text_fits_80_columns_and_names_the_calibration(specmodel: Run) -> None:
    for arguments in (
        ("--accept", "2.75", "--target-speedup", "1.3"),
        ("--full", FULL, "--depth", "1:10"),
        ("--full", FULL, "--depth", "1:10", "--accuracy-from", "training", "--target-speedup", "2"),
        ("--full", FULL, "--depth", "10", "--accuracy-from", "training"),
        ("--accept", "2.75", "--baseline", "1234", "--batch-size", "64"),
    ):
        result = specmodel("predict", *arguments)
        lines = result.stdout.splitlines() + result.stderr.splitlines()
        assert max(map(len, lines)) <= 80, arguments
        assert lines[0].startswith("calibration.json: unnamed system, 1 point")


@pytest.mark.usefixtures("here")
def test_notes_go_to_standard_error(specmodel: Run) -> None:
    result = specmodel("predict", "--accept", "2.75")
    assert "Note: accept length 2.75 is outside what was measured, 2.1" in result.stderr
    assert "Note" not in result.stdout
    as_json = specmodel("predict", "--accept", "2.75", "--json")
    assert json.loads(as_json.stdout)["schema_version"] == 1


@pytest.mark.parametrize(
    ("rows", "force", "said"),
    [
        ("chat,2.1,100,80,3\ncode,1.2,190,80,3\n", (), "not all points of this calibration"),
        (
            "chat,2.1,100,80,3\ncode,2.1,175,80,3\nmath,2.1,176,80,3\n",
            ("--force",),
            "kept with --force",
        ),
        ("chat,2.1,100,80,3\ncode,2.2,104,80,3\n", ("--force",), ""),
    ],
)
def test_broken_baselines_of_the_fit_are_said_once_beside_a_prediction(
    specmodel: Run, tmp_path: Path, rows: str, force: tuple[str, ...], said: str
) -> None:
    header = "workload,tau,tok/s,baseline,k\n"
    (tmp_path / "bench.csv").write_text(header + rows, encoding="utf-8")
    assert specmodel("fit", "bench.csv", *force).exit_code == 0
    answer = asked(specmodel, "--accept", "2", "--baseline", "80")
    assert codes(answer).count("broken_baseline") == (1 if said else 0)
    notes = " ".join(specmodel("predict", "--accept", "2", "--baseline", "80").stderr.split())
    assert said in notes
    (tmp_path / "points.csv").write_text("tau,baseline\n2,80\n", encoding="utf-8")
    points = " ".join(specmodel("predict", "--points", "points.csv").stderr.split())
    assert said in points
    assert ("is broken" in notes) == ("is broken" in points) == bool(said)


def test_a_round_cheaper_than_a_step_is_never_an_answer(specmodel: Run, tmp_path: Path) -> None:
    """Forced rows of R .44 and .51: no round cost, no speed-up of 4 at accept length 2, one line why."""
    rows = "workload,tau,tok/s,baseline,k\nchat,1.1,200,80,3\ncode,1.2,190,80,3\n"
    (tmp_path / "bench.csv").write_text(rows, encoding="utf-8")
    fitted = specmodel("fit", "bench.csv", "--force", "--json")
    (one,) = json.loads(fitted.stdout)["observations"]
    assert one["round_cost"] is None
    assert one["break_even_accept_length"] is None
    (tmp_path / "points.csv").write_text("tau,baseline\n2,80\n", encoding="utf-8")
    for arguments in (("--accept", "2"), ("--accept", "2", "--json"), ("--target-speedup", "2")):
        result = specmodel("predict", *arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "none can take less than one" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: no answer: a round would take 0.4")
    points = specmodel("predict", "--points", "points.csv")
    assert points.exit_code == 0
    assert "none can take less than one" in points.stdout
    with pytest.raises(ImpossibleAnswerError):
        Calibration.load("calibration.json").predict(1.15)


@pytest.mark.parametrize("accept", ["1.5", "2", "3.3"])
def test_noise_below_a_step_is_held_to_one_and_said(
    specmodel: Run, tmp_path: Path, accept: str
) -> None:
    """R .990, .985 and .989: legal rows, and a speed-up of at most the accept length."""
    rows = "tau,tok/s,baseline,k\n1.5,151.5,100,3\n2,203,100,3\n1.8,182,100,3\n"
    (tmp_path / "bench.csv").write_text(rows, encoding="utf-8")
    assert specmodel("fit", "bench.csv").exit_code == 0
    answer = asked(specmodel, "--accept", accept)
    assert answer["round_cost"]["median"] == 1.0
    assert max(answer["speedup"].values()) <= float(accept)
    assert "round_cost_held" in codes(answer)
    text = specmodel("predict", "--accept", accept).stdout
    assert f"{accept}: {accept}" not in text  # by hand 2 / .989 = 2.02 would be above 2


# --- several depths ---


@pytest.mark.usefixtures("here")
def test_a_range_has_one_prediction_per_depth_and_the_best(specmodel: Run) -> None:
    answer = asked(specmodel, "--full", FULL, "--depth", "1:10")
    assert [one["num_steps"] for one in answer["predictions"]] == list(range(1, 11))
    assert all(set(one) == KEYS for one in answer["predictions"])
    gains = {one["num_steps"]: one["speedup"]["median"] for one in answer["predictions"]}
    assert answer["best_num_steps"] in gains
    assert gains[answer["best_num_steps"]] >= max(gains.values()) * 0.97
    assert 0 < answer["probability_best"] <= 1
    assert 0 <= answer["expected_regret"] < 0.1
    candidates = answer["candidates"]
    assert sum(one["probability_best"] for one in candidates) == pytest.approx(1.0)
    assert candidates[0]["num_steps"] == 0


@pytest.mark.usefixtures("here")
def test_a_range_marks_one_line_as_the_best(specmodel: Run) -> None:
    out = specmodel("predict", "--full", FULL, "--depth", "1:10").stdout
    best = asked(specmodel, "--full", FULL, "--depth", "1:10")["best_num_steps"]
    (marked,) = [line for line in out.splitlines() if line.endswith("<- best")]
    assert marked.split()[0] == str(best)
    assert f"depth {best}: the fastest with probability" in out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("baseline", "width", "heads"),
    [
        ((), 80, ("tokens/s  90 %", "speed-up  90 %")),
        (("--baseline", "6900000"), 74, ("speed-up  90 %", "/s  90")),
    ],
)
def test_a_table_with_a_target_keeps_the_interval_that_fits(
    specmodel: Run,
    monkeypatch: pytest.MonkeyPatch,
    baseline: tuple[str, ...],
    width: int,
    heads: tuple[str, str],
) -> None:
    shown, hidden = heads
    monkeypatch.setattr("specmodel.text_layout.WIDTH", width)
    arguments = ("--full", FULL, "--depth", "1:10", "--target-speedup", "1.3", *baseline)
    lines = specmodel("predict", *arguments).stdout.splitlines()
    (head,) = [" ".join(line.split()) for line in lines if line.split()[:1] == ["depth"]]
    assert " ".join(shown.split()) in head
    assert " ".join(hidden.split()) not in head
    assert max(map(len, lines)) <= 80


def test_no_speculation_wins_for_a_draft_that_is_never_right(
    specmodel: Run, reference_at_depth_3: Path
) -> None:
    arguments = ("--accept", "1.1", "--depth", "1:6", "--calibration", reference_at_depth_3)
    assert asked(specmodel, *arguments)["best_num_steps"] == 0
    assert "no speculation: the fastest" in specmodel("predict", *arguments).stdout


def test_one_number_belongs_to_the_only_calibrated_depth(
    specmodel: Run, reference_at_depth_3: Path
) -> None:
    answer = asked(
        specmodel, "--accept", "2.75", "--depth", "1:5", "--calibration", reference_at_depth_3
    )
    accepts = {one["num_steps"]: one["accept_length"] for one in answer["predictions"]}
    assert accepts[3] == {"median": 2.75, "low": 2.75, "high": 2.75}
    assert accepts[1]["median"] < 2.0
    assert accepts[5]["median"] > 2.75
    assert "accept_length_carried" in codes(answer)


@pytest.mark.usefixtures("here")
def test_one_number_for_several_depths_needs_its_own_depth(specmodel: Run) -> None:
    status, line = error(specmodel, "--accept", "2.75", "--depth", "1:5")
    assert status == 2
    assert "--accept-depth" in line


@pytest.mark.usefixtures("here")
def test_equal_questions_get_equal_answers(specmodel: Run) -> None:
    arguments = ("--full", FULL, "--depth", "1:6")
    assert asked(specmodel, *arguments) == asked(specmodel, *arguments)


# --- targets and claims ---


def test_a_target_beyond_the_depth_is_not_feasible(
    specmodel: Run, reference_at_depth_3: Path
) -> None:
    arguments = ("--target-speedup", "3", "--calibration", reference_at_depth_3)
    target = asked(specmodel, *arguments)["target"]
    assert target["accept_length"]["median"] > 4
    assert not target["feasible"]
    assert "out of reach" in " ".join(specmodel("predict", *arguments).stdout.split())
    near = asked(specmodel, "--target-speedup", "1.2", "--calibration", reference_at_depth_3)
    assert near["target"]["feasible"]


@pytest.mark.usefixtures("here")
def test_a_target_that_no_accept_length_reaches_is_null(specmodel: Run) -> None:
    target = asked(specmodel, "--target-speedup", "1000")["target"]
    assert target["accept_length"]["median"] is None
    said = specmodel("predict", "--target-speedup", "1000").stdout
    assert "no accept length reaches" in said


@pytest.mark.usefixtures("here")
def test_a_target_of_one_is_the_break_even(specmodel: Run) -> None:
    answer = asked(specmodel, "--target-speedup", "1")
    assert answer["target"]["accept_length"] == pytest.approx(answer["break_even_accept_length"])


@pytest.mark.usefixtures("here")
def test_a_claim_needs_depths_beyond_the_measured_ones(specmodel: Run) -> None:
    status, line = error(specmodel, "--full", FULL, "--claim", "3.1")
    assert status == 2
    assert "--depth" in line
    answer = asked(specmodel, "--full", FULL, "--depth", "10", "--claim", "3.1")
    (claim,) = answer["claims"]
    assert claim["required_conditional_accuracy"] > 0.79


# --- pictures ---


@pytest.mark.usefixtures("here")
def test_a_picture_is_drawn(specmodel: Run, tmp_path: Path) -> None:
    result = specmodel("predict", "--accept", "2.75", "--plot", "one.png")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "one.png").read_bytes()[1:4] == b"PNG"
    result = specmodel("predict", "--full", FULL, "--depth", "1:5", "--plot", "five.svg")
    assert result.exit_code == 0, result.stderr
    assert "<svg" in (tmp_path / "five.svg").read_text(encoding="utf-8")


# --- refused ---


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--accept", "0.9"), "at least 1"),
        (("--accept", "4.2", "--depth", "3"), "between 1 and 4"),
        (("--accept", "4.2", "--accept-depth", "3", "--depth", "5"), "between 1 and 4"),
        (("--full", "74"), "a percentage? divide by 100"),
        (("--full", "74.2,47,29"), "a percentage? divide by 100"),
        (("--conditional", "77,65"), "a percentage? divide by 100"),
        (("--full", ".4,.5"), "never rises"),
        (("--full", "-.4"), "in [0, 1]"),
        (("--full", "nan"), "finite"),
        (("--accept", "2.75", "--num-draft-tokens", "2"), "between 1 and 2"),
        (("--accept", "4", "--depth", "9", "--topk", "4", "--num-draft-tokens", "3"), "1 and 3"),
        (("--full", "1,1,1", *("--topk", "4", "--num-draft-tokens", "3")), "at most 3"),
        (
            ("--conditional", "1,1,1", *("--depth", "9", "--topk", "4", "--num-draft-tokens", "3")),
            "at most 3, the most that a round emits",
        ),
        (("--accept", "2", "--workload", "chat"), "unknown workload 'chat'"),
    ],
)
def test_impossible_values_are_bad_usage(
    specmodel: Run, arguments: tuple[str, ...], said: str
) -> None:
    status, line = error(specmodel, *arguments)
    assert status == 2
    assert said in line


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--accept"),
        (("--depth", "3"), "--accept"),
        (("--accept", "two"), "--accept"),
        (("--accept", "2", "--full", ".5"), "--accept and --full"),
        (("--accept", "2", "--depth", "0"), "depth 0 is no speculation"),
        (("--full", ".5", "--depth", "0:3"), "depth 0 is no speculation"),
        (("--accept", "2", "--depth", "5:3"), "ends before it begins"),
        (("--accept", "2", "--depth", "x"), "neither a depth"),
        (("--accept", "2", "--depth", "1:9999"), "deeper than"),
        (("--full", ".7,x"), "'x'"),
        (("--full", "70%,50%"), "fraction"),
        (("--full", "74%"), "fraction"),
        (("--full", ""), "empty list"),
        (("--full", ".5,,.3"), "entry 2 of '.5,,.3' is empty"),
        (("--full", ".5,"), "entry 2 of '.5,' is empty"),
        (("--full", ",.5"), "entry 1 of ',.5' is empty"),
        (("--conditional", ";"), "entry 1 of ';' is empty"),
        (("--full", "0,5;0,3"), "decimals need a point, and commas separate"),
        (("--full", ",".join(["1"] * 129)), "the deepest that is modelled is 128"),
        (("--accept", "nan"), "not a finite number"),
        (("--accept", "inf"), "not a finite number"),
        (("--accept", "1e308"), "outside 1 to 10000"),
        (("--accept", "2,75"), "decimals need a point"),
        (("--accept", "2", "--claim", "nan"), "not a finite number"),
        (("--accept", "2", "--baseline", "nan"), "not a finite number"),
        (("--accept", "2", "--baseline", "inf"), "not a finite number"),
        (("--accept", "2", "--baseline", "1e308"), "outside 0.001 to 1e9"),
        (("--accept", "2", "--baseline", "1e-308"), "outside 0.001 to 1e9"),
        (("--accept", "2", "--batch-size", "inf"), "not a finite number"),
        (("--accept", "2", "--batch-size", "1e12"), "outside 1 to 1e6"),
        (("--accept", "2", "--batch-size", "0.5"), "outside 1 to 1e6"),
        (("--accept", "2", "--context-tokens", "inf"), "not a finite number"),
        (("--accept", "2", "--context-tokens", "1e10"), "outside 0 to 1e9"),
        (("--accept", "2", "--num-draft-tokens", "65537"), "--num-draft-tokens"),
        (("--accept", "2", "--topk", "65537"), "--topk"),
        (("--accept", "2", "--accept-depth", "129"), "--accept-depth"),
        (("--target-speedup", "nan"), "not a finite number"),
        (("--target-speedup", "inf"), "not a finite number"),
        (("--target-speedup", "0"), "outside 0.001 to 1000"),
        (("--target-speedup", "1001"), "outside 0.001 to 1000"),
        (("--full", ".7,.5,.4", "--accept-depth", "2"), "a deeper --accept-depth"),
        (("--accept", "2", "--topk", "4", "--depth", "3"), "--num-draft-tokens"),
        (
            ("--accept", "2", "--topk", "1", "--depth", "3", "--num-draft-tokens", "16"),
            "a chain of depth 3 verifies 4 tokens",
        ),
        (("--accept", "2", "--depth", "3", "--num-draft-tokens", "16"), "--topk"),
        (("--full", ".5,.4", "--depth", "1:5", "--num-draft-tokens", "6"), "verifies 3 tokens"),
        (("--accept", "1", "--depth", "1", "--num-draft-tokens", "1"), "verifies 2 tokens"),
        (("--accept", "2", "--baseline", "0"), "--baseline"),
        (("--target-speedup", "-1"), "--target-speedup"),
        (("--accept", "2", "--plot", "x.jpg"), ".png"),
        (("--target-speedup", "2", "--plot", "x.png"), "--plot draws predictions"),
        (("--accept", "2", "--nonsense"), "--nonsense"),
        (("--points", "points.csv", "--depth", "3"), "--depth has no effect"),
        (("--points", "points.csv", "--accuracy-from", "training"), "--accuracy-from has no"),
        (("--points", "points.csv", "--accuracy-from", "served"), "--accuracy-from has no"),
        (("--points", "p.csv", "--full", ".5", "--topk", "1"), "--full and --topk have no effect"),
        (("--points", "points.csv", "--accept", "2"), "--accept has no effect"),
        (("--points", "points.csv", "--target-speedup", "2"), "--target-speedup has no effect"),
        (("--points", "points.csv", "--accept-depth", "2"), "--accept-depth has no effect"),
        (("--points", "points.csv", "--plot", "x.png"), "--plot has no effect"),
    ],
)
def test_a_question_that_cannot_be_understood_is_bad_usage(
    specmodel: Run, arguments: tuple[str, ...], said: str
) -> None:
    status, line = error(specmodel, *arguments)
    assert status == 2
    assert said in line


@pytest.mark.usefixtures("here")
def test_one_step_may_verify_a_block_and_a_chain_its_own_number(specmodel: Run) -> None:
    block = ("--accept", "5", "--depth", "1", "--num-draft-tokens", "16")
    assert asked(specmodel, *block)["num_draft_tokens"] == 16
    chain = ("--accept", "3", "--depth", "3", "--num-draft-tokens", "4")
    assert asked(specmodel, *chain)["num_draft_tokens"] == 4


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("written", [".742,.47", ".742, .47", ".742;.47", ".742 .47", " .742,.47 "])
def test_a_list_has_one_kind_of_separator(specmodel: Run, written: str) -> None:
    answer = asked(specmodel, "--full", written)
    assert answer["accept_length"]["median"] == pytest.approx(1 + 0.742 + 0.47)


def test_a_calibration_of_several_depths_asks_which(specmodel: Run, tmp_path: Path) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text("tau,tok/s,baseline,k\n1.9,90,80,3\n2.1,92,80,5\n", encoding="utf-8")
    assert specmodel("fit", bench).exit_code == 0
    status, line = error(specmodel, "--accept", "2")
    assert status == 2
    assert "(3, 5)" in line
    assert "--depth" in line
    assert asked(specmodel, "--accept", "2", "--depth", "3")["num_steps"] == 3


def test_several_workloads_need_a_name_for_tokens_per_s(specmodel: Run, tmp_path: Path) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text(
        "workload,tau,tok/s,baseline,k\nchat,1.9,100,80,3\ncode,2.4,118,77,3\n", encoding="utf-8"
    )
    assert specmodel("fit", bench).exit_code == 0
    unnamed = asked(specmodel, "--accept", "2")
    assert unnamed["output_tokens_per_s"] is None
    assert "no_baseline" in codes(unnamed)
    chat = asked(specmodel, "--accept", "2", "--workload", "chat")
    rate = chat["output_tokens_per_s"]["median"] / chat["speedup"]["median"]
    assert rate == pytest.approx(80.0)
    status, line = error(specmodel, "--accept", "2", "--workload", "maths")
    assert status == 2
    assert "chat, code" in line
    own = asked(specmodel, "--accept", "2", "--workload", "maths", "--baseline", "70")
    assert own["output_tokens_per_s"]["median"] > 0
