import pytest

from calibration.training.position_blocks import name_open_family
from calibration.training.records import PRINTED_NAN, Split
from tests.calibration.training.fed_lines import fed, marginals, values

EAGLE3 = """\
Train Epoch [4/40], position 0,  Acc: 0.66
Train Epoch [4/40], position 1,  Acc: 0.61
Train Epoch [4/40], position 0, pLoss: 1.02
Train Epoch [4/40], position 1, pLoss: 1.21
Test Epoch [4/40], position 0,  Acc: 0.65
Test Epoch [4/40], position 1,  Acc: 0.60
Test Epoch [4/40], position 0, pLoss: 1.04
Test Epoch [4/40], position 1, pLoss: 1.23
"""


def test_blocks_with_test_are_eagle3() -> None:
    raw = fed(EAGLE3)
    assert raw.num_records == {"eagle3": 2}
    assert marginals(raw, "eagle3", Split.TRAIN) == [[0.66, 0.61]]
    assert marginals(raw, "eagle3", Split.VAL) == [[0.65, 0.60]]
    assert values(raw.table("eagle3", Split.VAL), "epoch") == [4.0]
    assert not raw.table("eagle3", Split.TRAIN).hints


def test_an_epoch_that_is_printed_again_is_a_block_of_its_own() -> None:
    again = EAGLE3.replace("0.66", "0.67")
    assert marginals(fed(EAGLE3 + again), "eagle3", Split.TRAIN) == [[0.66, 0.61], [0.67, 0.61]]


def test_an_evaluation_without_its_losses_is_dropped() -> None:
    raw = fed(EAGLE3 + "".join(EAGLE3.replace("[4/", "[5/").splitlines(keepends=True)[:6]))
    assert values(raw.table("eagle3", Split.VAL), "epoch") == [4.0]
    assert raw.warnings == {"truncated-record": [13]}


def test_percent_becomes_a_fraction_with_the_epoch_before() -> None:
    raw = fed(
        "Epoch [1/20], Loss: 0.5900\nTrain Accuracy: 79.00%\n"
        "Epoch [2/20], Loss: 0.5600\nTrain Accuracy: 80.00%\n"
        "Test Epoch [2/20], Loss: 0.5712\nTest Accuracy: 79.06%\n"
    )
    train, val = (raw.table("eagle1", split) for split in (Split.TRAIN, Split.VAL))
    assert values(train, "marginal_0") == pytest.approx([0.79, 0.80], abs=1e-12)
    assert values(train, "total_loss") == [0.59, 0.56]
    assert values(train, "epoch") == [1.0, 2.0]
    assert values(val, "marginal_0") == pytest.approx([0.7906], abs=1e-12)
    assert (values(val, "total_loss"), values(val, "epoch")) == ([0.5712], [2.0])
    assert val.rounding == pytest.approx(0.00005)


def test_a_loss_belongs_to_one_accuracy() -> None:
    raw = fed("Epoch [1/20], Loss: 0.59\nTrain Accuracy: 79.00%\nTest Accuracy: 78.00%\n")
    val = raw.table("eagle1", Split.VAL)
    assert values(val, "epoch") == [1.0]
    assert "total_loss" not in val.columns


def test_streams_keep_their_epochs() -> None:
    raw = fed(
        "[rank0]: Epoch [1/20], Loss: 0.5\n[rank1]: Epoch [2/20], Loss: 0.6\n"
        "[rank0]: Train Accuracy: 70.00%\n[rank1]: Train Accuracy: 71.00%\n"
    )
    table = raw.table("eagle1", Split.TRAIN)
    assert values(table, "epoch") == [1.0, 2.0]
    assert values(table, "total_loss") == [0.5, 0.6]


def test_an_accuracy_without_its_percent_sign_is_cut() -> None:
    raw = fed("Epoch [1/20], Loss: 0.59\nTrain Accuracy: 79.00%\nTest Accuracy: 7")
    assert raw.num_records == {"eagle1": 1}
    assert raw.warnings == {"truncated-record": [3]}


def test_nan_percent_is_not_finite() -> None:
    raw = fed("Epoch [1/20], Loss: nan\nTrain Accuracy: nan%\n")
    table = raw.table("eagle1", Split.TRAIN)
    assert values(table, "marginal_0") == values(table, "total_loss") == [PRINTED_NAN]


def test_blocks_that_an_evaluation_names_stay_those_of_eagle3() -> None:
    raw = fed(EAGLE3)
    name_open_family(raw)
    assert raw.num_records == {"eagle3": 2}


def test_a_user_may_say_that_open_blocks_are_of_specforge() -> None:
    raw = fed("".join(EAGLE3.splitlines(keepends=True)[:4]))
    name_open_family(raw)
    assert marginals(raw, "specforge", Split.TRAIN) == [[0.66, 0.61]]
    assert "eagle3" not in raw.tables
