"""Schedules of draft lengths: parsed for writers, refused as points."""

from pathlib import Path

import pytest

from calibration.readers.reading import SourceText
from calibration.readers.vllm_schedule import parse_schedule, read, recognise
from specmodel.errors import FormatError, ParameterError


def source(text: str) -> SourceText:
    return SourceText(path=Path("schedule.json"), text=text, encoding="utf-8")


def test_the_forms_of_a_schedule_say_the_same() -> None:
    expected = ((1, 4, 5), (5, 16, 3), (17, 64, 0))
    rows = [[1, 4, 5], [5, 16, 3], [17, 64, 0]]
    by_range = {"5-16": 3, "1-4": 5, "17-64": 0}
    assert parse_schedule(rows) == expected
    assert parse_schedule(by_range) == expected
    assert parse_schedule({"[1, 4]": 5, "5:16": 3, "17 - 64": 0}) == expected
    assert parse_schedule({"num_speculative_tokens_per_batch_size": rows}) == expected
    assert parse_schedule({"1": 5, "2-3": 4}) == ((1, 1, 5), (2, 3, 4))


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        [[1, 4]],
        [[1, 4, 5], [4, 16, 3]],
        [[1, 4, 5], [6, 16, 3]],
        [[5, 16, 3], [1, 4, 5]],
        [[4, 1, 5]],
        [[0, 4, 5]],
        [[1, 4, -1]],
        [[1, 4, 2.5]],
        [[1, 4, True]],
        {"a-b": 3},
        {"1-4": "3"},
        "1-4",
        None,
        7,
    ],
)
def test_what_is_no_schedule_is_refused(value: object) -> None:
    with pytest.raises(ParameterError):
        parse_schedule(value)


def test_a_schedule_has_no_points_and_says_what_it_is() -> None:
    for text in ("[[1, 4, 5], [5, 16, 0]]", '{"1-4": 5, "5-16": 0}', "[[1, 4, 5], [4, 16, 0]]"):
        assert recognise(text)
        with pytest.raises(FormatError, match="schedule of draft lengths") as caught:
            read(source(text))
        assert caught.value.code == "no_points"


def test_a_cut_schedule_is_malformed() -> None:
    assert recognise("[[1, 4, 5], [5,")
    with pytest.raises(FormatError) as caught:
        read(source("[[1, 4, 5], [5,"))
    assert caught.value.code == "malformed_json"


@pytest.mark.parametrize(
    "text", ['{"1": {"candidate_steps": [1, 3]}}', '{"1": 3}', "[[1, 2]]", "[1, 2, 3]", "1-4: 5"]
)
def test_other_lists_and_objects_are_no_schedule(text: str) -> None:
    assert not recognise(text)
