"""Numbers read many at a time are those that Python reads."""

import random

import numpy as np
import pytest

from calibration.training.lines import PrintedNumbers

FORMS = ("{:.3f}", "{:.2e}", "{!r}", "{:.0f}", "{:.15f}", "{:.12f}")


def printed(chance: random.Random) -> bytes:
    number = chance.uniform(-1, 1) * 10 ** chance.randint(-6, 6)
    return chance.choice(FORMS).format(abs(number) if chance.random() < 0.9 else number).encode()


@pytest.mark.parametrize("num_rows", [1, 200])
def test_numbers_of_many_forms_are_those_of_python(num_rows: int) -> None:
    chance = random.Random(num_rows)  # noqa: S311 - the same in every run
    for _ in range(200):
        rows = [[printed(chance) for _ in range(5)] for _ in range(num_rows)]
        expected = np.array([[float(text) for text in row] for row in rows])
        assert np.array_equal(PrintedNumbers().table(rows), expected.T)
        column = [row[0] for row in rows]
        assert np.array_equal(PrintedNumbers().table([[one] for one in column])[0], expected[:, 0])


@pytest.mark.parametrize("text", [b"1.2.3", b".", b"-", b"1e", b"..5", b"e5", b"1-2"])
def test_what_is_no_number_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        PrintedNumbers().table([[b"0.5", text], [b"0.5", b"1.0"]])


@pytest.mark.parametrize(
    "text", [b"5.", b".5", b"0005", b"123456789012345678", b"0.1234567890123456"]
)
def test_numbers_at_the_edge_are_exact(text: bytes) -> None:
    assert PrintedNumbers().table([[text, b"0.25"]]).tolist() == [[float(text)], [0.25]]
