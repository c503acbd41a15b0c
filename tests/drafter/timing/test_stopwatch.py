"""Timing in turns, on a fake clock: order, warm-up, and what is refused."""

from typing import Any

import pytest

from drafter.timing.stopwatch import DryStopwatch, MeasurementError, SamplePlan, Work, timed
from specmodel.measurement import Clocks

WORKS = [Work("one", lambda: None), Work("other", lambda: None)]
TIMES = {"one": 1e-4, "other": 3e-4}
PLAN = SamplePlan(replays=5, samples=3, warm_up_s=0.0)
FAST, SLOW = (Clocks(multiprocessor_hz=hz, memory_hz=3e9) for hz in (2.0e9, 1.8e9))


def test_works_take_turns_in_warm_up_and_in_both_runs(fake: Any) -> None:
    watch = fake(time_s=lambda work, _: TIMES[work.name])
    found = timed("pair", WORKS, watch, PLAN)
    assert watch.seen == ["one", "other"] * 7  # once to warm up, three times in each of two runs
    assert found.samples["other"].first == (3e-4,) * 3
    assert found.samples["other"].second == (3e-4,) * 3
    assert found.nodes == {"one": 12, "other": 12}


def test_the_warm_up_lasts_as_long_as_was_asked_for(fake: Any) -> None:
    watch = fake()  # every sample takes 0.3 s of the host
    timed("pair", WORKS, watch, SamplePlan(replays=5, samples=1, warm_up_s=1.0))
    warm = len(watch.seen) - 2 * 2
    assert warm == 4


def test_a_drift_of_the_device_meets_all_works_alike(fake: Any) -> None:
    watch = fake(time_s=lambda work, number: TIMES[work.name] * (1 + 0.01 * number))
    found = timed("pair", WORKS, watch, PLAN)
    one, other = (found.samples[name].median_s for name in ("one", "other"))
    assert other / one == pytest.approx(3.0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_clock_that_moves_between_runs_is_refused(fake: Any, place: int) -> None:
    readings = [FAST, FAST, FAST]
    readings[place] = SLOW
    with pytest.raises(MeasurementError, match="pair: refused: the multiprocessor clock"):
        timed("pair", WORKS, fake(readings=iter(readings)), PLAN)


def test_clocks_that_cannot_be_read_are_left_out(fake: Any) -> None:
    assert timed("pair", WORKS, fake(readings=iter([None] * 3)), PLAN).clocks == ()


def test_a_compilation_while_works_are_timed_is_refused(fake: Any) -> None:
    with pytest.raises(MeasurementError, match="1 kernel was compiled inside"):
        timed("pair", WORKS, fake(compiled=iter([4, 5])), PLAN)


def test_a_dry_stopwatch_shows_the_processor_time_of_what_it_ran() -> None:
    runs: list[str] = []

    def busy(count: int) -> None:
        runs.append("one")
        sum(range(count))

    works = [Work("short", lambda: busy(10)), Work("long", lambda: busy(300_000))]
    watch = DryStopwatch()
    found = timed("dry", works, watch, SamplePlan(replays=1, samples=2, warm_up_s=0.0))
    assert len(runs) == 2 * (1 + 2 * 2)
    assert found.samples["long"].median_s > 10 * found.samples["short"].median_s
    assert (watch.kind, found.clocks) == ("dry", ())
