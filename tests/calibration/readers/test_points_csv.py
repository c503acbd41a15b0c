"""Plain tables to rows."""

from collections import Counter
from pathlib import Path

import pytest

from calibration.readers import READERS, Reading, Row, SourceText, points_csv, recognise_file
from specmodel.errors import FormatError
from tests.extent import extent

BAD = Path(__file__).parents[2] / "fixtures" / "bad"


def read(text: str) -> Reading:
    return points_csv.read(SourceText(path=Path("bench.csv"), text=text, encoding="utf-8"))


def only(text: str) -> Row:
    (row,) = read(text).rows
    return row


def refusal(text: str) -> str:
    with pytest.raises(FormatError) as error:
        read(text)
    return str(error.value)


def test_one_line_is_a_benchmark() -> None:
    row = only("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    assert row.cells == {
        "accept_length": 2.1,
        "output_tokens_per_s": 82.3,
        "baseline_tokens_per_s": 90.0,
    }
    assert row.line == 2


def test_a_dropped_row_says_where_and_why() -> None:
    reading = read("accept_length,throughput\n2.1,90\nabc,90\n")
    assert str(reading.dropped[0]) == (
        "bench.csv, line 3, column accept_length: 'abc' is not a number"
    )


def test_the_column_is_named_as_the_file_names_it() -> None:
    assert read("Tau,Tok/s\n2.1,90\n2.2,fast\n").dropped[0].column == "Tok/s"


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        *(("2.1,-90,1,3", "not_positive"), ("2.1,0,1,3", "not_positive")),
        *(("2.1,90,0,3", "not_positive"), ("2.1,90,1,-3", "not_positive")),
        *(("2.1,90,1,2.5", "not_a_number"), ("2.1,90,1,x", "not_a_number")),
        *(("2.1,1e-40,1,3", "not_positive"), ("2.1,1e40,1,3", "not_finite")),
        *(("2.1,nan,1,3", "not_finite"), ("inf,90,1,3", "not_finite")),
        *(("0,90,1,3", "accept_length_out_of_range"), ("9,90,1,3", "accept_length_out_of_range")),
        *(("2.1,,1,3", "missing_throughput"), (",90,1,3", "missing_accept_length")),
        *(("2.1,90,1,3,4", "ragged_row"), ("2,90,80,3", "duplicate_row")),
    ],
)
def test_reasons(cells: str, code: str) -> None:
    text = f"accept_length,throughput,batch_size,num_steps\n2,90,80,3\n{cells}\n"
    assert [row.code for row in read(text).dropped] == [code]


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [
        *(("num_steps", 0, 1024), ("topk", 0, 65536), ("num_draft_tokens", 1, 65536)),
        *(("batch_size", 0.5, 10**6), ("context_tokens", 0, 10**9)),
    ],
)
def test_counts_that_cannot_be_are_dropped_with_their_place(
    column: str, least: float, most: int
) -> None:
    text = (
        f"accept_length,throughput,{column}\n1,90,{max(least, 1)}\n1,90,{most}\n1,90,{most + 1}\n"
    )
    reading = read(text + (f"1,90,{least / 2}\n" if least else ""))
    assert [row.line for row in reading.rows] == [2, 3]
    assert {row.code for row in reading.dropped} == {"out_of_range"}
    assert str(reading.dropped[0]).startswith(f"bench.csv, line 4, column {column}: ")
    assert f"is above {most:g}" in reading.dropped[0].message


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(("throughput", "82.3%"), ("accept_length", "210%"), ("batch_size", "100 %")),
        *(("baseline", "90%"), ("speedup", "150%"), ("num_steps", "300%")),
    ],
)
def test_percent_is_only_for_accuracies_and_shares(column: str, cell: str) -> None:
    good = {"accept_length": "2.1", "throughput": "90"}
    header = [*good, *({column} - set(good))]
    row = [{**good, column: cell}[name] for name in header]
    reading = read(
        f"{','.join(header)}\n{','.join(['2.1', '90', '3'][: len(header)])}\n{','.join(row)}\n"
    )
    (dropped,) = reading.dropped
    assert (dropped.code, dropped.line, dropped.column) == ("not_a_number", 3, column)
    assert "percent sign" in dropped.message


def test_percent_in_header_and_cell_counts_once() -> None:
    row = only("tau,tok/s,full_accuracy (%)\n2.2,90,70%;50%\n")
    assert row.cells["full_accuracy"] == pytest.approx((0.7, 0.5))


@pytest.mark.parametrize(
    ("cell", "spread"), [("0.5", 0.5), ("5", None), ("5%", 0.05), ("60%", None), ("0", 0)]
)
def test_a_spread_that_may_be_a_percentage_is_ignored_and_said(
    cell: str, spread: float | None
) -> None:
    reading = read(f"tau,tok/s,spread\n2.1,90,{cell}\n")
    found = reading.rows[0].cells.get("spread")
    assert found == (spread if spread is None else pytest.approx(spread))
    said = [(w.code, w.lines) for w in reading.warnings]
    assert said == ([("spread_too_large", (2,))] if spread is None else [])


def test_a_spread_in_percent_by_its_header_is_believed() -> None:
    assert only("tau,tok/s,spread (%)\n2.1,90,5\n").cells["spread"] == pytest.approx(0.05)


def test_an_unknown_scope_drops_the_row_and_usual_spellings_are_read() -> None:
    reading = read(
        "tau,tok/s,throughput_scope\n2.1,90,Per User\n2.1,91,tok/s/gpu\n2.1,92,total\n2.1,93,\n"
        "2.1,94,per_banana\n"
    )
    scopes = [row.cells.get("throughput_scope") for row in reading.rows]
    assert scopes == ["per_user", "per_gpu", "aggregate", None]
    (dropped,) = reading.dropped
    assert (dropped.code, dropped.line) == ("unknown_scope", 6)
    assert "'per_banana' is not known; write aggregate, per_user or per_gpu" in dropped.message


def test_a_file_without_a_usable_row_says_why() -> None:
    said = refusal("accept_length,throughput,num_steps\n9,90,3\nx,90,3\n2,,3\n2,inf,3\n")
    assert "line 2, column accept_length: 9 is above num_steps + 1 = 4" in said
    assert "line 3" in said
    assert said.endswith("and 1 more")


def test_other_names_in_any_spelling() -> None:
    row = only("K,Acc Length,Output Throughput (tok/s),Max-Concurrency\n3,2.1,90,8\n")
    assert row.cells["num_steps"] == 3
    assert row.cells["batch_size"] == 8


def test_unknown_columns_are_kept_and_said() -> None:
    reading = read("tau,tok/s,Operator,acept_lenght\n2.1,90,night shift,x\n")
    assert dict(reading.rows[0].extra) == {"Operator": "night shift", "acept_lenght": "x"}
    (warning,) = reading.warnings
    assert warning.code == "unknown_column"
    assert "'Operator'" in warning.message
    assert "did you mean 'accept_length'" in warning.message


def test_a_second_column_of_the_same_meaning_is_kept_apart() -> None:
    reading = read("num_steps,k,k,tau,tok/s\n3,4,5,2.1,90\n")
    row = reading.rows[0]
    assert row.cells["num_steps"] == 3
    assert dict(row.extra) == {"k": "4", "k (2)": "5"}
    assert "which 'num_steps' gives" in reading.warnings[0].message


def test_an_unknown_column_cannot_take_a_name_that_is_ours() -> None:
    assert set(only("tau,tok/s,line,file\n2,90,a,b\n").extra) == {"line (2)", "file (2)"}


def test_a_name_repeated_by_many_columns_is_numbered_once_each() -> None:
    repeats = extent(
        test=2_000, prove=20_000
    )  # numbered from 2 for every column anew, this would take minutes
    header, cells = ",".join(["x"] * repeats), ",".join(["1"] * repeats)
    extra = only(f"tau,tok/s,{header}\n2,90,{cells}\n").extra
    assert set(extra) == {"x", *(f"x ({count})" for count in range(2, repeats + 1))}


def test_an_index_column_without_a_name_counts_for_nothing() -> None:
    assert only(",tau,tok/s\n0,2.1,90\n").cells["accept_length"] == 2.1


def test_cells_beyond_the_last_named_column_make_a_row_ragged() -> None:
    assert [row.code for row in read("tau,tok/s,,\n2,90,,\n2.1,90,3,\n").dropped] == ["ragged_row"]


def test_percent_in_the_header_is_percent() -> None:
    row = only("tau,tok/s,full_accuracy (%)\n2.2,90,70;50\n")
    assert row.cells["full_accuracy"] == pytest.approx((0.7, 0.5))


def test_speedup_gives_the_baseline_where_there_is_none() -> None:
    rows = read("tau,tok/s,speedup,baseline\n2.1,90,1.5x,\n2.2,90,1.5,70\n").rows
    assert [row.cells["baseline_tokens_per_s"] for row in rows] == [60.0, 70.0]
    assert [row.cells.get("baseline_origin") for row in rows] == ["speedup", None]


def test_a_speedup_that_contradicts_the_baseline_is_said() -> None:
    (warning,) = read("tau,tok/s,speedup,baseline\n2.1,90,1.5,60\n2.2,90,1.5,70\n").warnings
    assert (warning.code, warning.lines) == ("speedup_mismatch", (3,))


def test_step_times_give_a_throughput_where_none_was_measured() -> None:
    text = "k,tau,batch_size,step_time_ms,baseline_step_time_ms\n3,2.0,4,20,12\n0,,4,12,\n"
    spec, base = read("tok/s," + text.replace("\n", "\n,").removesuffix(",")).rows
    assert spec.cells["output_tokens_per_s"] == pytest.approx(400.0)
    assert base.cells["output_tokens_per_s"] == pytest.approx(4 / 0.012)
    assert base.cells["throughput_origin"] == "step_time"


def test_a_step_time_is_no_throughput_beside_a_measured_baseline() -> None:
    said = refusal("tau,tok/s,baseline,batch_size,step_time_ms\n2.0,,90,4,20\n")
    assert "no throughput" in said


def test_units_in_the_name_are_converted() -> None:
    row = only("tau,tok/s,ttft_s,step_time (s)\n2,90,0.25,0.02\n")
    assert row.cells["ttft_ms"] == pytest.approx(250.0)
    assert row.cells["step_time_ms"] == pytest.approx(20.0)
    row = only("tau,tok/s,step_time_s\n2,90,0.02\n")
    assert row.cells["step_time_ms"] == pytest.approx(20.0)


def test_tables_are_recognised_by_their_header() -> None:
    assert points_csv.recognise("throughput;acc_length\n")
    assert points_csv.recognise("k,tok/s\n0,90\n")
    assert not points_csv.recognise("k,tok/s\n3,90\n")
    assert not points_csv.recognise("name,colour\n")
    assert not points_csv.recognise('{"accept_length": 2.1}\n')
    assert not points_csv.recognise("# accept_length,throughput\n")


def test_every_reader_has_a_format_of_its_own() -> None:
    assert len({reader.FORMAT for reader in READERS}) == len(READERS)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("wrong_separator.csv", "unknown_format", "separated by commas, semicolons or tabs"),
        ("separated_by_spaces.csv", "unknown_format", "separated by commas, semicolons or tabs"),
        ("wrong_separator_named.csv", "unknown_format", "unknown format"),
        ("no_header.csv", "unknown_format", "needs a header"),
        ("header_in_a_comment.csv", "unknown_format", "take the # off"),
        ("accept_above_depth_only_row.csv", "no_points", "9 is above num_steps + 1 = 4"),
        ("accept_below_one_only_row.csv", "no_points", "0.9 is below 1"),
        ("percent_only_row.csv", "no_points", "write 78% or divide by 100"),
        ("decimal_comma_between_commas.csv", "no_points", "decimal comma"),
        ("requests_per_second.csv", "no_points", "no throughput"),
    ],
)
def test_bad_files_are_refused_with_one_clear_line(name: str, code: str, said: str) -> None:
    with pytest.raises(FormatError) as error:
        recognise_file(BAD / name).read()
    assert error.value.code == code
    assert said in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "kept", "dropped"),
    [
        ("bad_accuracies.csv", [5], {"not_positive": 1, "not_finite": 1, "not_a_number": 1}),
        ("depths_and_overflow.csv", [5], {"not_a_number": 1, "not_positive": 1, "not_finite": 1}),
        ("quotes_left_open.csv", [2, 3, 4, 5], {}),
    ],
)
def test_bad_rows_do_not_cost_the_good_ones(
    name: str, kept: list[int], dropped: dict[str, int]
) -> None:
    (reading,) = recognise_file(BAD / name).read()
    assert [row.line for row in reading.rows] == kept
    assert Counter(row.code for row in reading.dropped) == Counter(dropped)
