"""The register of sources: which document every cited number, formula and table comes from."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.records import from_record

KINDS = ("paper", "post", "page", "issue", "pull request", "data", "compiled")
"""What a source can be. ``compiled`` is put together by this project from several documents."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One document."""

    key: str  # what docstrings, tables and constants cite
    kind: str  # one of `KINDS`
    title: str  # title, or what the document holds
    authors: tuple[str, ...] = ()  # people, or the organisation and repository; empty when compiled
    year: int | None = None  # year of publication; None where the document does not say
    url: str | None = None  # none for a compiled source: its rows carry their own
    locator: str | None = None  # the place in it
    version: str | None = None  # state of the document that was read

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
    found = tomllib.loads(text).items()
    return MappingProxyType({key: from_record(Source, {"key": key, **each}) for key, each in found})


def source(key: str) -> Source:
    """Registered source of that key."""
    known = sources()
    if key not in known:
        close = difflib.get_close_matches(key, known, n=5, cutoff=0.5)
        raise UnknownKeyError("source", key, close or list(known))
    return known[key]
