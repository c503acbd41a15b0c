"""Exports of trackers of all trainers but speculators; training_logs.md sections 5.3 and 5.4."""

from pathlib import Path

import pytest

from calibration.training.family_facts import OPEN_FAMILY, Bonus, OutOfVocabulary
from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.trackers import tracker_plans
from calibration.training.training_log import TrainingLog, TrainingLogError


def read(folder: Path, *files: str | tuple[str, str], family: str | None = None) -> TrainingLog:
    paths = []
    for number, file in enumerate(files):
        name, text = (f"{number}.csv", file) if isinstance(file, str) else file
        paths.append(folder / name)
        paths[-1].write_text(text)
    return read_training_log(paths, family=family)


def accuracies(log: TrainingLog, split: Split, kind: Kind = Kind.MARGINAL) -> list[list[float]]:
    return list(log.series[split].accuracies[kind].tolist())


@pytest.mark.parametrize(
    ("keys", "framework", "family"),
    [
        ("train/acc_0 train/ploss_0 train/acceptance_rate_0", "SpecForge", "specforge"),
        ("train/acc_0 train/lr train/grad_norm", "SpecForge", "specforge"),
        ("train/acc_0 eval/acc_0", "SpecForge", "specforge"),
        ("train/acc_0 eval/avg_acc eval/simulated_acc_len", "SpecForge", "specforge"),
        ("eval/per_position_acc_0 eval/avg_acc", "SpecForge", "specforge"),
        ("train/epoch_acc_0", "SpecForge", "specforge"),
        ("train/epochacc_0 eval/acc_0", "SpecForge", "specforge"),
        ("train/acc_0 test/epochacc_0", "EAGLE-3", "eagle3"),
        ("train/epochacc_0 test/epochacc_0", "EAGLE-3", "eagle3"),
        ("train/acc_0 train/avg_acc", "TorchSpec", "torchspec"),
        ("train/acc_0 train/simulated_acc_len eval/acc_0", "TorchSpec", "torchspec"),
        ("train/acc_0 train/avg_loss train/grad_norm", None, None),
        ("train/acc_0 train/ploss_0 train/lr", "EAGLE-3 or SpecForge", "eagle3"),
        ("train/epochacc_0", "EAGLE-3 or SpecForge", "eagle3"),
        ("eval/acc_0 eval/simulated_acc_len", "SpecForge or TorchSpec", "specforge"),
        ("train_acc/parallel_0_step_0 train/lr", "ModelOpt", "modelopt"),
        ("train/train_acc/parallel_0_step_0", "ModelOpt", "modelopt"),
        ("parallel_0_step_0_train_acc", "ModelOpt", "modelopt"),
        ("accuracy@0 accept_rate@0", "DeepSpec", "deepspec"),
        ("train/tau_sim val/tau_sim", "NeMo Automodel", "automodel"),
    ],
)
def test_a_table_is_of_the_trainer_that_logs_all_of_its_keys(
    tmp_path: Path, keys: str, framework: str | None, family: str | None
) -> None:
    columns = keys.split()
    text = ",".join(["Step", *columns]) + "\n50" + ",0.5" * len(columns) + "\n"
    if framework is None:  # grad_norm is of SpecForge, avg_loss of TorchSpec
        with pytest.raises(TrainingLogError) as caught:
            read(tmp_path, text)
        assert caught.value.code == "mixed-formats"
        return
    log = read(tmp_path, text)
    assert (log.framework, log.family, log.formats) == (framework, family, ("tracker",))


@pytest.mark.parametrize("family", ["specforge", "eagle3", "torchspec"])
def test_a_family_that_is_named_is_taken_where_it_may_be(tmp_path: Path, family: str) -> None:
    log = read(tmp_path, "Step,train/acc_0,train/acc_1\n50,0.6,0.5\n", family=family)
    assert log.family == family
    assert " or " not in log.framework
    assert accuracies(log, Split.TRAIN) == [[0.6, 0.5]]


def test_a_family_that_does_not_log_the_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingLogError, match="found: torchspec"):
        read(tmp_path, "Step,train/acc_0,train/avg_acc\n50,0.6,0.5\n", family="specforge")


def test_keys_of_two_trainers_are_mixed(tmp_path: Path) -> None:
    text = "Step,train/acc_0,train/acceptance_rate_0,train/tau_sim\n50,0.6,0.5,2.0\n"
    with pytest.raises(TrainingLogError) as caught:
        read(tmp_path, text)
    assert caught.value.code == "mixed-formats"
    assert caught.value.num_records == {"specforge": 1, "automodel": 1}


def test_specforge_has_accuracies_overlaps_and_an_evaluation_without_bonus(tmp_path: Path) -> None:
    text = (
        "Step,train/acc_0,train/acc_1,train/ploss_0,train/ploss_1,train/acceptance_rate_0,"
        "train/acceptance_rate_1,train/lr,eval/per_position_acc,eval/simulated_acc_len\n"
        "50,0.6,0.5,2.5,3.5,0.55,0.45,0.0001,,\n"
        '50,,,,,,,,"[0.58, 0.48]",0.8584\n'
        "100,0.62,0.52,2.4,3.4,0.57,0.47,0.0001,,\n"
        '100,,,,,,,,"[0.59, 0.49, 0.4]",0.99474\n'
    )
    log = read(tmp_path, text)
    assert (log.versions, log.oov) == (">=2026-03", OutOfVocabulary.MISS)
    assert log.kinds == {"acc_k": "marginal", "acceptance_rate_k": "overlap"}
    assert accuracies(log, Split.TRAIN) == [[0.6, 0.5], [0.62, 0.52]]
    assert accuracies(log, Split.TRAIN, Kind.OVERLAP) == [[0.55, 0.45], [0.57, 0.47]]
    train, val = log.series[Split.TRAIN], log.series[Split.VAL]
    assert train.losses.tolist() == [[2.5, 3.5], [2.4, 3.4]]
    assert train.learning_rate.tolist() == [0.0001, 0.0001]
    assert val.step.tolist() == [50.0, 100.0]
    assert accuracies(log, Split.VAL)[1] == [0.59, 0.49, 0.4]
    assert accuracies(log, Split.VAL)[0][:2] == [0.58, 0.48]
    reported = val.reported["simulated_acc_len"]
    assert (reported.last, reported.bonus) == (0.99474, Bonus.NO)


def test_a_step_accuracy_is_preferred_to_that_of_an_epoch(tmp_path: Path) -> None:
    text = (
        "Step,train/epochacc_0,train/acc_0,test/epochacc_0,test/epochacc_1\n"
        "1,,0.5,,\n2,,0.7,,\n3,0.6,,0.55,0.45\n"
    )
    log = read(tmp_path, text)
    assert log.family == "eagle3"
    assert accuracies(log, Split.TRAIN) == [[0.5], [0.7]]
    assert accuracies(log, Split.VAL) == [[0.55, 0.45]]


def test_an_average_is_of_all_depths_in_torchspec_and_of_the_first_in_specforge(
    tmp_path: Path,
) -> None:
    header = "Step,train/acc_0,eval/avg_acc"
    log = read(tmp_path, f"{header},train/avg_acc\n5,0.6,0.3,0.4\n")
    assert log.series[Split.VAL].mean_marginal.tolist() == [0.3]
    assert log.series[Split.TRAIN].mean_marginal.tolist() == [0.4]
    assert not log.series[Split.VAL].accuracies
    log = read(tmp_path, f"{header},train/acceptance_rate_0\n5,0.6,0.3,0.4\n")
    assert accuracies(log, Split.VAL) == [[0.3]]
    with pytest.raises(TrainingLogError) as caught:  # nothing says which of the two
        read(tmp_path, "Step,eval/avg_acc\n5,0.3\n")
    assert caught.value.code == "unrecognised"


def test_torchspec_averages_ratios_and_leaves_out_other_tokens(tmp_path: Path) -> None:
    text = "Step,train/acc_0,train/acc_1,train/simulated_acc_len\n5,0.6,0.5,0.9\n"
    log = read(tmp_path, text)
    assert (log.oov, str(log.aggregation)) == (OutOfVocabulary.REMOVED, "macro")
    reported = log.series[Split.TRAIN].reported["simulated_acc_len"]
    assert (reported.last, reported.bonus) == (0.9, Bonus.NO)


def test_modelopt_has_an_estimate_and_a_rollout_taken_as_measured(tmp_path: Path) -> None:
    text = (
        "train/global_step,train_acc/parallel_0_step_0,train_acc/parallel_0_step_1,"
        "train_acc/parallel_1_step_0,estimated_training_ar,validate_ar\n"
        "500,0.64,0.6,0.9,2.024,\n1000,0.66,0.61,0.9,2.0626,1.9\n"
    )
    log = read(tmp_path, text)
    assert accuracies(log, Split.TRAIN) == [[0.64, 0.6], [0.66, 0.61]]
    assert log.last_step == 1000
    reported = log.series[Split.TRAIN].reported
    assert reported["estimated_training_ar"].bonus is Bonus.YES
    assert (reported["validate_ar"].last, reported["validate_ar"].bonus) == (1.9, Bonus.MEASURED)


@pytest.mark.parametrize("first", [0, 1])
def test_files_of_tensorboard_of_deepspec_are_one_log(tmp_path: Path, first: int) -> None:
    values = {
        f"accuracy@{first}": "0.7",
        f"accuracy@{first + 1}": "0.6",
        f"accept_rate@{first}": "0.65",
        f"accept_rate@{first + 1}": "0.55",
        f"valid_tokens@{first}": "900",
        "tau_greedy": "2.1",
    }
    files = [
        (f"run-.-tag-{key}.csv", f"Wall time,Step,Value\n1.5,10,{value}\n2.5,20,{value}\n")
        for key, value in values.items()
    ]
    log = read(tmp_path, *files)
    assert (log.family, log.first_position, log.last_step) == ("deepspec", first, 20)
    assert log.kinds == {"accuracy@k": "marginal", "accept_rate@k": "overlap"}
    assert accuracies(log, Split.UNKNOWN) == [[0.7, 0.6], [0.7, 0.6]]
    assert accuracies(log, Split.UNKNOWN, Kind.OVERLAP) == [[0.65, 0.55], [0.65, 0.55]]
    reported = log.series[Split.UNKNOWN].reported["tau_greedy"]
    assert (reported.last, reported.bonus) == (2.1, Bonus.YES)
    assert "split-unknown" in log.codes


@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ("train_acc_0", "train/acc_0"),
        ("eval_per_position_acc_0", "eval/per_position_acc_0"),
        ("test_epochacc_0", "test/epochacc_0"),
        ("train_acc_parallel_0_step_0", "train_acc/parallel_0_step_0"),
    ],
)
def test_names_of_files_are_keys(tmp_path: Path, tag: str, key: str) -> None:
    file = (f"run-.-tag-{tag}.csv", "Wall time,Step,Value\n1.5,10,0.5\n")
    expected = tracker_plans((key,))[0]
    log = read(tmp_path, file)
    assert log.family == expected.family
    assert accuracies(log, expected.split) == [[0.5]]


def test_automodel_has_accept_lengths_with_bonus_and_no_depths(tmp_path: Path) -> None:
    text = "Step,train/tau_sim,val/tau_sim,train/tau_real,train/tau_real_step\n20,1.9,,,\n40,2.1,2.0,1.8,40\n"
    log = read(tmp_path, text)
    assert (log.depths, log.last_step) == (0, 40)
    train, val = log.series[Split.TRAIN].reported, log.series[Split.VAL].reported
    assert (train["tau_sim"].last, train["tau_sim"].bonus) == (2.1, Bonus.YES)
    assert (train["tau_real"].last, val["tau_sim"].last) == (1.8, 2.0)


def test_a_table_with_one_value_a_row_is_the_same_log(tmp_path: Path) -> None:
    text = (
        "step;tag;value\n50;train/acc_0;0.6\n50;train/acc_1;0.5\n50;train/acceptance_rate_0;0.55\n"
        "50;eval/per_position_acc;[0.58, 0.48]\n50;train/lr;0.001\n"
    )
    log = read(tmp_path, text)
    assert log.family == "specforge"
    assert accuracies(log, Split.TRAIN) == [[0.6, 0.5]]
    assert accuracies(log, Split.VAL) == [[0.58, 0.48]]
    assert log.series[Split.TRAIN].learning_rate.tolist() == [0.001]


def test_depths_after_one_that_lacks_and_other_keys_are_no_accuracies() -> None:
    assert tracker_plans(("train/acc", "acc_0", "train/acc_#", "val/acc_0", "train/acc_0x")) == ()
    (plan,) = tracker_plans(("train/acc_0", "train/acc_12", "Step"))
    assert dict(plan.columns) == {"marginal_0": 0, "marginal_12": 1}
    assert plan.hints == {OPEN_FAMILY}
