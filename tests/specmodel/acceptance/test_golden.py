import tomllib
from pathlib import Path

import pytest

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("acceptance_*.csv"))


@pytest.mark.parametrize("table", GOLDEN, ids=[path.stem for path in GOLDEN])
def test_every_table_names_source_and_locator(table: Path) -> None:
    described = tomllib.loads(table.with_suffix(".toml").read_text(encoding="utf-8"))
    assert set(described) == {"source", "locator", "what"}
    assert all(described.values())
