"""Values from JSON against the types of a dataclass."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from specmodel.errors import ParameterError
from specmodel.record_types import check_types


@dataclass
class Inner:
    """A record in a record."""

    count: int = 1


@dataclass
class Record:
    """One field of each kind."""

    word: str = ""
    whole: int = 1
    real: float = 1.0
    maybe: int | None = None
    sure: bool = True
    choice: Literal["a", "b"] = "a"
    rows: tuple[Inner, ...] = ()
    pair: tuple[float, str] = (0.0, "")
    either: Inner | str = ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("word", "x"),
        ("whole", -3),
        ("whole", 10**400),
        ("real", 3),
        ("real", -2.5),
        ("maybe", None),
        ("maybe", 7),
        ("sure", False),
        ("choice", "b"),
        ("rows", ()),
        ("rows", (Inner(), Inner())),
        ("pair", (1.0, "x")),
        ("either", Inner()),
        ("either", "x"),
    ],
)
def test_a_value_of_the_type_of_its_field_is_taken(name: str, value: object) -> None:
    check_types(Record, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("word", 3),
        ("word", None),
        ("whole", 3.0),
        ("whole", True),
        ("whole", "3"),
        ("real", float("nan")),
        ("real", float("-inf")),
        ("real", True),
        ("real", [1.0]),
        ("maybe", "7"),
        ("maybe", False),
        ("sure", 1),
        ("choice", "c"),
        ("choice", None),
        ("rows", [Inner()]),
        ("rows", (Inner(), 3)),
        ("pair", (1.0,)),
        ("pair", (1.0, "x", "x")),
        ("pair", ("x", 1.0)),
        ("either", 3),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be of type") as caught:
        check_types(Record, {name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["other", "", 3, None])
def test_what_is_no_field_is_refused(name: Any) -> None:
    with pytest.raises(ParameterError, match=r"one of .*either.*word"):
        check_types(Record, {name: 1})
