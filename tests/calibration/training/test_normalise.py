"""What counts of a log with copies, ranks and restarts; training_logs.md section 4."""

from pathlib import Path

import numpy as np
import pytest

from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.training_log import TrainingLog
from tests.calibration.training.log_texts import train_line, val_line


def log_of(tmp_path: Path, *lines: str, name: str = "train.log") -> TrainingLog:
    path = tmp_path / name
    path.write_text("".join(lines))
    return read_training_log(path)


def first_depth(log: TrainingLog, split: Split = Split.TRAIN) -> list[float]:
    series = log.series[split]
    kind = Kind.JOINT if Kind.JOINT in series.accuracies else Kind.MARGINAL
    return [float(value) for value in series.accuracies[kind][:, 0]]


def steps_of(log: TrainingLog, split: Split = Split.TRAIN) -> list[float]:
    return [float(step) for step in log.series[split].step]


def test_equal_copies_of_several_processes_are_one_record(tmp_path: Path) -> None:
    lines = [train_line(step, (0.5 + step / 1000, 0.25)) for step in (1, 2, 3)]
    log = log_of(tmp_path, *(line for line in lines for _ in range(4)))
    assert steps_of(log) == [1, 2, 3]
    assert log.codes == {"duplicate-records", "train-only"}
    (warning,) = (warning for warning in log.warnings if warning.code == "duplicate-records")
    assert warning.lines == (2, 3, 4, 6, 7, 8, 10, 11, 12)


def test_equal_copies_without_a_step_are_one_record_too(tmp_path: Path) -> None:
    lines = [train_line(None, (0.5 + n / 100, 0.25), rate=f"{n}.00e-05") for n in (1, 2, 3)]
    log = log_of(tmp_path, *(line for line in lines for _ in range(4)))
    assert (log.unique_steps, log.step_source) == (3, "counted")
    assert "duplicate-records" in log.codes


def test_of_labelled_ranks_the_lowest_counts_even_if_it_prints_last(tmp_path: Path) -> None:
    lines = [
        f"[rank{rank}]: " + train_line(step, (0.5 + rank / 10, 0.25))
        for step in (1, 2, 3)
        for rank in (3, 1, 0, 2)
    ]
    log = log_of(tmp_path, *lines)
    assert first_depth(log) == [0.5, 0.5, 0.5]
    assert log.codes == {"conflicting-records", "train-only"}


def test_equal_copies_of_ranks_in_any_order_do_not_hide_a_restart(tmp_path: Path) -> None:
    attempts = [(0.5, (1, 2, 3, 4), (0, 1)), (0.6, (3, 4, 5), (1, 0))]
    lines = [
        f"[rank{rank}]: " + train_line(step, (value, 0.25))
        for value, steps, ranks in attempts
        for step in steps
        for rank in (ranks if step % 2 else ranks[::-1])
    ]
    log = log_of(tmp_path, *lines)
    assert first_depth(log) == [0.5, 0.5, 0.6, 0.6, 0.6]
    assert log.codes == {"duplicate-records", "step-restart", "train-only"}


def test_a_validation_that_all_ranks_repeat_is_a_restart_too(tmp_path: Path) -> None:
    first = [f"[rank{rank}]: " + val_line((0.5, 0.25), epoch=0) for rank in (1, 0)]
    again = [f"[rank{rank}]: " + val_line((0.6, 0.25), epoch=0) for rank in (0, 1)]
    log = log_of(tmp_path, *first, *again)
    assert first_depth(log, Split.VAL) == [0.6]
    assert log.codes == {"duplicate-records", "step-restart"}


def test_old_logs_of_ranks_keep_the_records_that_another_rank_printed_first(tmp_path: Path) -> None:
    lines = [
        f"[rank{rank}]: " + train_line(None, (0.5 + n / 100, 0.25), rate=f"{n}.00e-05")
        for n in (1, 2, 3, 4)
        for rank in ((1, 0) if n % 2 else (0, 1))
    ]
    log = log_of(tmp_path, *lines)
    assert (log.unique_steps, log.step_source) == (4, "counted")
    assert log.codes == {"duplicate-records", "train-only"}


def test_rank_10_is_not_before_rank_2(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: " + train_line(1, (rank / 100, 0.001)) for rank in (10, 2, 33)]
    assert first_depth(log_of(tmp_path, *lines)) == [0.02]


def test_a_rank_that_was_started_again_is_settled_before_the_ranks_are(tmp_path: Path) -> None:
    lines = [
        f"[rank{rank}]: " + train_line(step, (0.5 + rank / 10 + attempt / 100, 0.25))
        for attempt, step in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4))
        for rank in (0, 1)
    ]
    log = log_of(tmp_path, *lines)
    assert first_depth(log) == [0.5, 0.51, 0.51, 0.51]
    assert log.codes == {"conflicting-records", "step-restart", "train-only"}


def test_an_actor_that_takes_over_from_another_is_a_restart(tmp_path: Path) -> None:
    lines = [
        f"(Trainer pid={pid}, ip=10.0.0.7) " + train_line(step, (value, 0.25))
        for pid, step, value in (
            (900, 1, 0.5),
            (900, 2, 0.5),
            (900, 3, 0.5),
            (70, 2, 0.6),
            (70, 3, 0.6),
            (70, 4, 0.6),
        )
    ]
    log = log_of(tmp_path, *lines)
    assert first_depth(log) == [0.5, 0.6, 0.6, 0.6]
    assert log.codes == {"step-restart", "train-only"}


def test_files_of_ranks_are_processes_and_not_restarts(tmp_path: Path) -> None:
    for rank, value in ((0, 0.5), (1, 0.6)):
        text = "".join(train_line(step, (value, 0.25)) for step in range(1, 9))
        (tmp_path / f"training_g0_rank{rank}_20260420.log").write_text(text)
    log = read_training_log(tmp_path)
    assert first_depth(log) == [0.5] * 8
    assert "conflicting-records" in log.codes


def test_files_of_one_run_are_one_log(tmp_path: Path) -> None:
    first = "".join(train_line(step, (0.5, 0.25)) for step in range(1, 9))
    second = "".join(train_line(step, (0.6, 0.25)) for step in range(7, 12))
    (tmp_path / "run.1.log").write_text(first)
    (tmp_path / "run.2.log").write_text(second)
    log = read_training_log([tmp_path / "run.1.log", tmp_path / "run.2.log"])
    assert first_depth(log) == [0.5] * 6 + [0.6] * 5
    (warning,) = (warning for warning in log.warnings if warning.code == "step-restart")
    assert log.where(warning.lines[0]) == "run.2.log, line 1"


def test_steps_are_counted_and_never_lines(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(train_line(step, (0.5, 0.25)) for step in range(10, 101, 10)))
    assert (log.unique_steps, log.first_step, log.last_step) == (10, 10, 100)
    assert len(log.series[Split.TRAIN]) == 10


def test_validation_takes_the_step_of_the_train_record_before_it(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        val_line((0.1, 0.01), epoch=0),
        train_line(7, (0.5, 0.25)),
        val_line((0.5, 0.25), epoch=1),
        train_line(8, (0.5, 0.25)),
    )
    steps = steps_of(log, Split.VAL)
    assert np.isnan(steps[0])
    assert steps[1] == 7


def test_a_validation_that_comes_again_drops_what_followed_the_first(tmp_path: Path) -> None:
    lines = [
        text
        for attempt, epochs in ((0, (0, 1, 2)), (1, (1, 2)))
        for epoch in epochs
        for text in (
            train_line(10 * epoch + 10, (0.5 + attempt / 10, 0.25), epoch=epoch),
            val_line((0.4 + attempt / 10, 0.25), epoch=epoch),
        )
    ]
    log = log_of(tmp_path, *lines[:-1])  # the second attempt has not come to its last validation
    assert first_depth(log, Split.VAL) == [0.4, 0.5]
    assert steps_of(log, Split.VAL) == [10, 20]
    assert log.epochs == (0.0, 1.0, 2.0)


def test_validation_of_several_processes_keeps_the_first_copy(tmp_path: Path) -> None:
    lines = [train_line(step, (0.5 + n / 100, 0.25)) for step in (1, 2, 3) for n in range(4)]
    lines += [val_line((0.4 + n / 100, 0.25)) for n in range(4)]
    log = log_of(tmp_path, *lines)
    assert first_depth(log, Split.VAL) == [0.4]
    assert log.codes == {"conflicting-records"}


def test_a_restart_without_steps_drops_the_validation_in_between_too(tmp_path: Path) -> None:
    rates = [f"{n}.00e-06" for n in range(1, 7)]
    lines = [train_line(None, (0.5, 0.25), rate=rate) for rate in rates]
    lines = [*(line.replace("2.000", f"2.{n:03}") for n, line in enumerate(lines))]
    again = [line.replace("0.500", "0.600") for line in lines[3:]]
    log = log_of(tmp_path, *lines, val_line((0.4, 0.25)), *again)
    assert log.unique_steps == 6
    assert first_depth(log) == [0.5, 0.5, 0.5, 0.6, 0.6, 0.6]
    assert Split.VAL not in log.series or not len(log.series[Split.VAL])
    assert "step-restart" in log.codes


def test_a_record_with_nan_counts_but_is_not_used(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        train_line(1, (0.5, 0.25)),
        train_line(2, (0.6, 0.25), loss="nan"),
        train_line(3, (0.0, 0.0), loss="inf"),
    )
    series = log.series[Split.TRAIN]
    assert (len(series), series.finite.tolist()) == (3, [True, False, False])
    assert series.usable_rows().tolist() == [0]
    assert "non-finite" in log.codes


BAR = "Training Epoch {}: 10%|█ | {}/20 [00:10<01:00, 1.0s/it, loss=1.5, acc=0.30, time=1.0s]\r"


def test_bars_are_used_only_where_no_line_has_their_step(tmp_path: Path) -> None:
    lines = [BAR.format(0, step) for step in range(1, 5)]
    record = "step 3: {'acc_0': 0.6, 'acc_1': 0.5, 'loss': 1.5, 'acc': 0.55}\n"
    log = log_of(tmp_path, *lines, record, BAR.format(0, 6), BAR.format(0, 7))
    series = log.series[Split.TRAIN]
    assert steps_of(log)[:3] == [1, 2, 3]
    assert series.mean_marginal[2] == 0.55
    assert log.step_source == "logged"
    assert series.usable_rows().tolist() == [2]  # the last one is a record, not a bar


def test_a_bar_that_starts_again_with_each_epoch_counts_on(tmp_path: Path) -> None:
    lines = [BAR.format(epoch, step) for epoch in (0, 1) for step in (5, 10, 15, 20)]
    log = log_of(tmp_path, *lines, "\n")
    assert steps_of(log) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert log.step_source == "bar"
    assert log.codes == {"mean-only", "train-only"}


def test_full_precision_beside_a_checkpoint_replaces_the_console(tmp_path: Path) -> None:
    lines = [
        text
        for epoch in (0, 1)
        for text in (
            train_line(10 * epoch + 10, (0.5, 0.25), epoch=epoch),
            val_line((0.4 + epoch / 10, 0.2), epoch=epoch),
        )
    ]
    (tmp_path / "run.log").write_text("".join(lines))
    folder = tmp_path / "checkpoints" / "1"
    folder.mkdir(parents=True)
    (folder / "val_metrics.json").write_text(
        '{"full_acc_0_epoch": 0.500123, "cond_acc_0_epoch": 0.500123, "loss_epoch": 5.0001,'
        '"full_acc_1_epoch": 0.200234, "cond_acc_1_epoch": 0.400321}'
    )
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    log = read_training_log(tmp_path)
    assert first_depth(log, Split.VAL) == [0.4, 0.500123]
    assert steps_of(log, Split.VAL) == [10, 20]
    assert not {"step-restart", "conflicting-records", "duplicate-records"} & log.codes


@pytest.mark.parametrize("with_state", [True, False])
def test_checkpoints_alone_are_a_series_of_validation(tmp_path: Path, with_state: bool) -> None:
    for epoch in (0, 1, 2, 10):
        folder = tmp_path / str(epoch)
        folder.mkdir()
        value = 0.4 + epoch / 100
        (folder / "val_metrics.json").write_text(
            f'{{"full_acc_0_epoch": {value}, "cond_acc_0_epoch": {value}}}'
        )
        if with_state:
            (folder / "training_state.json").write_text(
                f'{{"epoch": {epoch}, "local_step": 5, "global_step": {epoch * 5 + 5}}}'
            )
    log = read_training_log(tmp_path)
    assert first_depth(log, Split.VAL) == pytest.approx([0.4, 0.41, 0.42, 0.5])
    assert log.epochs == (0.0, 1.0, 2.0, 10.0)
    assert np.isfinite(steps_of(log, Split.VAL)).all() == with_state


def test_the_totals_of_the_trainer_are_kept(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(BAR.format(0, step) for step in (1, 2)), "\n")
    assert log.total_steps == 20


def test_validations_with_steps_of_their_own_may_share_an_epoch(tmp_path: Path) -> None:
    rows = ["Step,val/full_acc_0,val/cond_acc_0,epoch"]
    rows += [f"{step},0.{step},0.{step},0" for step in (100, 200, 300)]
    log = log_of(tmp_path, "\n".join(rows) + "\n", name="export.csv")
    assert steps_of(log, Split.VAL) == [100, 200, 300]


def test_a_trainer_that_validates_within_an_epoch_is_told_by_the_step_before(
    tmp_path: Path,
) -> None:
    lines = [
        f"INFO | epoch=0 step={step} train_loss=5.9 train_acc=0.{step} lr=8e-05\n"
        f"INFO | epoch=0 val_loss=5.9 val_acc=0.{step}\n"
        for step in (20, 40, 60)
    ]
    log = log_of(tmp_path, *lines)
    assert steps_of(log, Split.VAL) == [20, 40, 60]
    again = log_of(tmp_path, *lines, lines[1].replace("0.40", "0.45"))
    assert steps_of(again, Split.VAL) == [20, 40]
    assert "step-restart" in again.codes
