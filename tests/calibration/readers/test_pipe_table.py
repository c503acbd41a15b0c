"""Tables drawn with bars."""

from calibration.readers.text_tables import Headings, has_table, pipe_rows


def has_speed(headings: Headings) -> bool:
    return "speed" in headings


def rows(text: str) -> list[dict[str, str]]:
    return [dict(row.cells) for row in pipe_rows(text, has_speed)]


def test_a_table_ends_where_its_lines_do() -> None:
    assert rows("| speed |\n| 1 |\n\n| 2 |\n") == [{"speed": "1"}]


def test_tables_with_other_headings_are_passed_over() -> None:
    assert rows("| size |\n|---|\n| 1 |\n\n| Speed (m/s) |\n|---|\n| 3 |\n") == [{"speed": "3"}]


def test_windows_line_ends_and_indentation_do_not_matter() -> None:
    assert rows("  | speed | a |\r\n  |:---|---:|\r\n  | 1 | 2 |\r\n") == [{"speed": "1", "a": "2"}]


def test_a_huge_line_is_no_row() -> None:
    assert rows("| speed |\n| " + "1 | " * 100_000) == []
    assert not has_table("| " + "a | " * 100_000 + "speed |", has_speed)
