"""What each format's numbers mean, and what is said of a reading: the texts of formats.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FORMATS: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("formats.toml").read_text("utf-8")
)


def conventions(name: str) -> tuple[str, ...]:
    """What the numbers of a format mean, a sentence each."""
    return tuple(_FORMATS[name]["conventions"])


def messages(name: str, kind: str = "messages") -> Mapping[str, str]:
    """What is said of a reading, by code."""
    found: Mapping[str, str] = _FORMATS[name][kind]
    return found
