import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).resolve().parents[2] / "fixtures" / "configs"

Config = dict[str, Any]


@pytest.fixture(scope="session")
def config() -> Callable[[str], Config]:
    """Reader of the configurations in the fixtures, typed from public fields."""

    def read(name: str) -> Config:
        found: Config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        return found

    return read
