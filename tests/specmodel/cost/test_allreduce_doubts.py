"""What speaks against a measured all-reduce: outliers, falling times, sizes outside."""

import numpy as np
import pytest

from specmodel.cost.allreduce import AllReduceCurve, curve_doubts, outside_doubt, size_words

SIZES = 8192 * 2.0 ** np.arange(11)  # 8 KiB to 8 MiB
TIMES = (12 + 32 * SIZES / 2**20) * 1e-6


def curve_with(size: float, time_us: float) -> AllReduceCurve:
    return AllReduceCurve.from_points(SIZES, np.where(size == SIZES, time_us * 1e-6, TIMES))


def test_a_law_is_not_doubted() -> None:
    assert curve_doubts(AllReduceCurve.from_points(SIZES, TIMES)) == ()


@pytest.mark.parametrize(
    ("size", "time_us", "right"),
    [
        (2 * 2**20, 400, "2 MiB took 400 µs where the other sizes give 76 µs"),
        (65536, 2, "64 KiB took 2 µs where the other sizes give 14 µs"),
        (8 * 2**20, 3000, "8 MiB took 3000 µs where the other sizes give 268 µs"),
        (8192, 300, "8 KiB took 300 µs"),
    ],
)
def test_one_time_that_the_others_contradict_is_named(
    size: float, time_us: float, right: str
) -> None:
    (said,) = curve_doubts(curve_with(size, time_us))
    assert said.startswith(right)


def test_times_that_fall_are_named() -> None:
    curve = AllReduceCurve.from_points(
        [65536, 131072, 262144, 524288], np.array([90, 70, 55, 50]) * 1e-6
    )
    (said,) = curve_doubts(curve)
    assert said.startswith("the time falls from 90 µs at 64 KiB to 50 µs at 512 KiB")


def test_a_switch_of_protocol_is_no_outlier() -> None:
    assert curve_doubts(AllReduceCurve.from_points(SIZES, TIMES + 20e-6 * (SIZES > 2e5))) == ()


def test_sizes_far_outside_are_named_with_what_is_done() -> None:
    curve = AllReduceCurve.from_points([4e6, 8e6, 16e6], [2e-3, 4e-3, 8e-3])
    said = outside_doubt(curve, 8192, 32768)
    assert "messages of 8 KiB to 32 KiB are outside the measured 3.81 MiB to 15.3 MiB" in said
    assert "held at 2000 µs" in said
    assert "the last slope continues" in outside_doubt(curve, 4e6, 64e6)
    assert outside_doubt(curve, 3e6, 20e6) == ""


@pytest.mark.parametrize(("size", "word"), [(512, "512 B"), (65536, "64 KiB"), (2**21, "2 MiB")])
def test_sizes_are_read_in_their_unit(size: float, word: str) -> None:
    assert size_words(size) == word
