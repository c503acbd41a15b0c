from pathlib import Path

import pytest

from calibration.training.projection import curves_of
from calibration.training.reading import read_training_log
from tests.calibration.training.log_texts import train_line, val_line

LOGS = Path(__file__).parents[2] / "fixtures" / "training"


def lines(num_train: int, num_val: int) -> str:
    """Return train records of 0.6 and then validation of 0.5 among more of them."""
    text = "".join(train_line(step, [0.6, 0.3]) for step in range(1, num_train + 1))
    for epoch in range(num_val):
        text += train_line(num_train + epoch + 1, [0.6, 0.3]) + val_line([0.5, 0.2], epoch=epoch)
    return text


@pytest.mark.parametrize(
    ("num_train", "num_val", "split", "accuracy"),
    [(3, 6, "val", 0.5), (9, 2, "train", 0.6), (9, 0, "train", 0.6), (0, 2, "val", 0.5)],
)
def test_validation_carries_a_curve_where_it_has_enough_points(
    tmp_path: Path, num_train: int, num_val: int, split: str, accuracy: float
) -> None:
    path = tmp_path / "train.log"
    path.write_text(lines(num_train, num_val))
    curves = curves_of(read_training_log(path))
    assert curves is not None
    assert curves.split == split
    assert curves.conditional[:, 0] == pytest.approx(accuracy)
    assert curves.conditional[-1, 1] == pytest.approx(0.5 if split == "train" else 0.4, abs=1e-3)
    assert curves.last_step == num_train + num_val


def test_validation_that_is_train_data_is_not_used() -> None:
    log = read_training_log(LOGS / "specforge_2026_step_lines.log")
    curves = curves_of(log)
    assert curves is None or curves.split != "val"


def test_a_curve_needs_steps() -> None:
    assert curves_of(read_training_log(LOGS / "spec_val_metrics.json")) is None


def test_a_printed_accept_length_has_a_curve_where_no_accuracy_has() -> None:
    curves = curves_of(read_training_log(LOGS / "automodel.log"))
    assert curves is not None
    assert curves.steps.tolist() == [20.0, 40.0, 60.0, 80.0]
    assert curves.accept_length == pytest.approx([1.22, 1.43, 1.58, 1.69])  # train_tau_sim


def test_records_without_steps_are_counted() -> None:
    curves = curves_of(read_training_log(LOGS / "spec_03_04_wide.log"))  # six, by its expected.json
    assert curves is not None
    assert curves.steps.tolist() == [1, 2, 3, 4, 5, 6]
