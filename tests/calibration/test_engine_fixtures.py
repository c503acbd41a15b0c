"""Every engine file of tests/fixtures/engines against its expected reading, as `ingest --json` says it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calibration.points.reading import ingest
from calibration.report.as_json import answer_json

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
PAGES = ("csv", "other", "sglang")
EXPECTED = sorted(path for page in PAGES for path in (ENGINES / page).glob("*.expected.json"))
RELATIVE = 1e-6


def codes_of(page: str, heading: str) -> set[str]:
    """Return the codes that a README defines in the table under a heading."""
    text = (ENGINES / page / "README.md").read_text()
    section = text.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {row.split("`")[1] for row in rows}


WARNINGS = {
    "csv": codes_of("csv", "Codes in `warnings`"),
    "other": codes_of("other", "Codes in `warnings`"),
    "sglang": codes_of("sglang", "Warning codes"),
}


def agrees(found: object, wanted: object, tolerance: dict[str, float]) -> bool:
    """Return whether a cell is what the expected reading says; None is an empty cell."""
    if wanted is None or found is None:
        return found is wanted
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(agrees(one, other, tolerance) for one, other in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, int | float):
        allowed = tolerance or {"rel": RELATIVE}
        return isinstance(found, int | float) and found == pytest.approx(
            wanted, rel=allowed.get("rel", 0.0), abs=allowed.get("abs", 0.0)
        )
    return bool(found == wanted)


def unmatched(
    found: list[dict[str, Any]],
    wanted: list[dict[str, Any]],
    tolerance: dict[str, dict[str, float]],
) -> object:
    """Return an expected row that no row is, or the rows that are too many."""
    left = list(found)
    for expected in wanted:
        for row in left:
            if all(
                agrees(row.get(name), cell, tolerance.get(name, {}))
                for name, cell in expected.items()
                if not name.startswith("_")
            ):
                left.remove(row)
                break
        else:
            return expected
    return left


def name_of(path: Path) -> str:
    """Return the page and the name of a fixture."""
    return f"{path.parent.name}/{path.name.removesuffix('.expected.json')}"


def test_there_are_fixtures_of_every_page() -> None:
    assert Counter(path.parent.name for path in EXPECTED) == {"csv": 39, "other": 46, "sglang": 59}


@pytest.mark.parametrize("path", EXPECTED, ids=name_of)
def test_file_reads_as_expected(path: Path) -> None:
    expected = json.loads(path.read_text())
    page = path.parent.name
    answer = answer_json(ingest([path.parent / name for name in expected["files"]]), output=None)
    said = json.dumps(answer)
    for secret in (*expected.get("must_not_contain", ()), *expected.get("secrets", ())):
        assert secret not in said
    assert len(answer["groups"]) == 1
    group = answer["groups"][0]
    assert group["files"] == expected["files"]
    if "error" in expected:
        assert group["error"] == expected["error"]
        assert "\n" not in group["messages"][0]["message"]
        return
    assert "error" not in group, group["messages"]
    assert group["format"] == expected["format"]
    assert group.get("era") == expected.get("era")
    assert unmatched(group["rows"], expected["rows"], expected.get("tolerance", {})) == []
    assert group["dropped"] == expected["dropped"]
    assert [code for code in group["warnings"] if code in WARNINGS[page]] == expected["warnings"]
    if "pairs" in expected:
        assert unmatched(group.get("pairs", []), expected["pairs"], {}) == []
