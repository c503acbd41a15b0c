"""What a reader finds: rows, reasons and warnings, each code once."""

from pathlib import Path

import pytest

from calibration.readers.findings import ENGINE_CODES, SGLANG_CODES, Findings, SharedCodes
from calibration.readers.reading import Row
from specmodel.errors import FormatError, LeftOut


def findings(codes: SharedCodes = ENGINE_CODES) -> Findings:
    return Findings(Path("a.log"), {"rough": "one request"}, codes)


def row(line: int, num_draft_tokens: float = 4.0) -> Row:
    return Row(line=line, cells={"num_draft_tokens": num_draft_tokens})


@pytest.mark.parametrize(
    ("codes", "empty", "cut_off"),
    [(SGLANG_CODES, "no_rows", "truncated_line"), (ENGINE_CODES, "no_points", "malformed")],
)
def test_each_page_has_its_codes(codes: SharedCodes, empty: str, cut_off: str) -> None:
    found = findings(codes)
    found.drop_cut_off((3, 5), "cut")
    with pytest.raises(FormatError, match="line 3 and 1 more: cut") as error:
        found.reading("a_format")
    assert error.value.code == empty
    found.keep(1, row(1))
    assert [(one.code, one.count) for one in found.reading("a_format").dropped] == [(cut_off, 2)]


def test_a_refused_row_is_dropped_without_its_notes() -> None:
    found = findings()
    assert not found.keep(2, LeftOut(code="odd", column="topk", message="is odd"), ["rough"])
    assert found.keep(4, row(4), ["rough"])
    assert found.keep(4, row(4), ["rough"])
    reading = found.reading("a_format")
    assert [(one.code, one.line, one.column) for one in reading.dropped] == [("odd", 2, "topk")]
    assert [(one.code, one.lines) for one in reading.warnings] == [("rough", (4,))]


def test_the_first_of_a_reason_keeps_its_file() -> None:
    found = findings()
    found.drop("idle", 7, "nothing ran")
    found.path = Path("b.log")
    found.drop("idle", 1, "nothing ran")
    found.keep(2, row(2))
    (dropped,) = found.reading("a_format").dropped
    assert (dropped.path, dropped.line, dropped.count) == (Path("a.log"), 7, 2)


def test_depths_and_layouts_are_said_where_the_page_says_them() -> None:
    for codes, expected in ((SGLANG_CODES, "mixed_eras"), (ENGINE_CODES, "depth_changed")):
        found = findings(codes)
        found.keep(1, row(1, 4.0))
        found.keep(2, row(2, 6.0))
        warnings = found.reading("a_format", era=("1", "2")).warnings
        assert [warning.code for warning in warnings] == [expected]


def test_of_many_reasons_the_first_are_shown() -> None:
    found = findings()
    for line in range(1, 6):
        found.drop(f"code {line}", line, "bad")
    with pytest.raises(FormatError, match="line 3: bad; and 2 more reasons; run it again"):
        found.reading("a_format", advice="run it again")
