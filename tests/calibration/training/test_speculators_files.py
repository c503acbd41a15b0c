"""Files of checkpoints and exports of trackers; training_logs.md sections 2 and 3, step 11."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibration.training.records import PRINTED_NAN, RawLog, Split
from calibration.training.speculators_files import SpeculatorsFiles, training_state

EAGLE3 = "speculators-eagle3"
METRICS = {
    "loss_0_epoch": 1.9,
    "full_acc_0_epoch": 0.607037,
    "cond_acc_0_epoch": 0.607037,
    "loss_epoch": 7.5,
}
STATE = {"epoch": 1, "local_step": 1328, "global_step": 2656}


def read(*files: tuple[str, str]) -> RawLog:
    raw = RawLog()
    reader = SpeculatorsFiles(raw)
    for name, text in files:
        path = Path(name)
        if path.suffix == ".json":
            assert reader.feed_json(path, text)
        else:
            assert reader.feed_table(path, text.splitlines())
    reader.finish()
    return raw


def layouts(raw: RawLog, family: str, split: Split) -> set[str]:
    table = raw.table(family, split)
    return {table.labels[int(number)] for number in table.column("format")}


def test_metrics_of_a_checkpoint_are_validation_in_full_precision() -> None:
    raw = read(("run/val_metrics.json", json.dumps(METRICS)))
    table = raw.table(EAGLE3, Split.VAL)
    assert table.column("joint_0").tolist() == [0.607037]
    assert table.column("total_loss").tolist() == [7.5]
    assert table.rounding == pytest.approx(5e-7)
    assert "epoch" not in table.columns
    assert layouts(raw, EAGLE3, Split.VAL) == {"S5"}
    assert not table.hints


@pytest.mark.parametrize("folder", ["7", "epoch_7"])
def test_the_folder_of_a_checkpoint_says_its_epoch(folder: str) -> None:
    raw = read((f"checkpoints/{folder}/val_metrics.json", json.dumps(METRICS)))
    assert raw.table(EAGLE3, Split.VAL).column("epoch").tolist() == [7.0]


@pytest.mark.parametrize("state_first", [True, False])
def test_a_state_file_gives_epoch_and_step_in_either_order(state_first: bool) -> None:
    files = [
        ("a/val_metrics.json", json.dumps(METRICS)),
        ("a/training_state.json", json.dumps(STATE)),
    ]
    raw = read(*(files[::-1] if state_first else files))
    table = raw.table(EAGLE3, Split.VAL)
    assert (table.column("epoch").tolist(), table.column("step").tolist()) == ([1.0], [2656.0])


def test_a_state_file_beside_the_metrics_is_found(tmp_path: Path) -> None:
    (tmp_path / "training_state.json").write_text(json.dumps(STATE))
    raw = read((str(tmp_path / "val_metrics.json"), json.dumps(METRICS)))
    assert raw.table(EAGLE3, Split.VAL).column("step").tolist() == [2656.0]


def test_a_state_file_alone_has_no_metrics() -> None:
    raw = read(("training_state.json", json.dumps(STATE)))
    assert not raw.num_records
    assert raw.companion == STATE
    assert training_state('{"global_step": -1}') is None


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"a": 1}', '{"acc_0": 0.5}', "[" * 9999])
def test_other_json_is_not_taken(text: str) -> None:
    assert not SpeculatorsFiles(RawLog()).feed_json(Path("a.json"), text)


def test_a_column_a_key_gives_a_record_a_row_that_has_an_accuracy() -> None:
    text = (
        "epoch,train/cond_acc_0,val/full_acc_0_epoch,Step,train/full_acc_0,train/full_acc_0__MAX\n"
        "0,0.6,,700,0.61,0.9\n0,,0.55,700,,\n0,,,701,,\n1,nan,,702,0.6125,0.9\n"
    )
    raw = read(("w.csv", text))
    train, val = raw.table(EAGLE3, Split.TRAIN), raw.table(EAGLE3, Split.VAL)
    assert train.column("step").tolist() == [700.0, 702.0]
    assert train.column("joint_0").tolist() == [0.61, 0.6125]
    assert train.column("conditional_0").tolist() == [0.6, PRINTED_NAN]
    assert train.column("line").tolist() == [2.0, 5.0]
    assert (val.column("step").tolist(), val.column("joint_0").tolist()) == ([700.0], [0.55])
    assert train.rounding == pytest.approx(0.00005)
    assert layouts(raw, EAGLE3, Split.TRAIN) == {"S6"}


def test_the_name_of_a_run_in_front_of_a_column_is_left_out() -> None:
    text = "Step,moon-7 - train/full_acc_0,moon-7 - train/full_acc_0__MIN\n5,0.5,0.1\n"
    table = read(("w.csv", text)).table(EAGLE3, Split.TRAIN)
    assert (table.column("step").tolist(), table.column("joint_0").tolist()) == ([5.0], [0.5])


def test_a_table_with_one_value_a_row_is_put_together_by_step() -> None:
    rows = ["step,tag,value", "8,train/full_acc_0,0.6", "7,train/full_acc_0,0.5", "8,train/lr,0.1"]
    rows += [
        "8,train/cond_acc_0,0.61",
        "7,epoch,0",
        "8,epoch,1",
        "9,epoch,1",
        "8,val/full_acc_0_epoch,0.4",
    ]
    raw = read(("long.csv", "\n".join(rows)))
    table = raw.table(EAGLE3, Split.TRAIN)
    assert table.column("step").tolist() == [7.0, 8.0]
    assert table.column("joint_0").tolist() == [0.5, 0.6]
    assert np.isnan(table.column("conditional_0")[0])
    assert table.column("epoch").tolist() == [0.0, 1.0]
    assert raw.table(EAGLE3, Split.VAL).column("joint_0").tolist() == [0.4]


def test_files_of_tensorboard_are_one_log_of_the_keys_in_their_names() -> None:
    files = [
        (f"run-.-tag-train_{key}.csv", f"Wall time,Step,Value\n1.5,7,{value}\n2.5,8,{value}\n")
        for key, value in (("full_acc_0", "0.6"), ("cond_acc_0", "0.61"), ("loss_0", "2.5"))
    ]
    table = read(*files).table(EAGLE3, Split.TRAIN)
    assert table.column("step").tolist() == [7.0, 8.0]
    assert table.column("conditional_0").tolist() == [0.61, 0.61]
    assert table.column("loss_0").tolist() == [2.5, 2.5]


def test_exports_of_block_drafters_are_their_family() -> None:
    raw = read(
        ("w.csv", "Step;train/position_1_acc;train/position_2_acc;train/eal\n5;0,7;0,6;1,1\n")
    )
    table = raw.table("speculators-block", Split.TRAIN)
    assert table.records().stacked("marginal").tolist() == [[0.7, 0.6]]
    assert table.first_position == 1
    assert layouts(raw, "speculators-block", Split.TRAIN) == {"S7"}


def test_a_row_that_was_cut_is_left_out() -> None:
    raw = read(("w.csv", "Step,train/full_acc_0,epoch\n5,0.5,0\n6,0.6"))
    assert raw.table(EAGLE3, Split.TRAIN).column("step").tolist() == [5.0]
    assert raw.warnings == {"truncated-record": [3]}


@pytest.mark.parametrize(
    "text", ["", "\n\n", "a,b\n1,2\n", "Step,train/accuracy\n1,0.5\n", '"' + "x" * 200_000]
)
def test_other_tables_are_not_taken(text: str) -> None:
    raw = RawLog()
    assert not SpeculatorsFiles(raw).feed_table(Path("a.csv"), text.splitlines())
    assert not raw.num_records
