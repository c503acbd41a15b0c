import pytest

from calibration.training.records import PRINTED_NAN, Split
from tests.calibration.training.fed_lines import fed, marginals, values


def test_heads_are_depths_and_only_their_first_choice_counts() -> None:
    raw = fed(
        "{'loss': 2.9, 'learning_rate': 0.0001, 'medusa0_top1': 0.42, 'medusa0_top5': 0.7, "
        "'medusa1_top1': 0.215, 'medusa0_loss': 2.33, 'epoch': 0.01}\n"
    )
    table = raw.table("hf-trainer", Split.TRAIN)
    assert marginals(raw, "hf-trainer", Split.TRAIN) == [[0.42, 0.215]]
    assert [values(table, n) for n in ("total_loss", "loss_0", "epoch", "learning_rate")] == [
        [2.9],
        [2.33],
        [0.01],
        [1e-4],
    ]
    assert "step" not in table.columns


def test_evaluations_are_validation() -> None:
    raw = fed(
        "{'eval_loss': 2.5, 'eval_medusa0_top1': 0.4, 'eval_medusa1_top1': 0.2, 'epoch': 1.0}\n"
    )
    assert marginals(raw, "hf-trainer", Split.VAL) == [[0.4, 0.2]]
    assert values(raw.table("hf-trainer", Split.VAL), "total_loss") == [2.5]


@pytest.mark.parametrize("place", ["", "eval_"])
def test_of_the_accuracies_among_the_first_k_the_first_is_the_depth_zero(place: str) -> None:
    raw = fed(f"{{'{place}top_1_acc': 0.7, '{place}top_2_acc': 0.8, '{place}top_3_acc': 0.85}}\n")
    split = Split.VAL if place else Split.TRAIN
    assert marginals(raw, "hf-trainer", split) == [[0.7]]
    assert raw.table("hf-trainer", split).hints == {"top_k_acc"}


def test_numbers_in_quotes_are_numbers() -> None:
    raw = fed("{'loss': '2.9', 'medusa0_top1': '0.42', 'epoch': '0.01'}\n")
    assert marginals(raw, "hf-trainer", Split.TRAIN) == [[0.42]]


def test_losses_alone_have_no_accuracy() -> None:
    raw = fed("{'loss': 2.9, 'grad_norm': 1.0, 'learning_rate': 0.0001, 'epoch': 0.01}\n")
    assert (raw.num_records, raw.loss_only) == ({}, {"hf-trainer"})


def test_a_dictionary_without_its_end_is_dropped() -> None:
    line = "{'loss': 2.9, 'medusa0_top1': 0.42, 'medusa1_top1': 0.2, 'epoch': 0.01}"
    raw = fed(line + "\n" + line[:12])
    assert raw.num_records == {"hf-trainer": 1}
    assert raw.warnings == {"truncated-record": [2]}


def test_a_printed_nan_is_kept_as_such() -> None:
    assert marginals(fed("{'loss': nan, 'medusa0_top1': nan}\n"), "hf-trainer", Split.TRAIN) == [
        [PRINTED_NAN]
    ]
