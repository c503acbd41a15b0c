"""Checks of the values of a log; training_logs.md section 6."""

from pathlib import Path

import numpy as np
import pytest

from calibration.training.log_summary import log_summary
from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.training_log import TrainingLog, TrainingLogError
from tests.calibration.training.log_texts import train_line, val_line

TRUE_JOINT = (0.62, 0.35, 0.18)
TRUE_CONDITIONAL = (0.62, 0.35 / 0.62, 0.18 / 0.35)


def log_of(tmp_path: Path, *lines: str, correct_alias: bool = False) -> TrainingLog:
    path = tmp_path / "train.log"
    path.write_text("".join(lines))
    return read_training_log(path, correct_alias=correct_alias)


def refused(tmp_path: Path, *lines: str) -> TrainingLogError:
    with pytest.raises(TrainingLogError) as caught:
        log_of(tmp_path, *lines)
    return caught.value


def times(factor: float, values: tuple[float, ...] = TRUE_JOINT) -> tuple[float, ...]:
    return tuple(factor * value for value in values)


def defect_lines(num_processes: int, scale: float = 1.0) -> tuple[str, str]:
    """Return a train and a validation record as 0.6.0 printed them on some processes."""
    joint, conditional = times(scale), (scale * 0.62, *TRUE_CONDITIONAL[1:])
    in_train, in_val = 2.0 - 1.0 / num_processes, float(num_processes)
    return (
        train_line(900, times(in_train, joint), conditional=times(in_train, conditional)),
        val_line(times(in_val, joint), conditional=times(in_val, conditional)),
    )


@pytest.mark.parametrize("num_processes", [2, 3, 4, 8, 16])
def test_a_double_reduction_is_named_with_the_number_of_processes(
    tmp_path: Path, num_processes: int
) -> None:
    error = refused(tmp_path, *defect_lines(num_processes))
    assert error.code == "alias-defect"
    assert error.log is not None
    for split, divisor in ((Split.TRAIN, 2.0 - 1.0 / num_processes), (Split.VAL, num_processes)):
        defect = error.log.alias[split]
        assert (defect.num_processes, defect.divisor) == (num_processes, divisor)


@pytest.mark.parametrize("which", [0, 1])
def test_train_or_validation_alone_show_a_double_reduction(tmp_path: Path, which: int) -> None:
    error = refused(tmp_path, defect_lines(4)[which])
    assert error.log is not None
    (defect,) = error.log.alias.values()
    assert (error.code, defect.num_processes) == ("alias-defect", 4)


def test_a_double_reduction_is_seen_where_no_accuracy_is_above_1(tmp_path: Path) -> None:
    train, _ = defect_lines(2, scale=0.42 / 0.62)
    assert refused(tmp_path, train).code == "alias-defect"


@pytest.mark.parametrize("num_processes", [2, 4])
def test_the_division_gives_back_what_was_measured(tmp_path: Path, num_processes: int) -> None:
    log = log_of(tmp_path, *defect_lines(num_processes), correct_alias=True)
    assert log.codes == frozenset()
    for split in (Split.TRAIN, Split.VAL):
        accuracies = log.series[split].accuracies
        assert accuracies[Kind.JOINT][0] == pytest.approx(TRUE_JOINT, abs=0.0005)
        assert accuracies[Kind.CONDITIONAL][0] == pytest.approx(TRUE_CONDITIONAL, abs=0.0005)
        assert np.nanmax(np.abs(log_summary(log)["series"][split]["identity"])) < 1.01
        assert log.alias[split].corrected
    assert log.series[Split.TRAIN].losses[0].tolist() == [2.0, 2.0, 2.0]


def test_a_sound_log_is_no_double_reduction(tmp_path: Path) -> None:
    log = log_of(tmp_path, train_line(1, TRUE_JOINT), val_line(TRUE_JOINT))
    assert (log.codes, log.alias) == (frozenset(), {})


def test_tiny_accuracies_of_few_digits_are_no_double_reduction(tmp_path: Path) -> None:
    log = log_of(tmp_path, train_line(1, (0.020, 0.001), conditional=(0.020, 0.075)))
    assert log.codes == {"train-only"}


def test_one_depth_that_disagrees_is_no_double_reduction(tmp_path: Path) -> None:
    log = log_of(tmp_path, train_line(1, TRUE_JOINT, conditional=(0.62, 0.95, 0.51)))
    assert log.codes == {"identity-violated", "train-only"}


@pytest.mark.parametrize("joint", [(1.2, 0.35, 0.18), (0.62, -0.1, -0.2)])
def test_an_accuracy_outside_its_range_is_refused_with_its_line(
    tmp_path: Path, joint: tuple[float, ...]
) -> None:
    error = refused(tmp_path, train_line(1, TRUE_JOINT), train_line(2, joint))
    assert error.code == "accuracy-out-of-range"
    assert "line 2" in str(error)


def test_a_record_with_nan_may_be_outside_the_range(tmp_path: Path) -> None:
    bad = train_line(2, (1.2, 0.35, 0.18), loss="nan")
    assert "non-finite" in log_of(tmp_path, train_line(1, TRUE_JOINT), bad).codes


def test_the_identity_may_be_off_by_3_percent_and_rounding(tmp_path: Path) -> None:
    joint = (0.600, 0.300)
    rounding = 0.0005 * (1 / 0.6 + 1 / 0.5 + 1 / 0.3)
    for ratio, wrong in ((1.0 + 0.029 + rounding, False), (1.0 + 0.034 + rounding, True)):
        line = train_line(1, joint, conditional=(0.600, 0.5 * ratio))
        assert ("identity-violated" in log_of(tmp_path, line).codes) == wrong


def test_the_first_depths_must_agree(tmp_path: Path) -> None:
    line = train_line(1, (0.742, 0.47), conditional=(0.770, 0.47 / 0.742))
    assert "cond0-differs" in log_of(tmp_path, line).codes
    line = train_line(1, (0.742, 0.47), conditional=(0.743, 0.47 / 0.742))
    assert "cond0-differs" not in log_of(tmp_path, line).codes


def test_a_joint_accuracy_that_rises_with_depth_is_named(tmp_path: Path) -> None:
    for last, rises in ((0.31, True), (0.3, False)):
        line = train_line(1, (0.5, 0.3, last), conditional=(0.5, 0.6, 1.0))
        assert ("not-monotone" in log_of(tmp_path, line).codes) == rises


def test_macro_averages_over_empty_batches_are_named_and_not_corrected(tmp_path: Path) -> None:
    """A share of empty batches scales joint and conditional alike: the identity becomes 1 - share."""
    joint, conditional = times(0.8), times(0.8, TRUE_CONDITIONAL)
    log = log_of(tmp_path, train_line(1, TRUE_JOINT), val_line(joint, conditional=conditional))
    assert log.codes == {"identity-violated"}
    assert log_summary(log)["series"]["val"]["identity"] == pytest.approx([0.8, 0.8], abs=0.003)


EPOCH = "{} Epoch [{}/10], position {},  Acc: {}\n"


def epoch_lines(word: str, epoch: int, values: tuple[float, ...]) -> str:
    return "".join(EPOCH.format(word, epoch, depth, value) for depth, value in enumerate(values))


@pytest.mark.parametrize(("evaluation", "same"), [((0.66, 0.61), True), ((0.66, 0.6), False)])
def test_an_evaluation_that_prints_the_training_in_every_epoch_is_named(
    tmp_path: Path, evaluation: tuple[float, ...], same: bool
) -> None:
    log = log_of(
        tmp_path,
        epoch_lines("Train", 1, (0.5, 0.4)),
        epoch_lines("Eval", 1, (0.5, 0.4)),
        epoch_lines("Train", 2, (0.66, 0.61)),
        epoch_lines("Eval", 2, evaluation),
    )
    assert ("eval-equals-train" in log.codes) == same


def test_a_log_without_a_finite_record_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, train_line(1, TRUE_JOINT, loss="nan"))
    assert error.code == "no-finite-records"
    assert error.log is not None
    assert error.log.unique_steps == 1


def test_records_of_two_trainers_are_refused_unless_one_is_named(tmp_path: Path) -> None:
    other = "step 5: {'acc_0': 0.6, 'acc_1': 0.5, 'loss': 2.0}\n"
    error = refused(tmp_path, train_line(1, TRUE_JOINT), train_line(2, TRUE_JOINT), other)
    assert error.code == "mixed-formats"
    assert error.num_records == {"specforge": 1, "speculators-eagle3": 2}
    path = tmp_path / "train.log"
    assert read_training_log(path, family="specforge").last_step == 5
    assert read_training_log(path, family="speculators-eagle3").last_step == 2
    with pytest.raises(TrainingLogError, match="no record of torchspec"):
        read_training_log(path, family="torchspec")
