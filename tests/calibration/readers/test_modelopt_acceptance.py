"""Acceptance tables of Model-Optimizer."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.readers.modelopt_acceptance import read, recognise
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes


def reading_of(**fields: Any) -> Reading:
    text = json.dumps(fields)
    return read(SourceText(path=Path("acceptance_rate.json"), text=text, encoding="utf-8"))


def cells_of(**fields: Any) -> dict[str, Cell]:
    (row,) = reading_of(**fields).rows
    return dict(row.cells)


HISTOGRAM = {"1": 40, "2": 30, "4": 30}  # no round of length 3
JOINT = {"1": 1.0, "2": 0.6, "3": 0.3, "4": 0.3}


def test_the_histogram_counts_rounds_by_length() -> None:
    cells = cells_of(Acceptance_Length_Histogram=HISTOGRAM, Average_AL=9.0)
    assert cells["accept_length"] == pytest.approx((40 + 2 * 30 + 4 * 30) / 100)
    assert cells["full_accuracy"] == pytest.approx((0.6, 0.3, 0.3))
    assert (cells["num_steps"], cells["num_draft_tokens"], cells["verify_rounds"]) == (3, 4, 100)
    assert "output_tokens_per_s" not in cells


def test_the_joint_table_is_shifted_by_the_length_that_every_round_reaches() -> None:
    assert cells_of(Joint_Acceptance_Rate=JOINT)["full_accuracy"] == (0.6, 0.3, 0.3)
    assert cells_of(Joint_Acceptance_Rate=list(JOINT.values()))["accept_length"] == pytest.approx(
        2.2
    )


def test_the_conditional_table_is_multiplied_up() -> None:
    cells = cells_of(Conditional_Acceptance_Rate=[1.0, 0.5, 0.4])
    assert cells["full_accuracy"] == pytest.approx((0.5, 0.2))
    assert cells["accept_length"] == pytest.approx(1.7)


def test_the_joint_table_comes_before_the_conditional_one() -> None:
    cells = cells_of(Joint_Acceptance_Rate=[1, 0.5], Conditional_Acceptance_Rate=[1, 0.9])
    assert cells["full_accuracy"] == (0.5,)


def test_a_length_that_no_round_reached_still_counts_for_the_depth() -> None:
    tables = {"Acceptance_Length_Histogram": {"1": 1, "2": 1}, "Joint_Acceptance_Rate": [1, 0.5, 0]}
    assert cells_of(**tables)["num_steps"] == 2
    assert cells_of(**tables)["full_accuracy"] == (0.5, 0.0)


def test_a_table_that_rises_or_belongs_to_other_rounds_is_said() -> None:
    reading = reading_of(
        Acceptance_Length_Histogram={"1": 50, "2": 30, "3": 20}, Joint_Acceptance_Rate=[1, 0.3, 0.9]
    )
    assert codes(reading) == {"accuracy_increasing", "accuracy_sum_mismatch"}
    assert (
        codes(reading_of(Acceptance_Length_Histogram=HISTOGRAM, Joint_Acceptance_Rate=JOINT))
        == set()
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"Request_AL": {"0": [2.5]}, "Average_AL": 2.5},
        {"Acceptance_Length_Histogram": {"0": 5, "1": 3, "2": 1}},
        {"Acceptance_Length_Histogram": {"1": 3.5, "2": 1}},
        {"Acceptance_Length_Histogram": {"1": 0, "2": 0}},
        {"Acceptance_Length_Histogram": {"1": None, "2": 5}},
        {"Acceptance_Length_Histogram": {"1": 3, "2": -5}},
        {"Conditional_Acceptance_Rate": [0.6, 0.5, 0.4]},
        {"Joint_Acceptance_Rate": [1.0, 1.4]},
        {"Joint_Acceptance_Rate": [1.0, "x"]},
        {"Joint_Acceptance_Rate": "none"},
    ],
)
def test_tables_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as error:
        reading_of(**fields)
    assert error.value.code == "no_points"


def test_a_cut_file_is_malformed() -> None:
    with pytest.raises(FormatError) as error:
        read(SourceText(path=Path("a"), text='{"Request_AL": {"0": [2.', encoding="utf-8"))
    assert error.value.code == "malformed_json"


def test_the_tables_are_recognised_by_name_in_json_only() -> None:
    assert recognise('{"Request_AL": {"0": [1.2')
    assert not recognise('"Request_AL": 3')
