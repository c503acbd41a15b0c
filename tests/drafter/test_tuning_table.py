"""The table of tiles as a file: it round-trips, keeps what it does not know better, refuses defects."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafter.tuning_table import TileRow, merged, read_table, shipped_table, table_text
from specmodel.errors import FormatError, ParameterError

ROW = TileRow(
    sm=90,
    tokens=1,
    rows=4096,
    width=8192,
    block_n=4,
    block_k=1024,
    num_warps=4,
    num_stages=1,
    how="measured",
    record='H200 "SXM" \\ driver 1',
)
OTHERS = [
    replace(ROW, sm=120),
    replace(ROW, tokens=2),
    replace(ROW, rows=32768, how="compiled", record=""),
]


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(table_text([ROW, *OTHERS]), encoding="utf-8")
    assert read_table(path) == (ROW, *OTHERS)
    path.write_text(table_text([]), encoding="utf-8")
    assert read_table(path) == ()


def test_the_shipped_table_keeps_its_rows_when_it_is_written_again(tmp_path: Path) -> None:
    rows, path = read_table(shipped_table()), tmp_path / "launch.toml"
    path.write_text(table_text(rows), encoding="utf-8")
    assert read_table(path) == rows
    header = table_text([]).partition("\n\n")[0]
    assert shipped_table().read_text(encoding="utf-8").startswith(header)


def test_new_rows_replace_old_ones_of_their_key_and_others_stay() -> None:
    better = replace(ROW, block_n=8)
    rows = merged([ROW, *OTHERS], [better])
    assert better in rows
    assert ROW not in rows
    assert set(OTHERS) <= set(rows)
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 5000},
        {"block_n": 0},
        {"sm": 0},
        {"num_stages": 0},
        {"how": "guessed"},
        {"record": ""},
    ],
    ids=str,
)
def test_an_impossible_row_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        replace(ROW, **change)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiles = [", "not valid TOML"),
        ("[[tiles]]\nsm = 90\n", "row 1 must have the keys"),
        (table_text([ROW]).replace("block_n = 4", "block_n = 5"), "row 1: block_n"),
        (table_text([ROW]) + 'colour = "red"\n', "row 1 must have the keys"),
        (table_text([ROW]).replace("rows = 4096", 'rows = "4096"'), "row 1: rows"),
    ],
)
def test_a_defect_is_one_line_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=words):
        read_table(path)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_table(tmp_path / "none.toml")
