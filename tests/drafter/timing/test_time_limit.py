"""A load is begun only if it is likely to end in time."""

from functools import partial

from drafter.timing.works import StepLoad, TimeLimit


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def move(self, by_s: float) -> None:
        self.now += by_s


def limit_after(clock: Clock, *loads: tuple[StepLoad, float, float], until_s: float) -> TimeLimit:
    """A limit that has seen loads: what a step reads, and the seconds that the load took."""
    limit = TimeLimit(until_s, clock)
    for load, step_bytes, took_s in loads:
        limit.timed(load, step_bytes, partial(clock.move, took_s))
    return limit


CHAIN, TREE = StepLoad(1, 2048, 1), StepLoad(1, 2048, 4)


def test_the_first_load_is_begun_even_late_and_no_other_one_is() -> None:
    clock = Clock()
    clock.now = 100.0
    limit = TimeLimit(50.0, clock)
    assert limit.allows(CHAIN, 1e9)
    limit = limit_after(clock, (CHAIN, 1e9, 1.0), until_s=50.0)
    assert not limit.allows(CHAIN, 1.0)


def test_without_a_limit_everything_is_begun() -> None:
    limit = TimeLimit(None, Clock())
    limit.timed(CHAIN, 1e9, lambda: None)
    assert limit.allows(CHAIN, 1e30)


def test_a_load_is_expected_to_take_as_long_for_a_byte_as_the_fastest_before() -> None:
    # the first load compiles: 60 s; the second takes 10 s for as much
    limit = limit_after(Clock(), (CHAIN, 1e9, 60.0), (CHAIN, 1e9, 10.0), until_s=100.0)
    assert limit.allows(CHAIN, 2.9e9)
    assert not limit.allows(CHAIN, 3.1e9)


def test_trees_are_expected_to_take_what_trees_took() -> None:
    limit = limit_after(Clock(), (CHAIN, 1e9, 10.0), (TREE, 1e9, 40.0), until_s=80.0)
    assert limit.allows(CHAIN, 2.9e9)
    assert not limit.allows(TREE, 1e9)
    # branches that were never measured: at least as long as the fastest of the others
    assert limit.allows(StepLoad(1, 2048, 8), 2.9e9)
