"""Each reason for a refusal, on synthetic readings: at the limit it is silent, past it it is not."""

import math
from typing import Any

import pytest

from drafter.timing.stopwatch import (
    DryStopwatch,
    MeasurementError,
    clock_change,
    clocks_moved,
    off_line,
    require,
    too_far,
)
from specmodel.errors import SpecModelError
from specmodel.measurement import Clocks


def clocks(multiprocessor_mhz: float, memory_mhz: float = 3200.0) -> Clocks:
    return Clocks(multiprocessor_hz=multiprocessor_mhz * 1e6, memory_hz=memory_mhz * 1e6)


def test_clocks_that_moved_by_less_than_three_percent_pass() -> None:
    assert clocks_moved([clocks(1980), clocks(1925), clocks(1980)]) == ""


@pytest.mark.parametrize(
    ("readings", "name"),
    [
        ([clocks(1980), clocks(1900)], "multiprocessor"),
        ([clocks(345), clocks(1980)], "multiprocessor"),
        ([clocks(1980), clocks(1980), clocks(1700), clocks(1980)], "multiprocessor"),
        ([clocks(1980), clocks(1980, 1600)], "memory"),
    ],
)
def test_clocks_that_moved_by_more_are_refused_by_name(readings: list[Clocks], name: str) -> None:
    assert clocks_moved(readings).startswith(f"the {name} clock moved by")


def test_nothing_is_said_of_clocks_that_could_not_be_read() -> None:
    assert clock_change([]) == {}
    assert clocks_moved([]) == clocks_moved([clocks(1980)]) == ""


def test_a_clock_change_is_relative_to_the_fastest_reading() -> None:
    change = clock_change([clocks(2000), clocks(1900), clocks(1950)])
    assert change == {"multiprocessor": pytest.approx(0.05), "memory": 0.0}


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
def test_runs_that_repeat_pass(spread: float) -> None:
    assert too_far(spread) == ""


@pytest.mark.parametrize("spread", [0.051, 2.0, math.nan, math.inf])
def test_runs_that_do_not_repeat_are_refused(spread: float) -> None:
    assert too_far(spread).startswith("two identical runs differ by")


def test_drafts_that_rise_by_a_step_a_step_pass() -> None:
    assert off_line({depth: 230e-6 + 200e-6 * (depth - 1) for depth in (1, 3, 5, 7)}) == ""


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({1: 3e-4, 3: 3e-4, 5: 3e-4 - 1e-9}, "not positive"),
        ({1: 3e-4, 3: 9e-4, 5: 10e-4, 7: 12e-4}, "off a line"),
    ],
)
def test_drafts_that_do_not_are_refused(times: dict[int, float], words: str) -> None:
    assert words in off_line(times)


def test_the_first_reason_is_one_line_of_this_project_and_a_rehearsal_goes_on(fake: Any) -> None:
    require(fake(), "chain", "", "")
    with pytest.raises(MeasurementError, match=r"\Achain: refused: too wide\Z") as caught:
        require(fake(), "chain", "", "too wide", "too long")
    assert isinstance(caught.value, SpecModelError)
    require(DryStopwatch(), "chain", "too wide")
