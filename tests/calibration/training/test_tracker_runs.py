"""Several runs in one export of a tracker."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from calibration.training.reading import read_training_log
from calibration.training.records import Split
from calibration.training.training_log import TrainingLogError

KEYS = ("train/full_acc_0", "train/cond_acc_0")


def export(
    folder: Path, rows: Mapping[int, tuple[str, ...]], *runs: str, key: str = KEYS[0]
) -> Path:
    lines = [",".join(["Step", *(f"{run} - {key}" for run in runs)])]
    lines += [",".join([str(step), *cells]) for step, cells in rows.items()]
    path = folder / "wandb.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("key", [*KEYS, "train/acc_0", "train/tau_sim"])
@pytest.mark.parametrize("steps", [(1, 1, 2, 2), (1, 2, 3, 4)], ids=["shared", "interleaved"])
def test_runs_beside_each_other_are_refused_by_name(
    tmp_path: Path, key: str, steps: tuple[int, ...]
) -> None:
    rows: dict[int, tuple[str, ...]] = {}
    for number, step in enumerate(steps):
        cells = list(rows.get(step, ("", "")))
        cells[number % 2] = f"0.{number + 4}"
        rows[step] = tuple(cells)
    with pytest.raises(TrainingLogError) as caught:
        read_training_log(export(tmp_path, rows, "sun-8", "moon-7", key=key))
    assert caught.value.code == "several-runs"
    assert "'moon-7', 'sun-8'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_goes_on_under_another_name_is_one(tmp_path: Path) -> None:
    rows = {1: ("", "0.4"), 2: ("", "0.5"), 3: ("0.6", ""), 4: ("0.7", "")}
    log = read_training_log(export(tmp_path, rows, "a-resumed", "b-first"))
    assert log.series[Split.TRAIN].step.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert log.codes.isdisjoint({"step-restart", "conflicting-records"})


def test_a_run_that_repeats_another_is_one(tmp_path: Path) -> None:
    rows = {1: ("0.4", "0.4"), 2: ("0.5", "")}
    log = read_training_log(export(tmp_path, rows, "a", "b"))
    assert log.series[Split.TRAIN].step.tolist() == [1.0, 2.0]
    assert "duplicate-records" in log.codes


def test_a_column_of_another_run_without_accuracies_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text("Step,a - train/full_acc_0,b - train/loss\n1,0.4,2.0\n2,0.5,1.9\n")
    assert read_training_log(path).unique_steps == 2


def test_runs_of_one_name_in_train_and_another_in_validation_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text("Step,a - train/acc_0,b - eval/acc_0\n1,0.4,\n2,0.5,0.6\n3,0.5,\n")
    with pytest.raises(TrainingLogError) as caught:
        read_training_log(path, family="specforge")
    assert caught.value.code == "several-runs"
