"""Delimited text to records."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.text_tables import Table, split_table


def split(text: str, known: tuple[str, ...] = ("tau", "tok/s", "k")) -> Table:
    table = split_table(text, known.__contains__)
    assert table is not None
    return table


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separator_and_line_ends(separator: str, end: str) -> None:
    table = split(f"tau{separator}tok/s{end}2.1{separator}90{end}")
    assert table.separator == separator
    assert table.header.cells == ("tau", "tok/s")
    assert [record.cells for record in table.records] == [("2.1", "90")]


def test_separator_is_the_one_that_gives_known_names() -> None:
    assert split("tau;tok/s, decode, all, mean;k\n1;2;3\n").separator == ";"


def test_named_separator_wins() -> None:
    table = split("sep=;\ntau,tok/s\n1,2\n")
    assert (table.separator, table.header.cells) == (";", ("tau,tok/s",))


def test_comments_and_blank_lines_count_only_for_line_numbers() -> None:
    table = split("# it's a \"bench\n\ntau,k\n#\n2.1,3\n  \n # note\n2.2,4\n,\n")
    assert table.header.line == 3
    assert [(r.line, r.cells) for r in table.records] == [(5, ("2.1", "3")), (8, ("2.2", "4"))]


@pytest.mark.parametrize("text", ["# only\n#comments\n", "sep=;\n", "#\nsep=,\n# x\n"])
def test_nothing_but_comments_is_no_table(text: str) -> None:
    assert split_table(text, bool) is None


def test_quoted_cells_hold_separators_quotes_and_line_ends() -> None:
    table = split('tau,tok/s\n"a ""b"", c","d\ne"\n1,2\n')
    assert [(r.line, r.cells) for r in table.records] == [
        (2, ('a "b", c', "d\ne")),
        (4, ("1", "2")),
    ]


def test_a_quote_inside_a_word_is_a_letter() -> None:
    table = split('tau,k\n7" disk,3\n8" disk,4\n9" disk,5\n')
    assert [r.line for r in table.records] == [2, 3, 4]
    assert table.records[1].cells == ('8" disk', "4")


def test_quotes_left_open_do_not_swallow_the_rows_below() -> None:
    table = split('tau,k\n1,"open\n2,b\n3,"again open\n4,d\n')
    assert [r.line for r in table.records] == [2, 3, 4, 5]


@given(
    rows=st.lists(
        st.lists(
            st.text(st.characters(exclude_categories=["C"]), max_size=8).map(str.strip),
            min_size=2,
            max_size=2,
        ).filter(lambda row: any(row) and not row[0].startswith("#")),
        max_size=6,
    ),
    separator=st.sampled_from(",;\t"),
)
def test_what_a_csv_writer_writes_is_read_back(rows: list[list[str]], separator: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\r\n")
    writer.writerows([["tau", "tok/s"], *rows])
    assert [list(record.cells) for record in split(text.getvalue()).records] == rows


@given(text=st.text(alphabet='a",;\n\r\t# =sep', max_size=60))
def test_any_text_splits(text: str) -> None:
    table = split_table(text, str.isalpha)
    if table is not None:
        lines = [table.header.line, *(record.line for record in table.records)]
        assert lines == sorted(set(lines))
