"""Every fixture comes out as the file beside it says; training_logs.md, README of the fixtures."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from calibration.training.log_summary import log_summary, refusal_summary
from calibration.training.reading import read_training_log
from calibration.training.training_log import TrainingLogError

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
EXPECTED = sorted(FIXTURES.glob("*.expected.json"))
NOT_ASSERTED = {".file", ".truth"}
TOLERANCE = 1e-9


def summary_of(path: Path) -> dict[str, Any]:
    """Return what is found in a file, refused or not."""
    try:
        return log_summary(read_training_log(path))
    except TrainingLogError as error:
        return refusal_summary(error)


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Return where a value is not as expected; fields that are not expected are not looked at."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        pairs = [(f"{place}.{key}", found.get(key), value) for key, value in expected.items()]
        return [
            line
            for name, one, other in pairs
            if name not in NOT_ASSERTED
            for line in differences(one, other, name)
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        if place.endswith(".warnings"):
            return [] if set(found) == set(expected) else [f"{place}: {found} is not {expected}"]
        numbered = enumerate(zip(found, expected, strict=True))
        return [
            line
            for number, (one, other) in numbered
            for line in differences(one, other, f"{place}[{number}]")
        ]
    same = found == expected
    if isinstance(expected, float) and isinstance(found, int | float):
        same = math.isclose(found, expected, rel_tol=0.0, abs_tol=TOLERANCE)
    return [] if same else [f"{place}: {found!r} is not {expected!r}"]


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.name.split(".expected")[0])
def test_a_fixture_is_read_as_its_expected_file_says(expected: Path) -> None:
    found = summary_of(expected.with_name(expected.name.removesuffix(".expected.json")))
    assert differences(found, json.loads(expected.read_text())) == []


def test_no_fixture_is_left_out() -> None:
    seeds = [path for path in FIXTURES.iterdir() if path.suffix != ".md"]
    assert len(seeds) == 2 * len(EXPECTED)
    assert len(EXPECTED) >= 44


def test_a_difference_is_found() -> None:
    expected = {"error": None, "depths": 3, "warnings": ["a", "b"], "last": {"joint": [0.5, 0.25]}}
    assert differences(expected | {"more": 1, "warnings": ["b", "a"]}, expected) == []
    changes: tuple[dict[str, Any], ...] = (
        {"error": "alias-defect"},
        {"depths": 4},
        {"warnings": ["a"]},
        {"last": {"joint": [0.5]}},
        {"last": {"joint": [0.5, 0.25 + 2e-9]}},
        {"last": {}},
    )
    for change in changes:
        assert len(differences(expected | change, expected)) == 1
