"""Dataclasses as plain JSON and back, and what a wrong value is told."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.architecture import ModelShape, preset, presets
from specmodel.errors import ParameterError
from specmodel.records import from_record, to_record


@dataclass(frozen=True)
class Inner:
    """A record in a record."""

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ParameterError("count", self.count, "at least 0")


@dataclass(frozen=True)
class Other:
    """Another one that may stand in its place."""

    name: str


@dataclass(frozen=True)
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
    either: Inner | Other = field(default_factory=Inner)
    mixed: Inner | str = ""
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)
    never: frozenset[str] = frozenset()  # empty in what is written
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("word", "x", "x"),
        ("whole", -3, -3),
        ("whole", 10**400, 10**400),
        ("real", 3, 3.0),
        ("real", -2.5, -2.5),
        ("maybe", None, None),
        ("maybe", 7, 7),
        ("sure", False, False),
        ("choice", "b", "b"),
        ("rows", [], ()),
        ("rows", [{}, {"count": 2}], (Inner(), Inner(2))),
        ("pair", [1.0, "x"], (1.0, "x")),
        ("either", {"kind": "Inner", "count": 3}, Inner(3)),
        ("either", {"kind": "Other", "name": "x"}, Other("x")),
        ("mixed", {"count": 3}, Inner(3)),
        ("mixed", "x", "x"),
        ("ends", {"a": [1, 2]}, {"a": (1.0, 2.0)}),
        ("plain", {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
)
def test_a_value_of_the_type_of_its_field_is_taken_and_given_back(
    name: str, value: object, found: object
) -> None:
    record = from_record(Record, {name: value})
    assert getattr(record, name) == found
    again = json.loads(json.dumps(to_record(record), allow_nan=False))
    assert getattr(from_record(Record, again), name) == found


def test_what_holds_nothing_by_default_is_left_out_and_every_other_field_is_written() -> None:
    assert to_record(Record()) == {
        "whole": 1,
        "real": 1.0,
        "sure": True,
        "choice": "a",
        "pair": [0.0, ""],
        "either": {"kind": "Inner", "count": 1},
    }
    assert to_record(Record(sure=False, whole=0, pair=(0.5, "")))["sure"] is False


def test_arrays_are_lists_and_nan_is_null() -> None:
    numbers = np.array([[1.5, np.nan], [np.nan, 4.0]])
    record = to_record(Record(numbers=numbers, real=float("nan")))
    assert record["numbers"] == [[1.5, None], [None, 4.0]]
    assert record["real"] is None
    again = from_record(Record, record)
    np.testing.assert_array_equal(again.numbers, numbers)
    assert np.isnan(again.real)


def test_every_number_comes_back_as_it_was() -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1e-9
    text = json.dumps(to_record(Record(numbers=numbers)))
    np.testing.assert_array_equal(from_record(Record, json.loads(text)).numbers, numbers)


@pytest.mark.parametrize("name", presets())
def test_every_packaged_shape_comes_back(name: str) -> None:
    shape = preset(name)
    assert from_record(ModelShape, json.loads(json.dumps(to_record(shape)))) == shape


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"word": 3}, "word must be a text, got 3"),
        ({"word": None}, "word must be a text"),
        ({"whole": 3.0}, "whole must be a whole number"),
        ({"whole": True}, "whole must be a whole number"),
        ({"whole": "3"}, "whole must be a whole number"),
        ({"real": float("inf")}, "real must be a number"),
        ({"real": 10**400}, "real must be a number"),
        ({"real": True}, "real must be a number"),
        ({"real": [1.0]}, "real must be a number"),
        ({"maybe": "7"}, "maybe must be a whole number"),
        ({"maybe": False}, "maybe must be a whole number"),
        ({"sure": 1}, "sure must be true or false"),
        ({"choice": "c"}, "choice must be one of 'a', 'b'"),
        ({"choice": None}, "choice must be one of 'a', 'b'"),
        ({"rows": 3}, "rows must be a list"),
        ({"rows": [{}, 3]}, r"rows\[1\] must be an object with fields"),
        ({"rows": [{"count": "x"}]}, r"rows\[0\]\.count must be a whole number"),
        ({"rows": [{}, {"count": -1}]}, r"rows\[1\]\.count must be at least 0, got -1"),
        ({"rows": [{"other": 1}]}, r"rows\[0\]\.other must be one of count, got no such field"),
        ({"pair": [1.0]}, "pair must be a list"),
        ({"pair": ["x", 1.0]}, r"pair\[0\] must be a number"),
        ({"either": {"count": 3}}, r"either\.kind must be one of Inner, Other"),
        ({"either": {"kind": "os.system"}}, r"either\.kind must be one of Inner, Other"),
        ({"either": {"kind": "Other"}}, r"either\.name must be given, got nothing"),
        ({"either": 3}, "either must be an object"),
        ({"ends": {"a": [1, None, 2]}}, r"ends\.a must be a list"),
        ({"ends": []}, "ends must be an object"),
        ({"numbers": 3}, "numbers must be an array of numbers"),
        ({"numbers": [1, "2"]}, r"numbers\[1\] must be a number"),
        ({"numbers": [1, 2, 3, [4]]}, "numbers must be an array of numbers"),
        ({"numbers": [[1], [2, "x"]]}, r"numbers\[1\]\[1\] must be a number"),
        ({"numbers": [[1], [float("inf")]]}, r"numbers\[1\]\[0\] must be a number"),
        ({"": 1}, "must be one of word"),
        ({"other": 1}, "other must be one of word"),
        ([], "the record must be an object with fields"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(record: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        from_record(Record, record)
    assert "\n" not in str(caught.value)
