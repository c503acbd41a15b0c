from calibration.training.records import Split
from tests.calibration.training.fed_lines import fed, values

LINE = "epoch=1 step={}/1000 loss={} | elapsed=0.3min | remaining=30.7min\n"


def test_losses_are_counted_and_said_to_be_all() -> None:
    raw = fed(LINE.format(10, "4.9000") + LINE.format(20, "4.6000"))
    table = raw.table("deepspec", Split.TRAIN)
    assert [values(table, name) for name in ("step", "epoch", "total_loss")] == [
        [10.0, 20.0],
        [1.0, 1.0],
        [4.9, 4.6],
    ]
    assert table.total_steps == 1000
    assert raw.loss_only == {"deepspec"}
    assert not any(name.startswith("marginal") for name in table.columns)


def test_a_loss_that_the_file_ends_in_is_dropped() -> None:
    raw = fed(LINE.format(10, "4.9000") + "epoch=1 step=20/1000 loss=4.6")
    assert raw.num_records == {"deepspec": 1}
    assert raw.warnings == {"truncated-record": [2]}
