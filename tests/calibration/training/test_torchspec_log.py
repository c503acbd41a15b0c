from calibration.training.records import Split
from tests.calibration.training.fed_lines import fed, values


def bar(counter: int, length: str, *, end: str = "]") -> str:
    return (
        f"Training:   1%|▏  | {counter}/1000 [00:11<18:01,  1.10s/it, loss=7.900, acc=0.140, "
        f"acc_len={length}, thru=3.1, epoch=2/10{end}"
    )


CONTROLLER = "[2026-04-20 10:15:02,113] eval.py:154 INFO Step 40 eval: "
TRAINER = "[2026-04-20 10:15:02,114 10.0.0.7 RANK:{}] eagle3_trainer.py:377 INFO eval: "
RESULT = "loss=6.3120, acc=0.2710, sim_acc_len=0.37\n"


def test_bars_give_mean_and_accept_length() -> None:
    table = fed("\r" + bar(10, "0.16") + "\r" + bar(20, "0.21") + "\n").table(
        "torchspec", Split.TRAIN
    )
    assert values(table, "step") == [10.0, 20.0]
    assert values(table, "epoch") == [2.0, 2.0]
    assert values(table, "mean_marginal") == [0.14, 0.14]
    assert values(table, "reported:acc_len") == [0.16, 0.21]
    assert table.total_steps == 1000


def test_an_evaluation_of_two_loggers_is_one_record_in_either_order() -> None:
    for text in (
        CONTROLLER + RESULT + TRAINER.format(0) + RESULT,
        TRAINER.format(0) + RESULT + "\r" + bar(41, "0.3") + "\n" + CONTROLLER + RESULT,
    ):
        table = fed(text).table("torchspec", Split.VAL)
        assert values(table, "step") == [40.0]
        assert values(table, "reported:sim_acc_len") == [0.37]
        assert (values(table, "mean_marginal"), values(table, "total_loss")) == ([0.271], [6.312])


def test_copies_of_other_ranks_stay_copies() -> None:
    text = CONTROLLER + RESULT + TRAINER.format(0) + RESULT + TRAINER.format(1) + RESULT
    assert values(fed(text).table("torchspec", Split.VAL), "step") == [40.0, 40.0]


def test_equal_results_of_two_steps_are_two_records() -> None:
    text = CONTROLLER + RESULT + CONTROLLER.replace("40", "80") + RESULT
    assert values(fed(text).table("torchspec", Split.VAL), "step") == [40.0, 80.0]


def test_an_evaluation_without_step_has_none() -> None:
    table = fed(TRAINER.format(3) + RESULT).table("torchspec", Split.VAL)
    assert "step" not in table.columns
    assert table.labels[int(table.column("stream")[0])] == "RANK:3"


def test_what_the_file_ends_in_is_dropped() -> None:
    raw = fed(bar(10, "0.16") + "\n" + CONTROLLER + RESULT.rstrip("\n"))
    assert raw.num_records == {"torchspec": 1}
    assert raw.warnings == {"truncated-record": [2]}
    raw = fed(bar(10, "0.16") + "\r" + bar(20, "0.21", end=""))
    assert values(raw.table("torchspec", Split.TRAIN), "step") == [10.0]
    assert raw.warnings == {"truncated-record": [1]}


def test_other_bars_are_not_taken() -> None:
    assert fed(bar(10, "0.16").replace("acc_len", "length") + "\n").num_records == {}
