import pytest

from calibration.training.records import PRINTED_NAN, Split
from tests.calibration.training.fed_lines import fed, marginals, values

LINE = "Step 1000 Training Acc: [0.6400, 0.6000]\nStep 1000 Estimated Training AR: 2.0240\n"
DICT = (
    "{'loss': 2.1, 'learning_rate': 9e-05, 'train_acc/parallel_0_step_0': 0.64, "
    "'train_acc/parallel_0_step_1': 0.6, 'estimated_training_ar': 2.024, 'epoch': 0.21}\n"
)
ROLLOUT = "Running AR validation...\nStep 1000 AR: 1.9312\n"


@pytest.mark.parametrize(
    "text",
    [LINE + ROLLOUT + DICT, LINE + DICT + ROLLOUT, DICT + LINE + ROLLOUT, ROLLOUT + LINE + DICT],
)
def test_lines_and_dictionary_of_a_step_are_one_record(text: str) -> None:
    raw = fed(text)
    table = raw.table("modelopt", Split.TRAIN)
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.64, 0.6]]
    assert [values(table, n) for n in ("step", "epoch", "total_loss", "learning_rate")] == [
        [1000.0],
        [0.21],
        [2.1],
        [9e-5],
    ]
    assert values(table, "reported:estimated_training_ar") in ([2.024], [2.0240])
    assert values(table, "reported:AR") == [1.9312]
    assert raw.warnings == {}


def test_a_dictionary_of_more_digits_gives_the_numbers() -> None:
    raw = fed(LINE + DICT.replace("0.64,", "0.640049,"))
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.640049, 0.6]]


def test_a_dictionary_of_other_numbers_is_another_record() -> None:
    raw = fed(LINE + DICT.replace("0.64,", "0.66,"))
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.64, 0.6], [0.66, 0.6]]


def test_keys_of_older_versions() -> None:
    raw = fed(
        "{'parallel_0_step_0_train_acc': 0.5, 'parallel_0_step_1_train_acc': 0.4, 'epoch': 0.1}\n"
    )
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.5, 0.4]]


def test_losses_that_follow_the_line_of_a_step_are_its_own() -> None:
    raw = fed(LINE + "{'loss': 2.5, 'learning_rate': 9e-05, 'epoch': 0.3}\n")
    table = raw.table("modelopt", Split.TRAIN)
    assert (values(table, "total_loss"), values(table, "epoch")) == ([2.5], [0.3])


def test_a_rollout_between_records_waits_for_the_record_of_its_step() -> None:
    earlier = "Step 500 Training Acc: [0.6000, 0.5600]\n"
    table = fed(earlier + ROLLOUT + LINE).table("modelopt", Split.TRAIN)
    assert values(table, "reported:AR") == pytest.approx([float("nan"), 1.9312], nan_ok=True)


def test_rollouts_alone_are_a_record_without_depths() -> None:
    table = fed(ROLLOUT).table("modelopt", Split.TRAIN)
    assert (values(table, "step"), values(table, "reported:AR")) == ([1000.0], [1.9312])


@pytest.mark.parametrize("items", ["0.6400 0.6000", "'0.6400', '0.6000'", "[0.6400, 0.6000"])
def test_spelling_of_the_list_does_not_matter(items: str) -> None:
    raw = fed(f"Step 5 Training Acc: [{items}]\n")
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.64, 0.6]]


def test_a_list_or_a_number_that_the_file_ends_in_is_dropped() -> None:
    raw = fed("Step 5 Training Acc: [0.6400, 0.6000]\nStep 10 Training Acc: [0.6500, 0.6")
    assert values(raw.table("modelopt", Split.TRAIN), "step") == [5.0]
    assert raw.warnings == {"truncated-record": [2]}
    raw = fed(LINE + "Step 1000 AR: 1.9")
    assert "reported:AR" not in raw.table("modelopt", Split.TRAIN).columns
    assert raw.warnings == {"truncated-record": [3]}


def test_a_dictionary_without_its_end_is_dropped() -> None:
    raw = fed(LINE + DICT.replace("0.64,", "0.70,").rstrip("}\n"))
    assert marginals(raw, "modelopt", Split.TRAIN) == [[0.64, 0.6]]
    assert raw.warnings == {"truncated-record": [3]}


def test_a_printed_nan_is_kept_as_such() -> None:
    raw = fed(
        "Step 5 Training Acc: [nan, 0.6000]\n{'train_acc/parallel_0_step_0': nan, "
        "'train_acc/parallel_0_step_1': 0.6, 'epoch': 1.0}\n"
    )
    assert marginals(raw, "modelopt", Split.TRAIN) == [[PRINTED_NAN, 0.6]]
