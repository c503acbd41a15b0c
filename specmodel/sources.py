"""The register of sources: which document every cited number, formula and table comes from."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, final

from specmodel.errors import ParameterError, UnknownKeyError

__all__ = ["KINDS", "Source", "source", "sources"]

KINDS = ("paper", "post", "page", "issue", "pull request", "data", "compiled")
"""What a source can be. ``compiled`` is put together by this project from several documents."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One document.

    Parameters
    ----------
    key : str
        What docstrings, tables and constants cite.
    kind : str
        One of `KINDS`.
    title : str
        Title, or what the document holds.
    authors : tuple of str
        People, or the organisation and repository; empty when compiled.
    year : int or None
        Year of publication; None where the document does not say.
    url, locator : str or None
        The document and the place in it. A compiled source has neither: its rows carry their own.
    version : str or None
        State of the document that was read.

    Raises
    ------
    ParameterError
        If the kind is unknown, the title empty, or an address not https.

    Examples
    --------
    >>> source("leviathan2023").authors[0]
    'Yaniv Leviathan'
    """

    key: str
    kind: str
    title: str
    authors: tuple[str, ...]
    year: int | None
    url: str | None
    locator: str | None
    version: str | None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"kind of source {self.key}", self.kind, f"one of {KINDS}")
        if not self.title.strip():
            raise ParameterError(f"title of source {self.key}", repr(self.title), "a text")
        if self.url is not None and not self.url.startswith("https://"):
            raise ParameterError(f"url of source {self.key}", self.url, "an https address")

    @property
    def citation(self) -> str:
        """One line for a reader: authors, year, title, place, address; what is unknown is left out."""
        names = self.authors if len(self.authors) <= 3 else (self.authors[0], "others")
        who = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        when = f" ({self.year})" if self.year is not None else ""
        lead = f"{who}{when}: " if who or when else ""
        return ". ".join(filter(None, (f"{lead}{self.title}", self.locator, self.url)))


@cache
def sources() -> Mapping[str, Source]:
    r"""Every registered source by its key.

    .. math:: \text{key} \mapsto \text{source}

    Returns
    -------
    mapping of str to Source
        In the order of the file; cannot be changed.

    Notes
    -----
    Read once from ``data/sources.toml``. The tests hold the register complete in both directions:
    whatever is cited is registered, whatever is registered is cited.

    Examples
    --------
    >>> sources()["moesd2025"].year
    2025
    """
    text = resources.files("specmodel").joinpath("data", "sources.toml").read_text("utf-8")
    return MappingProxyType(
        {key: _source_from_table(key, table) for key, table in tomllib.loads(text).items()}
    )


def source(key: str) -> Source:
    r"""Registered source of that key.

    .. math:: \text{key} \mapsto \text{source}

    Parameters
    ----------
    key : str
        As cited in a docstring, a table or a constant.

    Returns
    -------
    Source

    Raises
    ------
    UnknownKeyError
        If there is none; `known` holds the closest keys, or all when none is close.

    Notes
    -----
    Tables of measured points cite by their column ``source_id``.

    Examples
    --------
    >>> source("leviathan2023").citation
    'Yaniv Leviathan, Matan Kalman and Yossi Matias (2023): Fast Inference from Transformers via Speculative Decoding. https://arxiv.org/abs/2211.17192'
    """
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
