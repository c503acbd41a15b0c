"""Records of speculators' console; training_logs.md sections 2, 3 and 5.1."""

from pathlib import Path

import pytest

from calibration.training.lines import physical_lines
from calibration.training.records import PRINTED_NAN, RawLog, Split
from calibration.training.speculators_log import SpeculatorsLines

EAGLE3 = "speculators-eagle3"
BLOCK = "speculators-block"
ACCURACIES = "train/loss_0=1.900, train/full_acc_0=0.600, train/cond_acc_0=0.600, train/loss=1.900"


def read(*lines: str, end: str = "\n") -> RawLog:
    raw = RawLog()
    reader = SpeculatorsLines(raw)
    for number, stream, text in physical_lines([("\n".join(lines) + end).encode()]):
        reader.feed(number, stream, text)
    reader.finish()
    return raw


def console(message: str) -> str:
    return f"[08:53:20] INFO     {message}    trainer.py:220"


def formats(raw: RawLog, family: str, split: Split) -> list[str]:
    table = raw.table(family, split)
    return [table.labels[int(number)] for number in table.column("format")]


@pytest.mark.parametrize(
    ("middle", "tail", "layout", "hints"),
    [
        ("", "epoch=0, lr=1.00e-04", "S1", set()),
        ("", "epoch=0, lr=1.00e-04, global_step=7", "S2", {"global_step"}),
        (
            ", profile/fwd_ms=94.709",
            "epoch=0, lr/Muon=1.00e-03, lr/AdamW=1.00e-04, global_step=7",
            "S3",
            {"global_step", "profile"},
        ),
        (
            ", train/error_records=3, profile=None",
            "lr=1.00e-04, global_step=7",
            "S3",
            {"global_step", "profile", "error_records"},
        ),
        (
            ", profile/queue_ms=2.7, profile/step_ms=9.000",
            "lr=1.00e-04, global_step=7",
            "S3",
            {"global_step", "profile", "profile_late"},
        ),
    ],
)
def test_layout_and_keys_tell_the_version_apart(
    middle: str, tail: str, layout: str, hints: set[str]
) -> None:
    raw = read(console(f"{ACCURACIES}{middle}, {tail}"))
    assert formats(raw, EAGLE3, Split.TRAIN) == [layout]
    assert raw.table(EAGLE3, Split.TRAIN).hints == hints
    assert not raw.warnings


@pytest.mark.parametrize(
    "head",
    [
        "INFO 05-01 10:11:12 [trainer.py:220] ",
        "INFO 2026-05-01 10:11:12,123 ",
        "2026-05-01 10:11:12,123 INFO speculators.metrics ",
        "INFO:speculators.metrics:",
    ],
)
def test_the_head_of_another_logger_does_not_hide_a_record(head: str) -> None:
    raw = read(f"{head}{ACCURACIES}, epoch=0, lr=1.00e-04, global_step=7")
    assert raw.table(EAGLE3, Split.TRAIN).column("step").tolist() == [7.0]
    assert not raw.warnings


def test_keys_in_any_order_and_unknown_keys_give_the_same_record() -> None:
    keys = ["epoch=2", "train/cond_acc_0=0.6", "train/kl_div_loss_0=1.7", "train/loss_0=1.9"]
    raw = read(
        console(", ".join([*keys, "lr=1.00e-04", "train/full_acc_0=5.81e-04", "global_step=7"]))
    )
    table = raw.table(EAGLE3, Split.TRAIN)
    found = {name: table.column(name)[0] for name in table.columns}
    assert found["joint_0"] == 5.81e-04
    assert found["conditional_0"] == 0.6
    assert found["loss_0"] == 1.9
    assert (found["epoch"], found["step"], found["learning_rate"]) == (2.0, 7.0, 1e-4)
    assert "total_loss" not in found


def test_nan_and_infinity_are_kept_as_printed() -> None:
    raw = read(
        console(
            "train/loss_0=nan, train/full_acc_0=0.00e+00, train/loss=-inf, lr=1.00e-04, global_step=7"
        )
    )
    table = raw.table(EAGLE3, Split.TRAIN)
    assert table.column("loss_0").tolist() == table.column("total_loss").tolist() == [PRINTED_NAN]
    assert table.column("joint_0").tolist() == [0.0]


def test_validation_ends_with_its_epoch_and_has_no_step() -> None:
    keys = "val/loss_0_epoch=1.8, val/full_acc_0_epoch=0.602, val/cond_acc_0_epoch=0.602, val/loss_epoch=1.8"
    raw = read(console(f"{keys}, epoch=3"), console(keys))
    table = raw.table(EAGLE3, Split.VAL)
    assert table.column("epoch").tolist() == [3.0]
    assert "step" not in table.columns
    assert formats(raw, EAGLE3, Split.VAL) == ["S4"]
    assert raw.warnings == {"truncated-record": [2]}


def test_a_train_record_without_step_is_cut_where_the_log_has_steps() -> None:
    old, new = (
        console(f"{ACCURACIES}, lr=1.00e-04"),
        console(f"{ACCURACIES}, lr=1.00e-04, global_step=7"),
    )
    for lines, cut in (([new, old, new], [2]), ([old, new], [1])):
        raw = read(*lines)
        assert set(formats(raw, EAGLE3, Split.TRAIN)) == {"S2"}
        assert raw.warnings == {"truncated-record": cut}


def test_records_of_an_old_release_before_a_new_one_stay() -> None:
    old, new = (
        console(f"{ACCURACIES}, lr=1.00e-04"),
        console(f"{ACCURACIES}, lr=1.00e-04, global_step=7"),
    )
    raw = read(old, old, old, new)
    assert formats(raw, EAGLE3, Split.TRAIN) == ["S1", "S1", "S1", "S2"]
    assert raw.table(EAGLE3, Split.TRAIN).column("line").tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("end", "steps"), [("", [40.0]), ("\n", [40.0, 41.0]), (" ", [40.0, 41.0])]
)
def test_a_number_that_the_file_ends_in_is_no_number(end: str, steps: list[float]) -> None:
    first = console(f"{ACCURACIES}, lr=1.00e-04, global_step=40")
    raw = read(first, f"[08:53:20] INFO     {ACCURACIES}, lr=1.00e-04, global_step=41", end=end)
    assert raw.table(EAGLE3, Split.TRAIN).column("step").tolist() == steps
    assert raw.warnings == ({"truncated-record": [2]} if len(steps) == 1 else {})


def test_a_step_that_is_no_number_makes_no_record() -> None:
    raw = read(console(f"{ACCURACIES}, lr=1.00e-04, global_step=4x1"))
    assert sum(raw.num_records.values()) == 0
    assert raw.warnings == {"truncated-record": [1]}


@pytest.mark.parametrize(("first", "positions"), [(0, (0, 1, 2)), (1, (1, 2, 3))])
def test_positions_of_block_drafters_are_depths_from_their_first(
    first: int, positions: tuple[int, ...]
) -> None:
    keys = ", ".join(f"train/position_{k}_acc=0.{7 - k}00" for k in positions)
    raw = read(
        console(
            f"train/loss=1.4, train/full_acc=0.461, {keys}, train/eal=1.543, lr=1.00e-04, global_step=3"
        )
    )
    table = raw.table(BLOCK, Split.TRAIN)
    assert table.records().stacked("marginal")[0].tolist() == [
        float(f"0.{7 - k}00") for k in positions
    ]
    assert table.first_position == first
    assert table.column("mean_marginal").tolist() == [0.461]
    assert [n for n in table.columns if n.startswith("reported:")] == ["reported:eal"]
    assert formats(raw, BLOCK, Split.TRAIN) == ["S7"]
    assert EAGLE3 not in raw.num_records


def test_what_people_paste_has_no_split() -> None:
    raw = read(
        "step=7 loss=5.011 full_acc=0.301 position_1_acc=0.61", "{'full_acc_0': 0.601, 'epoch': 0}"
    )
    block, eagle3 = raw.table(BLOCK, Split.UNKNOWN), raw.table(EAGLE3, Split.UNKNOWN)
    assert (block.column("step").tolist(), block.column("marginal_0").tolist()) == ([7.0], [0.61])
    assert (eagle3.column("epoch").tolist(), eagle3.column("joint_0").tolist()) == ([0.0], [0.601])
    assert formats(raw, BLOCK, Split.UNKNOWN) == ["S7"]
    assert formats(raw, EAGLE3, Split.UNKNOWN) == ["dict"]
    assert (block.rounding, eagle3.rounding) == (0.0005, 0.0005)
    assert not block.hints | eagle3.hints


@pytest.mark.parametrize(
    "line",
    [
        "metrics: {'train': {'full_acc_0': 0.601, 'loss_0': nan}, 'epoch': 2}",
        '{"train/full_acc_0": 0.601, "train/loss_0": NaN, "epoch": 2}',
        "{'train/full_acc_0': tensor(0.601), 'train/loss_0': np.float32(nan), 'epoch': 2} end",
    ],
)
def test_dicts_are_read_whatever_wraps_their_numbers(line: str) -> None:
    table = read(line).table(EAGLE3, Split.TRAIN)
    found = [table.column(name)[0] for name in ("joint_0", "loss_0", "epoch")]
    assert found == [0.601, PRINTED_NAN, 2.0]


def test_a_dict_without_its_brace_is_cut() -> None:
    raw = read("{'full_acc_0': 0.601, 'cond_acc_0': 0.6")
    assert raw.warnings == {"truncated-record": [1]}
    assert not raw.num_records


def test_losses_alone_are_said_to_be_that() -> None:
    raw = read(
        console("train/loss_step_0=1.2, train/loss=1.2, epoch=0, lr=1.00e-04, global_step=7")
    )
    assert raw.loss_only
    assert not raw.num_records


def test_lines_of_other_trainers_are_left_alone() -> None:
    folder = Path(__file__).parents[2] / "fixtures" / "training"
    for path in [*folder.glob("specforge_*.log"), *folder.glob("[a-rt]*.log")]:
        if path.name.startswith("bad_"):
            continue
        raw = read(path.read_text(encoding="utf-8"))
        assert not raw.num_records, path.name
        assert not raw.warnings, path.name


def test_the_length_of_the_run_is_kept_where_the_trainer_says_it() -> None:
    record = console(f"{ACCURACIES}, lr=1.00e-04, global_step=7")
    raw = read(console("Training starts, 25 epochs of 300 steps"), record)
    assert raw.table(EAGLE3, Split.TRAIN).total_steps == 7500
