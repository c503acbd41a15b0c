"""The register of sources."""

import dataclasses

import pytest

from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.sources import Source, source, sources

PAPER = Source(
    key="doe2020",
    kind="paper",
    title="On drafts",
    authors=("Ann Doe",),
    year=2020,
    url="https://example.org/drafts",
    locator="Table 2",
    version=None,
)


def test_lookup_returns_the_source_of_that_key() -> None:
    for key, registered in sources().items():
        assert registered.key == key
        assert source(key) is registered


def test_the_register_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        sources()["doe2020"] = PAPER  # type: ignore[index]


def test_an_unknown_key_names_close_ones() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        source("leviathan2024")
    assert "leviathan2023" in caught.value.known


def test_an_unknown_key_without_neighbour_names_all() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        source("@@@")
    assert caught.value.known == list(sources())


def test_every_source_but_a_compiled_one_can_be_found_by_a_reader() -> None:
    for registered in sources().values():
        if registered.kind != "compiled":
            assert registered.authors, registered.key
            assert registered.url or registered.locator, registered.key


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "rumour"), ("title", " "), ("url", "http://example.org")]
)
def test_a_source_that_cannot_be_cited_is_refused(field: str, value: str) -> None:
    with pytest.raises(ParameterError, match="doe2020"):
        dataclasses.replace(PAPER, **{field: value})  # type: ignore[arg-type]
