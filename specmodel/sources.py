"""The register of sources: which document every cited number, formula and table comes from."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from specmodel.errors import ParameterError, UnknownKeyError

KINDS = ("paper", "post", "page", "issue", "pull request", "data", "compiled")
"""What a source can be. ``compiled`` is put together by this project from several documents."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One document."""

    key: str  # what docstrings, tables and constants cite
    kind: str  # one of `KINDS`
    title: str  # title, or what the document holds
    authors: tuple[str, ...]  # people, or the organisation and repository; empty when compiled
    year: int | None  # year of publication; None where the document does not say
    # the document and the place in it. A compiled source has neither: its rows carry their
    # own
    url: str | None
    locator: str | None
    version: str | None  # state of the document that was read

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"kind of source {self.key}", self.kind, f"one of {KINDS}")
        if not self.title.strip():
            raise ParameterError(f"title of source {self.key}", repr(self.title), "a text")
        if self.url is not None and not self.url.startswith("https://"):
            raise ParameterError(f"url of source {self.key}", self.url, "an https address")


@cache
def sources() -> Mapping[str, Source]:
    """Every registered source by its key."""
    text = resources.files("specmodel").joinpath("data", "sources.toml").read_text("utf-8")
    return MappingProxyType(
        {key: _source_from_table(key, table) for key, table in tomllib.loads(text).items()}
    )


def source(key: str) -> Source:
    """Registered source of that key."""
    known = sources()
    if key not in known:
        close = difflib.get_close_matches(key, known, n=5, cutoff=0.5)
        raise UnknownKeyError("source", key, close or list(known))
    return known[key]


def _source_from_table(key: str, table: dict[str, Any]) -> Source:
    """Record of one table of the file; what it does not state is None."""
    return Source(
        key=key,
        kind=table["kind"],
        title=table["title"],
        authors=tuple(table.get("authors", ())),
        year=table.get("year"),
        url=table.get("url"),
        locator=table.get("locator"),
        version=table.get("version"),
    )
