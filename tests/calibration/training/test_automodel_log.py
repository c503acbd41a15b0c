import pytest

from calibration.training.records import Split
from tests.calibration.training.fed_lines import fed, values

START = "2026-07-02 09:00:10 | INFO | nemo_automodel.recipes.llm.train_eagle3 | "
TRAIN = (
    START
    + "epoch=0 step=20 train_loss=5.912000 train_acc=0.181200 train_tau_sim=1.2200 lr=8.000e-05\n"
)
FLUSH = (
    START + "epoch=0 step=33 train_loss=3.655000 train_acc=0.407700 lr=7.100e-05 (trailing flush)\n"
)
VAL = START + "epoch=0 val_loss=3.701200 val_acc=0.399100 val_tau_sim=1.6810\n"
BAR = "epoch 0:   2%|▏ | 20/1000 [00:10<08:10, loss=5.9120, acc=0.1812, lr=8.00e-05, tau=1.22]"


def test_lines_of_training_and_validation() -> None:
    raw = fed(TRAIN + FLUSH + VAL)
    train, val = (raw.table("automodel", split) for split in (Split.TRAIN, Split.VAL))
    assert values(train, "step") == [20.0, 33.0]
    assert values(train, "mean_marginal") == [0.1812, 0.4077]
    assert values(train, "learning_rate") == [8e-5, 7.1e-5]
    assert values(train, "reported:tau_sim") == pytest.approx([1.22, float("nan")], nan_ok=True)
    assert values(val, "reported:tau_sim") == [1.681]
    assert values(val, "epoch") == [0.0]
    assert "step" not in val.columns


def test_bars_are_marked_as_such_and_tell_the_total() -> None:
    table = fed(BAR + "\r" + TRAIN).table("automodel", Split.TRAIN)
    assert [table.labels[int(n)] for n in values(table, "format")] == ["N1-bar", "N1"]
    assert values(table, "step") == [20.0, 20.0]
    assert values(table, "reported:tau_sim") == [1.22, 1.22]
    assert table.total_steps == 1000


@pytest.mark.parametrize("cut", [1, 2, 9, 20])
def test_a_line_that_the_file_ends_in_is_dropped(cut: int) -> None:
    raw = fed(TRAIN + TRAIN.replace("step=20", "step=40")[:-cut])
    assert values(raw.table("automodel", Split.TRAIN), "step") == [20.0]
    assert raw.warnings == {"truncated-record": [2]}


def test_the_last_line_may_lack_its_end_where_something_follows_the_last_number() -> None:
    raw = fed(TRAIN + FLUSH.rstrip("\n"))
    assert values(raw.table("automodel", Split.TRAIN), "step") == [20.0, 33.0]


def test_lines_of_losses_have_no_accuracy() -> None:
    raw = fed(START + "epoch=0 step=20 train_loss=5.912000 lr=8.000e-05\n")
    assert (raw.num_records, raw.loss_only) == ({}, {"automodel"})
