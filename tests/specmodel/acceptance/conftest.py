"""Published numbers for the acceptance tests."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"

Rows = list[dict[str, str]]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Rows]:
    def read(name: str) -> Rows:
        with (GOLDEN / f"acceptance_{name}.csv").open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))

    return read
