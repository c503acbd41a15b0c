from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.training.family_facts import Bonus
from calibration.training.log_acceptance import (
    Selection,
    accuracy_source,
    last_printed_length,
    log_acceptance,
)
from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.training_log import ReportedLengths, SplitSeries, TrainingLog

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
NAN = float("nan")


def series(
    split: Split,
    accuracies: Mapping[Kind, Sequence[Sequence[float]]],
    *,
    epochs: Sequence[float] | None = None,
    finite: Sequence[bool] | None = None,
    reported: Mapping[str, ReportedLengths] | None = None,
    records: int | None = None,
) -> SplitSeries:
    count = records or max(len(rows) for rows in accuracies.values())
    nothing = np.full(count, NAN)
    return SplitSeries(
        split=split,
        line=np.arange(1.0, count + 1),
        step=np.arange(1.0, count + 1) * 10,
        epoch=nothing if epochs is None else np.array(epochs),
        learning_rate=nothing,
        total_loss=nothing,
        mean_marginal=nothing,
        losses=np.empty((count, 0)),
        accuracies={kind: np.array(rows) for kind, rows in accuracies.items()},
        reported=reported or {},
        finite=np.ones(count, dtype=bool) if finite is None else np.array(finite),
        rounding=0.0005,
    )


def test_the_last_validation_record_is_used_before_any_train_record() -> None:
    found = accuracy_source(
        {
            Split.VAL: series(Split.VAL, {Kind.JOINT: [[0.5, 0.2], [0.6, 0.3]]}),
            Split.TRAIN: series(Split.TRAIN, {Kind.JOINT: [[0.9, 0.8]] * 50}),
        }
    )
    assert found is not None
    assert found.accuracies == {Kind.JOINT: (0.6, 0.3)}
    assert (found.split, found.selection, found.step) == (Split.VAL, Selection.LAST, 20)
    assert found.codes == ()


def test_a_last_record_that_is_not_finite_is_passed_over() -> None:
    values = {Kind.JOINT: [[0.5, 0.2], [0.6, 0.3], [NAN, NAN]]}
    found = accuracy_source({Split.VAL: series(Split.VAL, values, finite=[True, True, False])})
    assert found is not None
    assert found.accuracies[Kind.JOINT] == (0.6, 0.3)


def test_validation_in_parts_is_pooled_over_the_last_epochs() -> None:
    rows = [
        [0.1, NAN],
        [NAN, 0.1],
        [0.5, NAN],
        [NAN, 0.2],
        [0.6, NAN],
        [NAN, 0.3],
        [0.7, NAN],
        [NAN, 0.4],
    ]
    epochs = [0, 0, 1, 1, 2, 2, 3, 3]
    found = accuracy_source({Split.VAL: series(Split.VAL, {Kind.JOINT: rows}, epochs=epochs)})
    assert found is not None
    assert found.selection is Selection.POOLED
    assert found.accuracies[Kind.JOINT] == pytest.approx((0.6, 0.3))


def test_train_records_are_pooled_over_the_last_tenth() -> None:
    values = [[0.1, 0.1]] * 180 + [[0.6, 0.2], [0.8, 0.4]] * 10
    found = accuracy_source({Split.TRAIN: series(Split.TRAIN, {Kind.JOINT: values})})
    assert found is not None
    assert found.accuracies[Kind.JOINT] == pytest.approx((0.7, 0.3))
    assert (found.num_records, found.codes) == (20, ("train-only",))


def test_pooled_records_carry_the_standard_error_of_their_accept_length() -> None:
    generator = np.random.default_rng(6)
    values = np.clip([0.7, 0.4] + 0.02 * generator.standard_normal((2000, 2)), 0.0, 1.0)
    found = accuracy_source({Split.TRAIN: series(Split.TRAIN, {Kind.JOINT: values.tolist()})})
    assert found is not None
    assert found.scatter_sd == pytest.approx(0.02 * np.sqrt(2) / np.sqrt(200), rel=0.15)


def test_a_single_train_record_is_never_used_where_there_are_more() -> None:
    found = accuracy_source(
        {Split.TRAIN: series(Split.TRAIN, {Kind.JOINT: [[0.2, 0.1]] * 4 + [[0.9, 0.6]]})}
    )
    assert found is not None
    assert found.accuracies[Kind.JOINT] == pytest.approx((0.34, 0.2))


def test_conditionals_are_pooled_as_numerator_over_denominator() -> None:
    values = {Kind.JOINT: [[0.8, 0.4], [0.2, 0.02]], Kind.CONDITIONAL: [[0.8, 0.5], [0.2, 0.1]]}
    found = accuracy_source({Split.TRAIN: series(Split.TRAIN, values)})
    assert found is not None
    assert found.accuracies[Kind.CONDITIONAL] == pytest.approx((0.5, 0.42 / 1.0))


def test_evaluation_that_equals_training_counts_as_train() -> None:
    values = {Kind.MARGINAL: [[0.5, 0.4], [0.7, 0.6]]}
    both = {Split.VAL: series(Split.VAL, values), Split.TRAIN: series(Split.TRAIN, values)}
    found = accuracy_source(both, use_validation=False)
    assert found is not None
    assert found.split is Split.TRAIN
    assert "train-only" in found.codes
    alone = accuracy_source({Split.VAL: both[Split.VAL]}, use_validation=False)
    assert alone is not None
    assert "train-only" in alone.codes


def test_an_unknown_split_is_said() -> None:
    found = accuracy_source({Split.UNKNOWN: series(Split.UNKNOWN, {Kind.MARGINAL: [[0.5]] * 6})})
    assert found is not None
    assert found.codes == ("split-unknown", "train-only")


def test_nothing_by_depth_gives_no_source() -> None:
    assert accuracy_source({}) is None
    assert accuracy_source({Split.VAL: series(Split.VAL, {}, records=2)}) is None


def test_a_rollout_is_used_before_a_computed_length_and_a_known_bonus_before_an_unknown() -> None:
    lengths = {
        "eal": ReportedLengths(values=np.array([1.3, NAN]), bonus=Bonus.UNKNOWN),
        "estimated_training_ar": ReportedLengths(values=np.array([2.2, 2.4]), bonus=Bonus.YES),
        "AR": ReportedLengths(values=np.array([1.8, 1.9]), bonus=Bonus.MEASURED),
    }
    found = last_printed_length({Split.VAL: series(Split.VAL, {}, records=2, reported=lengths)})
    assert found is not None
    assert (found.key, found.accept_length) == ("AR", 1.9)
    del lengths["AR"]
    found = last_printed_length({Split.VAL: series(Split.VAL, {}, records=2, reported=lengths)})
    assert found is not None
    assert (found.key, found.accept_length) == ("estimated_training_ar", 2.4)


def test_the_worked_case_is_read_from_its_log() -> None:
    found = log_acceptance(read_training_log([FIXTURES / "spec_worked_case.log"])).acceptance
    assert found.routes == pytest.approx({"joint": 2.749, "conditional": 2.83269163}, abs=1e-9)
    assert found.accept_length is not None
    assert found.accept_length.estimate.median == pytest.approx(2.749, abs=1e-9)


def test_a_log_of_means_gives_the_length_that_its_trainer_prints() -> None:
    found = log_acceptance(read_training_log([FIXTURES / "automodel.log"]), 3)
    assert found.source is None
    assert found.acceptance.accept_length is not None
    assert found.acceptance.accept_length.estimate.median == pytest.approx(1.681, abs=1e-9)


def test_the_first_depth_alone_gives_no_accept_length() -> None:
    found = log_acceptance(read_training_log([FIXTURES / "eagle1_hass_epoch.log"]), 3).acceptance
    assert found.accept_length is None
    assert "depth0-only" in found.codes


def log_of(tmp_path: Path, text: str, name: str = "train.log") -> TrainingLog:
    path = tmp_path / name
    path.write_text(text)
    return read_training_log(path)


NEMO = (
    "epoch=0 step={step} loss=4.0000 acc=0.2100 lr=1e-04\n"
    "  dflash2: base_loss=4.1000 base_acc=0.2000 accept_len={length:.3f} base_accept_len=1.100\n"
)


def test_records_of_two_lines_are_read_and_a_validation_is_preferred(tmp_path: Path) -> None:
    lengths = (1.2, 1.6, 1.3, 1.7, 1.4, 1.8)
    text = "".join(NEMO.format(step=100 + n, length=one) for n, one in enumerate(lengths))
    log = log_of(tmp_path, text)
    found = log.series[Split.TRAIN]
    assert found.step.tolist() == [100.0 + n for n in range(6)]
    assert float(found.reported["accept_len"].values.mean()) == pytest.approx(1.5)
    assert found.mean_marginal.tolist() == [0.21] * 6
    finished = "Finished epoch 1/2 val_loss=3.0000 val_acc=0.3000 val_accept_len=1.5500\n"
    printed = log_acceptance(log_of(tmp_path, text + finished)).printed
    assert printed is not None
    assert printed.accept_length == 1.55
    served = (
        "decode_eval: step=105 accept_length=1.9000 acceptance_rate=0.3 completed=80 failed=0\n"
    )
    measured = log_acceptance(log_of(tmp_path, text + finished + served)).printed
    assert measured is not None
    assert (measured.bonus, measured.accept_length) == (Bonus.MEASURED, 1.9)


def test_a_printed_accept_length_has_the_scatter_of_its_records(tmp_path: Path) -> None:
    lengths = [1.4, 1.6] * 9 + [1.4, 2.0]
    text = "".join(NEMO.format(step=n, length=one) for n, one in enumerate(lengths, start=101))
    printed = log_acceptance(log_of(tmp_path, text)).printed
    assert printed is not None
    assert printed.accept_length == pytest.approx(1.60)
    assert printed.num_records == 5
    assert printed.sd == pytest.approx(
        0.11, abs=0.005
    )  # of 1.6 1.4 1.6 1.4 2.0: sqrt(0.24 / 4 / 5)
    spread = log_acceptance(log_of(tmp_path, text)).acceptance.accept_length
    assert spread is not None
    assert spread.estimate.high - spread.estimate.low == pytest.approx(
        2 * 1.645 * printed.sd, rel=1e-3
    )


def test_records_from_far_before_are_not_pooled() -> None:
    rows = series(Split.TRAIN, {Kind.MARGINAL: [[0.5], [0.9]]})
    found = accuracy_source({Split.TRAIN: replace(rows, step=np.array([10.0, 1000.0]))})
    assert found is not None
    assert found.accuracies[Kind.MARGINAL] == (0.9,)


@pytest.mark.parametrize(
    ("accuracies", "lengths", "accept_length"),
    [
        ("0.0", "1.0", 1.0),  # no draft is right: the one token is the bonus
        ("0.0", "0.0", 1.0),
        ("0.4", "0.7", 1.7),  # below 1 there is none
        ("0.4", "1.7", 2.7),  # the numbers leave it open: as TorchSpec prints it
    ],
)
def test_the_numbers_tell_whether_the_bonus_counts(
    tmp_path: Path, accuracies: str, lengths: str, accept_length: float
) -> None:
    text = f"Step,train/avg_acc,train/simulated_acc_len\n7,{accuracies},{lengths}\n"
    printed = log_acceptance(log_of(tmp_path, text, "run.csv")).printed
    assert printed is not None
    assert printed.accept_length == pytest.approx(accept_length)
