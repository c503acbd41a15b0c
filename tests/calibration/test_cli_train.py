"""`specmodel train` as a user meets it: the reference case, every kind of log, refusals, watching."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from calibration.points.packaged import EXAMPLES
from calibration.training.following import watched_logs
from tests.calibration.conftest import RunCommand

LOGS = Path(__file__).parents[1] / "fixtures" / "training"
BENCH = EXAMPLES / "bench.csv"
FULL = (0.742, 0.47, 0.29, 0.15, 0.097)
CONDITIONAL = (0.77, 0.65, 0.60, 0.57, 0.53)


def reference_log(columns: int = 160) -> str:
    """Return the reference case as Rich wraps it: time, level, message, path at the right."""
    pairs = []
    for depth, (full, conditional) in enumerate(zip(FULL, CONDITIONAL, strict=True)):
        pairs += [
            f"train/loss_{depth}={1.0 + 0.5 * depth:.3f}",
            f"train/full_acc_{depth}={full:.3f}",
            f"train/cond_acc_{depth}={conditional:.3f}",
        ]
    pairs += ["train/loss=9.000", "epoch=0", "lr=5.00e-05", "global_step=2656"]
    place = "trainer.py:220"
    width = columns - 21 - len(place)
    lines = [""]
    for pair in pairs:
        word = pair + (", " if pair is not pairs[-1] else "")
        if len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    head = f"[08:53:20] INFO     {lines[0].rstrip():<{width}} {place}"
    return "\n".join([head, *(" " * 20 + line.rstrip() for line in lines[1:])]) + "\n"


def answer_of(text: str) -> dict[str, Any]:
    """Return a JSON answer."""
    answer: dict[str, Any] = json.loads(text)
    assert answer["schema_version"] == 1
    return answer


def test_the_reference_case_from_its_log_to_a_verdict(specmodel: RunCommand) -> None:
    log = reference_log()
    assert log.count("\n") == 4
    Path("train.log").write_text(log)
    run = specmodel("train", "train.log", "--bench", BENCH, "--json")
    assert run.exit_code == 0, run.output
    answer = answer_of(run.stdout)
    assert answer["routes"]["joint"] == pytest.approx(2.749)
    assert answer["routes"]["conditional"] == pytest.approx(2.83269163)
    assert answer["log"]["unique_steps"] == 1
    rates = answer["now"]["output_tokens_per_s"]
    assert rates["as_logged"]["median"] == pytest.approx(107.7, rel=0.01)  # 2.749 / 2.2965 x 90
    assert rates["expected"]["median"] == pytest.approx(97.4, rel=0.02)
    for estimate in rates.values():
        assert estimate["low"] < estimate["median"] < estimate["high"]
    assert answer["verdict_code"] == "round_cost_too_high"


def test_the_verdict_stands_on_one_screen(specmodel: RunCommand) -> None:
    Path("train.log").write_text(reference_log())
    run = specmodel("train", "train.log", "--bench", BENCH)
    assert run.exit_code == 0, run.output
    lines = run.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for said in ("2.749", "2.833", "verdict"):
        assert said in run.stdout


@pytest.mark.parametrize("columns", [80, 100, 160, 240])
def test_the_width_of_the_console_does_not_matter(specmodel: RunCommand, columns: int) -> None:
    Path("train.log").write_text(reference_log(columns))
    answer = answer_of(specmodel("train", "train.log", "--bench", BENCH, "--json").stdout)
    assert answer["routes"]["joint"] == pytest.approx(2.749)


def test_a_run_with_a_curve_is_projected_to_its_end(specmodel: RunCommand) -> None:
    name = "spec_long_ttt5.log.gz"
    truth = json.loads((LOGS / f"{name}.expected.json").read_text())["truth"]
    run = specmodel(
        "train", LOGS / name, "--bench", BENCH, "--until", "7500", "--json", "--plot", "run.png"
    )
    assert run.exit_code == 0, run.output
    projection = answer_of(run.stdout)["projection"]
    logged = projection["accept_length"]["as_logged"]
    expected = truth["at_total_steps"]["accept_length"]
    assert projection["at_step"] == 7500
    assert logged["low"] < expected < logged["high"]
    assert logged["median"] == pytest.approx(expected, abs=0.06)
    assert 0 <= projection["probability_of_target"] <= 1
    assert Path("run.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_last_step_nothing_is_projected_and_it_is_said(specmodel: RunCommand) -> None:
    Path("train.log").write_text(reference_log())
    answer = answer_of(specmodel("train", "train.log", "--bench", BENCH, "--json").stdout)
    assert answer["projection"] is None
    assert answer["projection_refused"]["code"] == "too-few-points"


def test_without_points_the_prior_answers_and_names_itself(specmodel: RunCommand) -> None:
    Path("train.log").write_text(reference_log())
    answer = answer_of(specmodel("train", "train.log", "--json").stdout)
    assert answer["calibration"] == "packaged prior"
    assert answer["now"]["output_tokens_per_s"]["expected"] is None
    assert answer["now"]["speedup"]["expected"]["median"] > 1


def test_own_pairs_move_what_is_expected_in_serving(specmodel: RunCommand) -> None:
    Path("train.log").write_text(reference_log())
    pairs = ["--served-pair", "2.7:1.9", "--served-pair", "2.6:1.85"]
    plain, moved = (
        answer_of(specmodel("train", "train.log", "--bench", BENCH, "--json", *options).stdout)
        for options in ([], pairs)
    )
    lengths = [one["now"]["accept_length"]["expected"]["median"] for one in (plain, moved)]
    assert lengths[1] < lengths[0] - 0.2


def test_a_defect_is_named_and_corrected_when_asked(specmodel: RunCommand) -> None:
    log = LOGS / "spec_060_alias_bug_w4.log"
    refused = specmodel("train", log, "--bench", BENCH, "--json")
    assert refused.exit_code == 1
    assert answer_of(refused.stdout)["log"]["error"] == "alias-defect"
    assert refused.stderr.count("\n") == 1
    corrected = specmodel("train", log, "--bench", BENCH, "--correct-alias", "--json")
    assert corrected.exit_code == 0, corrected.output
    assert answer_of(corrected.stdout)["routes"]["joint"] == pytest.approx(2.1665)


@pytest.mark.parametrize("name", ["automodel.log", "torchspec.log", "eagle1_hass_epoch.log"])
def test_a_log_that_gives_no_depth_is_still_summarised(specmodel: RunCommand, name: str) -> None:
    run = specmodel("train", LOGS / name, "--bench", BENCH, "--json")
    assert run.exit_code == 0, run.output
    answer = answer_of(run.stdout)
    assert answer["now"] is None
    assert "--depth" in answer["verdict"]
    assert answer["log"]["framework"]


def test_what_is_no_training_log_is_one_line(specmodel: RunCommand) -> None:
    run = specmodel("train", LOGS / "bad_15_not_a_training_log.txt", "--bench", BENCH)
    assert run.exit_code == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1


def test_a_step_before_the_last_one_is_no_end(specmodel: RunCommand) -> None:
    run = specmodel("train", LOGS / "spec_long_ttt5.log.gz", "--bench", BENCH, "--until", "100")
    assert run.exit_code == 1
    assert "--until" in run.stderr


def test_predict_takes_a_log(specmodel: RunCommand, here: Path) -> None:
    assert here.exists()
    Path("train.log").write_text(reference_log())
    run = specmodel("predict", "--log", "train.log", "--json")
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert answer["as_logged"]["accept_length"]["median"] == pytest.approx(2.749)
    assert answer["output_tokens_per_s"]["median"] == pytest.approx(97.4, rel=0.01)
    served = specmodel("predict", "--log", "train.log", "--accuracy-from", "served", "--json")
    assert json.loads(served.stdout)["accept_length"]["median"] == pytest.approx(2.749)


def test_a_growing_log_is_followed_to_its_last_step(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = [f"step {step}: {{'acc_0': 0.6, 'acc_1': 0.5, 'loss': 2.0}}\n" for step in (1, 2, 3)]
    log.write_text(lines[0])

    def grow() -> None:
        for line in lines[1:]:
            time.sleep(0.2)
            with log.open("a") as more:
                more.write(line)

    writer = threading.Thread(target=grow)
    writer.start()
    seen = [one.last_step for one in watched_logs([log], every_s=0.05, most_looks=40)]
    writer.join()
    assert seen == [1, 2, 3]


def test_reading_a_log_leaves_no_file_behind(specmodel: RunCommand) -> None:
    shutil.copy(LOGS / "specforge_cutover_dict.log", "train.log")
    assert specmodel("train", "train.log", "--bench", BENCH).exit_code == 0
    assert [path.name for path in Path.cwd().iterdir()] == ["train.log"]


def test_a_step_that_is_past_is_called_now(specmodel: RunCommand) -> None:
    log = LOGS / "spec_long_ttt5.log.gz"
    run = specmodel("train", log, "--bench", BENCH, "--until", "7500", "--target", "0.8")
    assert run.exit_code == 0, run.output
    assert "by now (now to" in run.stdout


def test_marginal_accuracies_are_not_called_conditional(specmodel: RunCommand) -> None:
    log = LOGS / "specforge_cutover_dict.log"
    assert "conditional" not in specmodel("train", log, "--bench", BENCH).stdout
    depths = answer_of(specmodel("train", log, "--bench", BENCH, "--json").stdout)["depths"]
    assert {one["chained_kind"] for one in depths} == {"marginal"}


def test_why_nothing_is_projected_is_always_said(specmodel: RunCommand) -> None:
    Path("train.log").write_text(reference_log())
    run = specmodel("train", "train.log", "--bench", BENCH)
    assert "at least 5 are needed" in " ".join(run.output.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["spec_060_alias_bug_w4.log"], "--correct-alias"),
        (["bad_04_nan_inf.log"], "--format"),
        (["spec_07_wide.log", "--seconds-per-step", "inf"], "--seconds-per-step"),
        (["spec_07_wide.log", "--response-tokens", "inf"], "--response-tokens"),
    ],
)
def test_a_refusal_names_the_option(specmodel: RunCommand, options: list[str], said: str) -> None:
    run = specmodel("train", LOGS / options[0], *options[1:], "--bench", BENCH)
    assert run.exit_code > 0
    assert run.stderr.count("\n") == 1
    assert said in run.stderr


def test_no_line_is_wider_than_80(specmodel: RunCommand) -> None:
    Path("fast.csv").write_text(
        "num_steps,batch_size,accept_length,throughput,baseline\n5,64,2.1,12345.6,11000\n"
    )
    log = LOGS / "spec_long_ttt5.log.gz"
    run = specmodel("train", log, "--bench", "fast.csv", "--until", "100000")
    assert run.exit_code == 0, run.output
    assert max(map(len, run.output.splitlines())) <= 80


def test_a_trainer_that_is_not_known_is_bad_usage(specmodel: RunCommand) -> None:
    run = specmodel("train", LOGS / "spec_07_wide.log", "--format", "abacus")
    assert run.exit_code == 2
    assert "speculators-eagle3" in run.stderr


def test_nothing_known_of_serving_is_not_drawn(specmodel: RunCommand) -> None:
    run = specmodel("train", LOGS / "torchspec.log", "--bench", BENCH, "--plot", "run.png")
    assert run.exit_code == 0, run.output
    assert "run.png was not drawn" in run.stderr
    assert not Path("run.png").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--response-tokens", "2"), ("--served-pair", "1:1")]
)
def test_a_value_that_cannot_be_is_said_by_its_option(
    specmodel: RunCommand, option: str, value: str
) -> None:
    result = specmodel("train", LOGS / "bad_01_interleaved_ranks.log", option, value)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {option}")
