"""Releases as numbers."""

import pytest

from calibration.writers.engine_version import release_of
from specmodel.errors import ParameterError


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.5.23", (0, 5, 23)),
        ("v0.4.3.post4", (0, 4, 3)),
        ("0.5.10rc1", (0, 5, 10)),
        ("0.5.9+cu129", (0, 5, 9)),
        ("0.5.9.dev12+g0123abc", (0, 5, 9)),
        (" 0.30.0 ", (0, 30, 0)),
    ],
)
def test_the_numbers_of_a_release_are_read(text: str, release: tuple[int, ...]) -> None:
    assert release_of(text) == release


@pytest.mark.parametrize("text", ["", "main", "V1 main 2025-04", "5", "0.5.x", "0..5"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="engine_version"):
        release_of(text)
