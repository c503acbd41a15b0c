"""Each reason for a refusal, on synthetic readings: at the limit it passes, past it it does not."""

import math

import pytest

from drafter.timing.refusals import (
    MeasurementRefusedError,
    check_clocks,
    check_cold,
    check_compilations,
    check_line,
    check_spread,
    clock_change,
)
from specmodel.errors import SpecModelError
from specmodel.measurement import Clocks

L2_BYTES = 50_000_000


def clocks(multiprocessor_mhz: float, memory_mhz: float = 3200.0) -> Clocks:
    return Clocks(multiprocessor_hz=multiprocessor_mhz * 1e6, memory_hz=memory_mhz * 1e6)


def test_clocks_that_moved_by_less_than_three_percent_pass() -> None:
    check_clocks("chain", [clocks(1980), clocks(1925), clocks(1980)])


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
    with pytest.raises(MeasurementRefusedError, match=f"the {name} clock moved by"):
        check_clocks("chain", readings)


def test_nothing_is_said_of_clocks_that_could_not_be_read() -> None:
    assert clock_change([]) == {}
    check_clocks("chain", [])
    check_clocks("chain", [clocks(1980)])


def test_a_clock_change_is_relative_to_the_fastest_reading() -> None:
    change = clock_change([clocks(2000), clocks(1900), clocks(1950)])
    assert change == {"multiprocessor": pytest.approx(0.05), "memory": 0.0}


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
def test_runs_that_repeat_pass(spread: float) -> None:
    check_spread("chain", spread)


@pytest.mark.parametrize("spread", [0.051, 2.0, math.nan, math.inf])
def test_runs_that_do_not_repeat_are_refused(spread: float) -> None:
    with pytest.raises(MeasurementRefusedError, match="two identical runs differ"):
        check_spread("chain", spread)


def test_a_compilation_inside_the_timed_region_is_refused() -> None:
    check_compilations("chain", 7, 7)
    with pytest.raises(MeasurementRefusedError, match="2 kernels were compiled inside the timed"):
        check_compilations("chain", 7, 9)


def test_times_with_weights_in_cache_are_refused() -> None:
    check_cold("chain", 4 * L2_BYTES, L2_BYTES)
    for flush_bytes in (0, L2_BYTES, 4 * L2_BYTES - 1):
        with pytest.raises(MeasurementRefusedError, match="hot cache only"):
            check_cold("chain", flush_bytes, L2_BYTES)


@pytest.mark.parametrize("unknown", [None, 0])
def test_a_cache_of_unknown_size_is_refused(unknown: int | None) -> None:
    with pytest.raises(MeasurementRefusedError, match="size of the device's cache is not known"):
        check_cold("chain", 1e9, unknown)


def test_drafts_that_rise_by_a_step_a_step_pass() -> None:
    check_line("chain", {depth: 230e-6 + 200e-6 * (depth - 1) for depth in (1, 3, 5, 7)})


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({1: 3e-4, 3: 3e-4, 5: 3e-4 - 1e-9}, "not positive"),
        ({1: 3e-4, 3: 9e-4, 5: 10e-4, 7: 12e-4}, "off a line"),
    ],
)
def test_drafts_that_do_not_are_refused(times: dict[int, float], words: str) -> None:
    with pytest.raises(MeasurementRefusedError, match=words):
        check_line("chain", times)


def test_a_refusal_is_one_line_of_this_project() -> None:
    error = MeasurementRefusedError("chain", "too wide")
    assert isinstance(error, SpecModelError)
    assert str(error) == "chain: refused: too wide"
