"""Acceptance by subset of an evaluation of Speculators."""

from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.speculators_acceptance import read, recognise
from specmodel.errors import FormatError

HEADER = (
    "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,"
    "acceptance_at_pos_0,acceptance_at_pos_1\n"
)


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("acceptance.csv"), text=text, encoding="utf-8"))


def test_counts_come_before_the_printed_length() -> None:
    reading = read_text(HEADER + "qa,100,200,120,9.9,0.7,0.5\n")
    assert reading.rows[0].cells["accept_length"] == 2.2
    assert [warning.code for warning in reading.warnings] == ["accept_length_mismatch"]


def test_a_subset_without_rounds_is_dropped() -> None:
    reading = read_text(HEADER + "qa,100,200,120,2.2,0.7,0.5\nx,0,0,0,,,\n")
    assert [(d.code, d.count, d.line) for d in reading.dropped] == [("no_verify_rounds", 1, 3)]


def test_a_table_without_positions_is_known_by_its_counts() -> None:
    text = "subset,num_drafts,num_draft_tokens,num_accepted_tokens\nqa,100,300,150\n"
    assert recognise(text)
    cells = read_text(text).rows[0].cells
    assert (cells["accept_length"], cells["num_steps"]) == (2.5, 3)
    assert "full_accuracy" not in cells


def test_rates_that_rise_are_said() -> None:
    reading = read_text(HEADER + "qa,100,200,120,2.2,0.5,0.7\n")
    assert [warning.code for warning in reading.warnings] == ["accuracy_increasing"]


def test_a_path_in_place_of_a_subset_is_cut() -> None:
    reading = read_text(HEADER + "/home/ann/data/qa.jsonl,100,200,120,2.2,0.7,0.5\n")
    assert reading.rows[0].cells["workload"] == "qa.jsonl"


@pytest.mark.parametrize(
    "line", ["qa,100,200,300,4.0,1.0,1.0", "qa,-1,2,1,2.0,0.5,0.5", "qa,x,y,z,,,", "qa,1e40,2,1,,,"]
)
def test_nothing_usable_is_refused(line: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_text(HEADER + line)
    assert caught.value.code == "no_points"
