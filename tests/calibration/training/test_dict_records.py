import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.training.lines import (
    MOST_DEPTHS,
    Numbers,
    depths_of,
    dictionaries,
    finest,
    has_open_dictionary,
    list_numbers,
    numbers_of,
)
from calibration.training.records import PRINTED_NAN

OUTER = "'a': 1, 'b': ''             , 'e': 3"
KEYS = st.text("abcdefgh_/0123456789", min_size=1, max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(KEYS, st.one_of(NUMBERS, st.lists(NUMBERS, max_size=5)), max_size=8))
def test_what_python_prints_reads_back(numbers: dict[str, float | list[float]]) -> None:
    expected = {k: tuple(v) if isinstance(v, list) else v for k, v in numbers.items()}
    assert dict(numbers_of(repr(numbers)[1:-1])) == expected


@given(st.dictionaries(KEYS, NUMBERS, max_size=8), st.sampled_from(["nan", "inf", "-inf"]))
def test_bare_nan_and_infinity_do_not_hide_the_others(numbers: dict[str, float], bare: str) -> None:
    found = numbers_of(repr(numbers)[1:-1] + f", 'LOSS': {bare}, 'LAST': 1.5")
    assert dict(found) == numbers | {"LOSS": PRINTED_NAN, "LAST": 1.5}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("'a': None, 'b': 0.5", {"b": 0.5}),
        ("'a': True, 'b': 0.5", {"b": 0.5}),
        ("'a': 'text', 'b': 2", {"b": 2.0}),
        ("'a': np.float64(0.5), 'b': tensor(nan)", {"a": 0.5, "b": PRINTED_NAN}),
        ("'a': 1e999, 'b': 1", {"a": PRINTED_NAN, "b": 1.0}),
        ("'a': NaN, 'b': -Infinity", {"a": PRINTED_NAN, "b": PRINTED_NAN}),
        ("'a': [0.5, nan, None]", {"a": (0.5, PRINTED_NAN)}),
        ("'a': 0.5.6, 'b': 1", {"b": 1.0}),
        ("'a': " + "9" * 6000, {}),
        ("", {}),
    ],
)
def test_values_that_are_no_json(body: str, expected: dict[str, object]) -> None:
    assert dict(numbers_of(body)) == expected


def test_json_reads_too() -> None:
    assert dict(numbers_of(json.dumps({"a": 0.5, "b": [1, 2]})[1:-1])) == {
        "a": 0.5,
        "b": (1.0, 2.0),
    }


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("{'a': 1}", ["'a': 1"]),
        ("x {'a': 1} y {'b': 2} z", ["'a': 1", "'b': 2"]),
        ("{'a': {'b': 2}", ["'b': 2"]),
        ("{'a': 1, 'b': {'c': {'d': 2}}, 'e': 3}", ["'c': ''      ", "'d': 2", OUTER]),
        ("}{'a': 1", []),
        ("", []),
    ],
)
def test_only_what_is_closed_is_a_dictionary(text: str, bodies: list[str]) -> None:
    assert sorted(body for _, body in dictionaries(text)) == sorted(bodies)


def test_a_dictionary_inside_another_hides_nothing_of_it() -> None:
    text = "step 5: {'acc_0': 0.5, 'memory': {'peak': 3}, 'loss': 2.0}"
    found = dict(dictionaries(text))
    assert dict(numbers_of(found[8])) == {"acc_0": 0.5, "loss": 2.0}
    assert dict(numbers_of(found[text.index("{'peak")])) == {"peak": 3.0}
    assert not has_open_dictionary(text)
    assert has_open_dictionary(text[:-1])


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("{'a': 1}", False),
        ("{'a': 1} {'b': 2}", False),
        ("{'a': 1} {'b': 2", True),
        ("{'a': 1 {'b': 2}", True),
        ("{a}", False),
        ("no", False),
    ],
)
def test_a_dictionary_without_its_end_is_seen(text: str, *, is_open: bool) -> None:
    assert has_open_dictionary(text) is is_open


def test_depths_end_where_a_number_lacks() -> None:
    numbers: Numbers = {"acc_0": 0.6, "acc_1": (0.5,), "acc_2": 0.4}
    assert depths_of(numbers, "acc_{}") == (0.6,)
    assert depths_of(numbers, "acc_{}", first=2) == (0.4,)


def test_depths_have_a_limit() -> None:
    many = {f"acc_{depth}": 0.5 for depth in range(10 * MOST_DEPTHS)}
    assert len(depths_of(many, "acc_{}")) == MOST_DEPTHS
    assert len(list_numbers("0.5, " * 10 * MOST_DEPTHS)) == MOST_DEPTHS


@pytest.mark.parametrize(
    ("accuracies", "half"),
    [
        ((0.64, 0.6), 0.005),
        ((0.5, 0.078958), 0.0000005),
        ((0.0, 1.0, PRINTED_NAN), None),
        ((), None),
    ],
)
def test_the_finest_number_says_how_all_were_rounded(
    accuracies: tuple[float, ...], half: float | None
) -> None:
    assert finest(accuracies) == half
