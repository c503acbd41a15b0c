"""Numbers as trainers print them; training_logs.md section 3, step 7."""

import math

import numpy as np
import pytest

from calibration.training.lines import PrintedNumbers, half_unit, printed_number
from calibration.training.records import PRINTED_NAN


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.604", 0.604),
        ("9.30e-04", 0.00093),
        ("1.23e+04", 12300.0),
        ("0.00e+00", 0.0),
        ("-2.5", -2.5),
        ("7", 7.0),
        (" 58.10% ", 0.581),
    ],
)
def test_a_printed_number_is_read(text: str, number: float) -> None:
    assert printed_number(text) == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN", "Infinity", "1e999"])
def test_what_is_not_finite_is_marked(text: str) -> None:
    assert printed_number(text) == PRINTED_NAN


@pytest.mark.parametrize("text", ["", "None", "1.2.3", "0x10", "1_000", "e5", "5%%", "9" * 50, "٣"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert printed_number(text) is None


def test_half_a_unit_is_of_the_last_printed_digit() -> None:
    found = [half_unit(text) for text in ("0.61", "0.610", "5.81e-04", "61.0%", "12")]
    assert found == pytest.approx([0.005, 0.0005, 5e-7, 0.0005, 0.5], rel=1e-12)
    assert half_unit("nan") is None


def test_numbers_of_a_column_are_the_doubles_that_python_reads() -> None:
    generator = np.random.default_rng(4)
    for decimals in (0, 1, 3, 6, 9):
        texts = [f"{number:.{decimals}f}".encode() for number in generator.random(500) * 9]
        assert PrintedNumbers().table([[one] for one in texts])[0].tolist() == [
            float(text) for text in texts
        ]
    mixed = [b"0.604", b"9.30e-04", b"-1", b"12.5", b"1.000"]
    assert PrintedNumbers().table([[one] for one in mixed])[0].tolist() == [
        float(text) for text in mixed
    ]


@pytest.mark.parametrize(
    "texts",
    [
        [b"0.60", b"40.604"],
        [b"0.604", b"1.2.3"],
        [b"0.604", b"00604"],
        [b"0.604", b"1.60", b"10.604"],
    ],
)
def test_numbers_of_unequal_form_are_not_mixed_up(texts: list[bytes]) -> None:
    try:
        expected = [float(text) for text in texts]
    except ValueError:
        with pytest.raises(ValueError, match="could not convert"):
            PrintedNumbers().table([[one] for one in texts])[0]
    else:
        assert PrintedNumbers().table([[one] for one in texts])[0].tolist() == expected


def test_what_was_printed_is_kept_in_bounded_memory() -> None:
    numbers = PrintedNumbers()
    texts = [f"{number}e-9".encode() for number in range(70_000)]
    assert math.isclose(numbers.table([[one] for one in texts])[0][-1], 69_999e-9)
    assert len(numbers) <= 1 << 16
