"""Counters between scrapes of one server."""

from pathlib import Path

from calibration.readers.prometheus_text import Moment, SeriesKey, windows


def moment(
    count: float, *, created: float = 1.0, time_s: float | None = None, depth: int = 3
) -> Moment:
    key: SeriesKey = ("n", "engine=0")
    return Moment(
        path=Path("s"),
        line=1,
        time_s=time_s,
        counts={key: count, ("n", "engine=1"): 1.0},
        created_s={key: created},
        shape=(depth,),
    )


def grown(*moments: Moment) -> list[float | None]:
    return [window.total("n") for window in windows(moments)]


def test_a_window_holds_the_growth_of_all_series_of_a_name() -> None:
    assert grown(moment(3.0), moment(8.0), moment(8.0)) == [5.0, 0.0]


def test_a_single_moment_is_the_life_of_the_server() -> None:
    (window,) = windows([moment(3.0)])
    assert window.earlier is None
    assert window.total("n") == 4.0
    assert window.total("other") is None


def test_a_falling_counter_is_a_restart() -> None:
    assert grown(moment(8.0), moment(3.0), moment(4.0)) == [None, 1.0]


def test_a_counter_that_was_created_again_is_a_restart_though_it_grew() -> None:
    assert grown(moment(3.0), moment(8.0, created=2.0)) == [None]


def test_a_server_of_another_depth_is_another_server() -> None:
    assert grown(moment(3.0), moment(8.0, depth=4)) == [None]


def test_time_passes_only_where_both_scrapes_have_one() -> None:
    times = [(1.0, 3.5), (None, 3.5), (1.0, None), (2.0, 2.0)]
    found = [
        next(iter(windows([moment(1, time_s=start), moment(2, time_s=end)]))).seconds
        for start, end in times
    ]
    assert found == [2.5, None, None, None]
