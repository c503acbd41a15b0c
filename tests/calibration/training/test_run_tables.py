"""Tables and lines of runs that no trainer is known to write."""

from pathlib import Path

import pytest

from calibration.training.family_facts import Bonus
from calibration.training.log_acceptance import LogAcceptance, log_acceptance
from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.training_log import TrainingLogError


def accepted(path: Path, text: str, kind: Kind | None = None) -> LogAcceptance:
    path.write_text(text)
    return log_acceptance(read_training_log(path, accuracy_kind=kind))


TABLES = {
    "run.csv": "step,accuracy,accept length\n100,0.50,2.0\n200,0.55,2.2\n300,0.56,2.1\n",
    "run.tsv": "Step\tAcc\tmean acceptance length\n100\t0.50\t2.0\n200\t0.55\t2.2\n300\t0.56\t2.1\n",
    "run.md": (
        "The run of Monday:\n\n| Step | Accuracy | **Accept len** |\n|---:|---:|---|\n"
        "| 100 | 50.0 % | 2.0 |\n| 200 | 55.0 % | 2.2 |\n| 300 | 56.0 % | `2.1` |\n"
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_run_is_read(tmp_path: Path, name: str) -> None:
    (path := tmp_path / name).write_text(TABLES[name])
    log = read_training_log(path)
    found = log.series[Split.UNKNOWN]
    assert found.step.tolist() == [100.0, 200.0, 300.0]
    assert found.mean_marginal.tolist() == pytest.approx([0.5, 0.55, 0.56])
    printed = log_acceptance(log).printed
    assert printed is not None
    assert printed.accept_length == pytest.approx(2.10)  # bonus in, as an accept length is said


@pytest.mark.parametrize(
    ("heads", "kind", "accept_length"),
    [
        ("acc_0,acc_1,acc_2", Kind.JOINT, 1 + 0.7 + 0.5 + 0.3),
        ("acc@1,acc@2,acc@3", Kind.CONDITIONAL, 1 + 0.7 + 0.35 + 0.105),
        ("pos 1,pos 2,pos 3", Kind.MARGINAL, 1 + 0.7 + 0.35 + 0.105),
        ("joint acc 1,joint acc 2,joint acc 3", None, 1 + 0.7 + 0.5 + 0.3),
        ("cond_acc_0,cond_acc_1,cond_acc_2", None, 1 + 0.7 + 0.35 + 0.105),
    ],
)
def test_the_kind_of_accuracies_is_stated_or_in_their_names(
    tmp_path: Path, heads: str, kind: Kind | None, accept_length: float
) -> None:
    text = f"step,{heads}\n100,0.7,0.5,0.3\n"
    found = accepted(tmp_path / "run.csv", text, kind).acceptance.accept_length
    assert found is not None
    assert found.estimate.median == pytest.approx(accept_length)


def test_accuracies_of_an_open_kind_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(TrainingLogError) as refused:
        accepted(tmp_path / "run.csv", "step,acc_0,acc_1,acc_2\n100,0.7,0.5,0.3\n")
    assert refused.value.code == "kind-unknown"
    assert "2.500" in str(refused.value)  # 1 + 0.7 + 0.5 + 0.3
    assert "2.155" in str(refused.value)  # 1 + 0.7 + 0.7 x 0.5 + 0.7 x 0.5 x 0.3


def test_columns_of_validation_are_validation(tmp_path: Path) -> None:
    text = "step,train accept length,val accept length\n100,1.9,1.7\n200,2.0,1.8\n"
    found = accepted(tmp_path / "run.csv", text).printed
    assert found is not None
    assert found.accept_length == 1.8


def test_accept_lengths_of_rollouts_are_served_ones(tmp_path: Path) -> None:
    lines = [
        f"(TaskRunner pid=7) step:{step} - actor/loss:0.1 - rollout/spec_accept_length:np.float64({one})"
        f" - rollout/accept_length/max:7.0 - timing_s/step:3.0\n"
        for step, one in enumerate((2.0, 2.2, 2.1), start=1)
    ]
    found = accepted(tmp_path / "train.log", "".join(lines)).printed
    assert found is not None
    assert found.accept_length == pytest.approx(2.10)
    assert found.bonus is Bonus.MEASURED


def test_a_table_without_steps_is_none_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingLogError, match="no record"):
        accepted(tmp_path / "notes.md", "| model | accuracy |\n|---|---|\n| a | 0.5 |\n")
