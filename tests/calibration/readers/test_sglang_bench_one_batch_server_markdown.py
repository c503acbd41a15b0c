"""Markdown tables of ``bench_one_batch_server``."""

import json
from pathlib import Path

import pytest

from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_one_batch_server_markdown import read, recognise
from specmodel.errors import FormatError
from tests.calibration.readers.conftest import codes

HEADER = "| batch size | input len | output throughput (tok/s) | acc length | ITL (ms) |"
RULE = "| --- | --- | --- | --- | --- |"


def read_text(*lines: str) -> Reading:
    return read(SourceText(path=Path("a.md"), text="\n".join(lines), encoding="utf-8"))


def test_the_itl_of_the_table_is_per_token_and_the_round_longer_by_the_accept_length() -> None:
    reading = read_text(HEADER, RULE, "| 8 | 1024 | 500.00 | 2.50 | 16.00 |")
    cells = reading.rows[0].cells
    assert cells["step_time_ms"] == pytest.approx(2.5 * 1000 * 8 / 500)
    assert cells["context_tokens"] == 1024.0
    assert codes(reading) == {"depth_unknown"}


def test_every_table_counts_and_words_between_them_do_not() -> None:
    reading = read_text(
        "Words | with bars",
        HEADER,
        RULE,
        "| 8 | 1024 | 400.00 | n/a | 20.00 |",
        "",
        "| 1 | 2 | 3 | 4 | 5 |",
        "### Another, columns in another order",
        "| acc length | ITL (ms) | Batch Size | output throughput (tok/s) | input len |",
        "|---|---|---|---|---|",
        "| 2.50 | 16.00 | **8** | 500.00 | 1024 |",
    )
    baseline, spec = reading.rows
    assert (baseline.line, baseline.cells["num_steps"]) == (4, 0.0)
    assert spec.cells["accept_length"] == 2.5
    assert spec.load == baseline.load


def test_a_table_without_accept_lengths_says_nothing_of_speculation() -> None:
    header = "| batch size | input len | output tput (tok/s) | ITL (ms) |"
    reading = read_text(header, "|---|---|---|---|", "| 8 | 1024 | 500.00 | 16.00 |")
    assert not reading.rows[0].cells.keys() & {"accept_length", "num_steps", "step_time_ms"}
    assert codes(reading) == {"speculation_unknown"}


def test_an_itl_that_does_not_fit_is_said() -> None:
    reading = read_text(HEADER, RULE, "| 8 | 1024 | 500.00 | 2.50 | 40.00 |")
    assert "itl_identity" in codes(reading)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("| 8 | 1024 | 500.0", "truncated_line"),
        ("| mean | 1024 | 500.00 | 2.50 | 16.00 |", "not_a_number"),
        ("| 8 | 1024 | n/a | 2.50 | 16.00 |", "missing_throughput"),
        ("| 8 | 1024 | 500.00 | high | 16.00 |", "not_a_number"),
        ("| 8 | 1024 | 500.00 | 0.50 | 16.00 |", "accept_length_out_of_range"),
    ],
)
def test_a_row_that_cannot_be_is_dropped(row: str, code: str) -> None:
    good = "| 8 | 1024 | 500.00 | 2.50 | 16.00 |"
    reading = read_text(HEADER, RULE, good, row)
    assert [(dropped.code, dropped.line) for dropped in reading.dropped] == [(code, 4)]
    with pytest.raises(FormatError) as caught:
        read_text(HEADER, RULE, row)
    assert caught.value.code == "no_rows"


def test_a_table_quoted_in_json_and_other_tables_are_not_recognised() -> None:
    assert recognise(f"words\n{HEADER}\n")
    assert not recognise(json.dumps({"text": f"\n{HEADER}\n"}))
    assert not recognise("| batch size | speed |\n| 1 | 2 |\n")
