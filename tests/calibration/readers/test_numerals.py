"""Numbers as people write them."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.numerals import (
    NumeralError,
    is_missing,
    parse_list,
    parse_number,
    uses_decimal_comma,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *(("2.1", 2.1), (" 90 ", 90.0), ("+3", 3.0), (".5", 0.5), ("5.", 5.0), ("1.5e3", 1500.0)),
        *(("3,129.5", 3129.5), ("12,345,678", 12345678.0), ("1,234", 1234.0), ("1 234.5", 1234.5)),
        *(
            ("\N{MINUS SIGN}4", -4.0),
            ("76%", 0.76),
            ("76.0 %", 0.76),
            ("12\N{NO-BREAK SPACE}345", 12345),
        ),
    ],
)
def test_point_is_the_decimal_sign(cell: str, value: float) -> None:
    assert parse_number(cell) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *(("2,59", 2.59), ("2.526,8", 2526.8), ("1.366", 1366.0), ("1.234.567,5", 1234567.5)),
        *(
            ("0,502", 0.502),
            ("184", 184.0),
            ("76,0%", 0.76),
            ("1 234,5", 1234.5),
            ("1,5e3", 1500.0),
        ),
    ],
)
def test_comma_is_the_decimal_sign_where_it_is_said(cell: str, value: float) -> None:
    assert parse_number(cell, decimal_comma=True) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "cell",
    [
        *(
            "fast",
            "about 2",
            "1.2.3",
            "2,59",
            "12,34,567",
            "1_000",
            "0x10",
            "1 2",
            "--3",
            "1e",
            "%",
        ),
        *("\N{ARABIC-INDIC DIGIT THREE}", "2.1 tok/s", "=A1", "#DIV/0!", "1,2345", ",5", "3..1"),
    ],
)
def test_text_is_no_number(cell: str) -> None:
    with pytest.raises(NumeralError) as error:
        parse_number(cell)
    assert error.value.code == "not_a_number"
    assert repr(cell) in error.value.message


@pytest.mark.parametrize("cell", ["2.59", "0.7", "1.36.6", "2,5,9", "1,234.5"])
def test_point_groups_nothing_else_where_the_comma_is_decimal(cell: str) -> None:
    with pytest.raises(NumeralError) as error:
        parse_number(cell, decimal_comma=True)
    assert error.value.code == "not_a_number"


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", "1e999", "-1e400"])
def test_what_is_not_finite_is_refused(cell: str) -> None:
    with pytest.raises(NumeralError) as error:
        parse_number(cell)
    assert error.value.code == "not_finite"


def test_a_misplaced_decimal_sign_is_explained() -> None:
    with pytest.raises(NumeralError, match="decimal comma"):
        parse_number("2,59")
    with pytest.raises(NumeralError, match="decimal point"):
        parse_number("2.59", decimal_comma=True)


@given(value=FINITE)
def test_every_number_reads_back(value: float) -> None:
    assert parse_number(repr(value)) == value
    assert parse_number(repr(value).replace(".", ","), decimal_comma=True) == value


@given(value=st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**12))
def test_grouped_numbers_read_back(value: float) -> None:
    written = f"{value:,}"
    swapped = written.translate(str.maketrans(",.", ".,"))
    assert parse_number(written) == float(value)
    assert parse_number(swapped, decimal_comma=True) == float(value)


@given(cell=st.text(max_size=20), decimal_comma=st.booleans())
def test_any_text_is_a_finite_number_or_refused(cell: str, decimal_comma: bool) -> None:
    with contextlib.suppress(NumeralError):
        assert math.isfinite(parse_number(cell, decimal_comma=decimal_comma))
    with contextlib.suppress(NumeralError):
        assert all(map(math.isfinite, parse_list(cell, decimal_comma=decimal_comma)))


@pytest.mark.parametrize("cell", ["", " ", "-", "n/a", "N/A", "NA", "\N{EN DASH}"])
def test_missing_cells(cell: str) -> None:
    assert is_missing(cell)


@pytest.mark.parametrize("cell", ["nan", "0", "none", "inf", "--"])
def test_results_gone_wrong_are_not_missing(cell: str) -> None:
    assert not is_missing(cell)


@pytest.mark.parametrize(
    "cell", ["0.7;0.5", "70%;50%", "[0.7, 0.5]", "0.7; 0.5;", "(0.7;0.5)", "0.7,0.5"]
)
def test_lists(cell: str) -> None:
    assert parse_list(cell) == pytest.approx((0.7, 0.5))


def test_a_hole_in_a_list_is_no_number() -> None:
    with pytest.raises(NumeralError):
        parse_list("0.7;;0.5")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2,59"], True),
        (["0,502"], True),
        (["2.526,8"], True),
        (["2,593"], True),  # can be either, and nothing speaks for the point
        (["2,593", "18.84"], False),
        (["2,593", "1,234.5"], False),
        (["12,345,678"], False),
        (["2,59", "1,234"], True),
        (["0,76;0,502"], True),
        (["1.366", "2"], False),
        (["a, b", "x"], False),
        ([], False),
    ],
)
def test_the_decimal_sign_of_a_file(cells: list[str], expected: bool) -> None:
    assert uses_decimal_comma(cells) is expected
