"""The plain tables of tests/fixtures/engines/csv against their expected readings."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calibration.points.reading import read_points
from calibration.points.table import Points
from specmodel.errors import FormatError

FOLDER = Path(__file__).parents[2] / "fixtures" / "engines" / "csv"
EXPECTED = sorted(FOLDER.glob("*.expected.json"))
WARNINGS = {
    *("accept_length_from_accuracy", "accuracy_sum_mismatch", "looks_like_percent", "no_baseline"),
    *("root_added", "round_cost_below_one", "two_systems", "unknown_column"),
}
RELATIVE = 1e-6


def agrees(found: object, wanted: object, tolerance: float) -> bool:
    """Return whether a cell is what the expected reading says; None is an empty cell."""
    if wanted is None:
        return found is None or found == "" or found != found  # noqa: PLR0124 - nan
    if isinstance(wanted, list):
        return isinstance(found, tuple) and list(found) == pytest.approx(wanted, rel=tolerance)
    if isinstance(wanted, int | float):
        return isinstance(found, float) and found == pytest.approx(wanted, rel=tolerance)
    return found == wanted


def unmatched(points: Points, wanted: list[dict[str, Any]], tolerance: dict[str, float]) -> object:
    """Return an expected row that no row of the table is, or the rows that are too many."""
    rows: list[dict[Any, Any]] = points.frame.to_dict("records")
    for expected in wanted:
        for row in rows:
            if all(
                agrees(row[name], cell, tolerance.get(name, RELATIVE))
                for name, cell in expected.items()
            ):
                rows.remove(row)
                break
        else:
            return expected
    return rows


def test_there_are_fixtures() -> None:
    assert len(EXPECTED) > 30


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.name.split(".expected")[0])
def test_table_reads_as_expected(path: Path) -> None:
    expected = json.loads(path.read_text())
    files = [FOLDER / name for name in expected["files"]]
    if "error" in expected:
        with pytest.raises(FormatError) as error:
            read_points(files)
        assert error.value.code == expected["error"]
        assert "\n" not in str(error.value)
        return
    points = read_points(files)
    assert unmatched(points, expected["rows"], expected.get("tolerance", {})) == []
    assert Counter(row.code for row in points.dropped) == Counter(expected["dropped"])
    said = [warning.code for warning in points.warnings if warning.code in WARNINGS]
    assert sorted(said) == expected["warnings"]
