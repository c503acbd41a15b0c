"""Throughput by load of an evaluation of Speculators: acceptance belongs to the subset."""

from pathlib import Path

import pytest

from calibration.readers import speculators_acceptance
from calibration.readers.reading import Reading, SourceText
from calibration.readers.speculators_perf import read, recognise
from specmodel.errors import FormatError

HEADER = (
    "subset,strategy,target_rate,ttft_median_ms,output_tps_median,num_drafts,num_draft_tokens,"
    "num_accepted_tokens,acceptance_length,acceptance_at_pos_0,acceptance_at_pos_1\n"
)
COUNTS = "100,200,120,2.2,0.7,0.5"


def read_text(text: str) -> Reading:
    return read(SourceText(path=Path("perf_results.csv"), text=text, encoding="utf-8"))


def test_each_load_is_a_row_and_only_the_synchronous_one_has_a_batch() -> None:
    reading = read_text(
        f"{HEADER}qa,synchronous,,42.0,200.5,{COUNTS}\nqa,constant,3.0,50.0,400.0,{COUNTS}\n"
    )
    alone, loaded = (row.cells for row in reading.rows)
    assert (alone["batch_size"], alone["output_tokens_per_s"], alone["ttft_ms"]) == (1, 200.5, 42)
    assert "batch_size" not in loaded
    assert loaded["accept_length"] == alone["accept_length"] == 2.2
    assert loaded["full_accuracy"] == (0.7, 0.5)
    assert [alone[n] for n in ("num_steps", "topk", "num_draft_tokens")] == [2, 1, 3]
    assert alone["workload"] == "qa"
    assert [warning.code for warning in reading.warnings] == ["acceptance_pooled"]


def test_a_subset_with_one_load_is_not_pooled() -> None:
    assert not read_text(f"{HEADER}qa,throughput,,42.0,200.5,{COUNTS}\n").warnings


def test_a_subset_without_rounds_is_counted_once() -> None:
    empty = "0,0,0,,,"
    reading = read_text(
        f"{HEADER}qa,synchronous,,42.0,200.5,{COUNTS}\nx,synchronous,,42,9,{empty}\n"
        f"x,constant,1,42,9,{empty}\n"
    )
    assert [(d.code, d.count) for d in reading.dropped] == [("no_verify_rounds", 1)]


def test_a_line_that_is_cut_off_is_dropped() -> None:
    reading = read_text(
        f"{HEADER}qa,synchronous,,42.0,200.5,{COUNTS}\nqa,constant,3.0,50.0,400.0,1"
    )
    assert [(d.code, d.line) for d in reading.dropped] == [("malformed", 3)]


def test_a_table_that_a_spreadsheet_saved_again_is_read() -> None:
    text = (HEADER + f"qa,synchronous,,42.0,200.5,{COUNTS}\n").replace(",", ";").replace(".", ",")
    assert recognise(text)
    assert read_text(text).rows[0].cells["output_tokens_per_s"] == 200.5


def test_percentages_are_converted_where_the_counts_prove_it() -> None:
    reading = read_text(f"{HEADER}qa,synchronous,,42.0,200.5,100,200,120,2.2,70.0,50.0\n")
    assert reading.rows[0].cells["full_accuracy"] == pytest.approx((0.7, 0.5))
    assert [warning.code for warning in reading.warnings] == ["percent_converted"]


def test_the_two_tables_are_told_apart() -> None:
    acceptance = "subset,num_drafts,acceptance_at_pos_0\nqa,1,1.0\n"
    assert recognise(HEADER)
    assert not recognise(acceptance)
    assert speculators_acceptance.recognise(acceptance)
    assert not speculators_acceptance.recognise(HEADER)
    assert not recognise("accept_length,throughput\n2.0,90.0\n")


def test_a_header_alone_is_refused() -> None:
    with pytest.raises(FormatError) as caught:
        read_text(HEADER)
    assert caught.value.code == "no_points"
