"""The numbers that the project promises on points it has not seen, and how they are made."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibration import evaluate, read_points
from calibration.evaluate import EvaluatedSystem, Evaluation, evaluated_systems, systems_to_evaluate
from calibration.evaluate_splits import (
    each_configuration,
    each_row,
    each_workload,
    few_rows,
    small_loads,
)
from calibration.points.packaged import packaged_table
from calibration.points.table import numbers, texts
from calibration.report.evaluation_text import print_evaluation
from specmodel.errors import FitError, ParameterError, UnknownKeyError

SOUND_TARGETS = 7
README = Path(__file__).parents[2] / "README.md"


@cache
def specbundle() -> tuple[list[EvaluatedSystem], tuple[str, ...]]:
    return systems_to_evaluate([], ["specbundle-*"])


@cache
def evaluation_of_specbundle() -> Evaluation:
    return evaluate(specbundle()[0], splits=["workload", "config", "few"])


@cache
def system(name: str) -> EvaluatedSystem:
    return systems_to_evaluate([], [name])[0][0]


def test_llama4_scout_is_detected_as_unsound_and_left_out() -> None:
    found, set_aside = specbundle()
    assert len(found) == SOUND_TARGETS
    assert not any("scout" in one.name for one in found)
    assert len(set_aside) == 1
    assert "Scout" in set_aside[0]


@pytest.mark.parametrize(
    ("split", "line"),
    [
        ("workload", 0.032),
        ("config", 0.028),
        ("0 rows", 0.060),
        ("1 row", 0.052),
        ("2 rows", 0.044),
        ("5 rows", 0.035),
    ],
)
def test_mean_error_of_the_speedup_passes_the_line(split: str, line: float) -> None:
    overall = {one.split: one for one in evaluation_of_specbundle().overall}[split]
    assert overall.num_systems == SOUND_TARGETS
    assert overall.mape <= line
    assert overall.mape < overall.textbook_mape
    assert not overall.constant_mape <= overall.mape  # also when there is none


@pytest.mark.parametrize("split", ["workload", "config", "1 row", "2 rows", "5 rows"])
def test_ninety_per_cent_intervals_cover_ninety_per_cent(split: str) -> None:
    overall = {one.split: one for one in evaluation_of_specbundle().overall}[split]
    # One row cannot tell a tidy system from another; these seven are tidier than most.
    assert 0.87 <= overall.coverage <= (0.97 if split == "1 row" else 0.95)
    assert overall.coverage_high >= 0.90


def test_intervals_of_the_prior_alone_do_not_fall_short() -> None:
    """With no row they cover 99 %: few systems make a wide prior."""
    overall = {one.split: one for one in evaluation_of_specbundle().overall}["0 rows"]
    assert overall.coverage >= 0.87


def test_the_readme_shows_this_evaluation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_evaluation(evaluation_of_specbundle(), ())
    said = capsys.readouterr().out.partition("Error:")[0]
    shown = [line.rstrip() for line in said[said.index("Mean over") :].rstrip().splitlines()]
    assert len(shown) == 8
    assert "\n".join(shown) in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("split", ["workload", "config"])
def test_choosing_by_prediction_costs_less_than_one_per_cent(split: str) -> None:
    overall = {one.split: one for one in evaluation_of_specbundle().overall}[split]
    assert overall.regret <= 0.01


@pytest.mark.parametrize(
    ("name", "line"),
    [("trtllm-dsr1-b200-mtp", 0.021), ("vllm-20780-eagle1", 0.006), ("vllm-20780-eagle3", 0.020)],
)
def test_depth_sweeps_are_predicted_and_decided(name: str, line: float) -> None:
    found = {one.split: one for one in evaluate([system(name)], splits=["row", "fitted"]).scores}
    assert found["row"].mape <= line
    assert found["fitted"].regret <= 0.01


@pytest.mark.parametrize(
    "name",
    [
        *("rtx6kpro-kimi-k26-dcp1", "rtx6kpro-kimi-k26-dcp4", "rtx6kpro-kimi-k26-dcp8"),
        *("rtx6kpro-glm51-dcp1", "rtx6kpro-glm51-dcp2", "rtx6kpro-glm51-dcp8"),
    ],
)
def test_other_batches_and_contexts_are_read_off_the_baseline(name: str) -> None:
    found = {one.split: one for one in evaluate([system(name)], splits=["load"]).scores}
    assert found["load, measured"].median <= 0.10
    assert found["load, measured"].coverage >= 0.85


def test_intervals_cover_where_the_baseline_was_not_measured() -> None:
    """Pooled over the PCIe rigs; single rigs hold six to ten such rows."""
    found, _ = systems_to_evaluate([], ["rtx6kpro-kimi-k26-*", "rtx6kpro-glm51-*", "*dsv4flash-v2"])
    overall = {one.split: one for one in evaluate(found, splits=["load"]).overall}
    elsewhere = overall["load, elsewhere"]
    assert elsewhere.coverage >= 0.85
    assert elsewhere.coverage_high >= 0.90


def test_a_round_cost_that_rises_with_context_is_expressed() -> None:
    """Kimi-K2.6 on PCIe, batch 1: from batch <= 8 at context 0, the rise to 128k tokens."""
    rows = system("rtx6kpro-kimi-k26-dcp4").rows
    batch, context = numbers(rows.frame, "batch_size"), numbers(rows.frame, "context_tokens")
    growth = rows.rows.terms.kv_growth
    at_one = np.flatnonzero(batch == 1)
    order = at_one[np.argsort(context[at_one])]
    assert np.all(np.diff(growth[order]) > 0)


def test_the_step_at_32_verified_rows_is_expressed() -> None:
    """GLM-5.1: the baseline steps between 16 and 32 rows, so verification does from batch 4 to 8."""
    rows = system("rtx6kpro-glm51-dcp8").rows
    batch, context = numbers(rows.frame, "batch_size"), numbers(rows.frame, "context_tokens")
    growth = {
        float(b): float(g)
        for b, c, g in zip(batch, context, rows.rows.terms.verify_growth, strict=True)
        if c == 0
    }
    assert growth[8.0] > 1.4 * growth[4.0]


def test_splits_never_show_the_rows_they_ask_for() -> None:
    rows = system("specbundle-qwen3-235b-a22b").rows
    for parts in (each_workload, each_configuration, each_row, few_rows(5, 3, 1).parts):
        for seen, tested in parts(rows):
            assert not np.any(seen & tested)
            assert tested.any()
    for seen, tested in each_workload(rows):
        workloads = np.array(texts(rows.frame, "workload"))
        assert not set(workloads[seen]) & set(workloads[tested])


def test_the_load_split_needs_a_batch_curve() -> None:
    assert not list(small_loads(measured=True).parts(system("specbundle-kimi-k2").rows))


def test_a_perfect_model_has_no_error(tmp_path: Path) -> None:
    """Points made from one round cost: the constant baseline is exact, and so is a fit."""
    header = "workload,num_steps,accept_length,throughput,baseline,engine\n"
    lines = [
        f"w{index},3,{accept},{100 * accept / 1.5:.6f},100,sglang\n"
        for index, accept in enumerate((1.8, 2.2, 2.6, 3.0))
    ]
    path = tmp_path / "points.csv"
    path.write_text(header + "".join(lines))
    found, _ = evaluated_systems(read_points(path))
    score = evaluate(found, splits=["row"]).scores[0]
    assert score.constant_mape == pytest.approx(0.0, abs=1e-8)
    assert score.mape < 0.02


def test_the_same_seed_gives_the_same_numbers() -> None:
    few = [
        evaluate([system("vllm-20780-eagle3")], splits=["few"], draws=3, seed=5) for _ in range(2)
    ]
    assert repr(few[0].scores) == repr(few[1].scores)


def test_an_unknown_split_or_table_is_named() -> None:
    with pytest.raises(ParameterError, match="split must be one of"):
        evaluate([system("vllm-20780-eagle3")], splits=["rows"])
    with pytest.raises(UnknownKeyError, match="vllm-20780-eagle3"):
        systems_to_evaluate([], ["vllm-20780-eagle33"])


def test_points_without_a_sound_system_are_refused() -> None:
    with pytest.raises(FitError, match="Scout"):
        evaluate(read_points(packaged_table("specbundle-llama4-scout").path))
