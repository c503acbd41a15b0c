"""What ``send_one`` prints."""

import json
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_send_one import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

RULE = "+-------------+--------+------------+-----------------+"
HEADER = "| Latency (s) | Tokens | Acc Length | Speed (token/s) |"


def read_text(*lines: str) -> Reading:
    return read(SourceText(path=Path("a.txt"), text="\n".join(lines), encoding="utf-8"))


def test_the_table_of_newer_releases_is_one_request() -> None:
    row = "|    4.096    |  512   |   2.500    |     125.00      |"
    reading = read_text("Paris.", "", RULE, HEADER, RULE, row, RULE)
    cells = reading.rows[0].cells
    assert cells["step_time_ms"] == pytest.approx(1000 * 2.5 / 125.0)
    assert (cells["batch_size"], cells["output_tokens_per_s"]) == (1.0, 125.0)
    assert cells["output_tokens"] == 512.0
    assert codes(reading) == {"depth_unknown", "rough_point"}


@pytest.mark.parametrize(
    "lines",
    [
        ("acc_length=2.50", "speed=125.00 token/s"),
        ("acc_length=2.50 speed=125.00",),
        ("Turn 1 - acc_length=2.50, speed=125.00 token/s",),
    ],
)
def test_the_lines_of_older_releases_are_one_request(lines: tuple[str, ...]) -> None:
    text = ("the answer", *lines)
    assert recognise("\n".join(text))
    cells = read_text(*text).rows[0].cells
    assert (cells["accept_length"], cells["output_tokens_per_s"]) == (2.5, 125.0)


def test_an_accept_length_of_one_is_taken_as_a_baseline_and_said() -> None:
    reading = read_text("acc_length=1.00", "speed=60.00 token/s")
    assert reading.rows[0].cells["num_steps"] == 0.0
    assert "baseline_assumed" in codes(reading)


def test_words_that_look_like_it_inside_a_line_are_not_read() -> None:
    reading = read_text(
        "it said acc_length=9.00 and speed=900.00", "acc_length=2.50", "speed=125.00 token/s"
    )
    assert [row.cells["accept_length"] for row in reading.rows] == [2.5]
    assert not recognise("it said acc_length=9.00 and speed=900.00\n")
    assert not recognise(json.dumps({"text": "\nacc_length=2.50\nspeed=125.00 token/s\n"}))


def test_an_accept_length_without_a_speed_is_cut_off() -> None:
    reading = read_text(
        "acc_length=2.50", "acc_length=2.60", "speed=125.00 token/s", "acc_length=3"
    )
    assert len(reading.rows) == 1
    assert [(dropped.code, dropped.count) for dropped in reading.dropped] == [("truncated_line", 2)]


@pytest.mark.parametrize(
    "row", ["| 4.096 | 512 |", "| 4.096 | 512 | - | 125.00 |", "| 4.096 | 512 | 2.5 | 0.00 |", ""]
)
def test_a_table_with_nothing_usable_is_refused(row: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_text(HEADER, "|---|---|---|---|", row)
    assert caught.value.code == "no_rows"
