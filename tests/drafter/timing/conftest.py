"""A stopwatch whose clock, clocks and compilations are written by the test."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import pytest

from drafter.timing.stopwatch import Described, Prepared, Work
from specmodel.measurement import Clocks

STEADY = Clocks(multiprocessor_hz=1.98e9, memory_hz=3.2e9)


class FakeWork(NamedTuple):
    """A work that never runs."""

    name: str
    made_up_s: float

    @property
    def num_nodes(self) -> int | None:
        return 12

    def replay(self) -> None:
        """Nothing to replay."""


@dataclass
class FakeStopwatch:
    """Times by name and number of the sample; nothing is run."""

    time_s: Callable[[FakeWork, int], float] = lambda work, _: work.made_up_s
    readings: Iterator[Clocks | None] = field(default_factory=lambda: repeat(STEADY))
    compiled: Iterator[int] = field(default_factory=lambda: repeat(0))
    cache_bytes: int | None = 1000
    kind: str = "measured"
    memory_bytes: int = 10**9
    seen: list[str] = field(default_factory=list)
    host: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    def described(self) -> Described:
        return Described("a fake", "GPU-0", "1.0", 90, "ECC on")

    def free_bytes(self) -> int:
        return self.memory_bytes

    def prepared(self, work: Work) -> Prepared:
        return FakeWork(work.name, work.made_up_s)

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        assert isinstance(prepared, FakeWork)
        assert replays > 0
        self.seen.append(prepared.name)
        self.host += 0.3
        number = self.counts.get(prepared.name, 0)
        self.counts[prepared.name] = number + 1
        return self.time_s(prepared, number)

    def host_s(self) -> float:
        return self.host

    def clocks(self) -> Clocks | None:
        return next(self.readings)

    def compilations(self) -> int:
        return next(self.compiled)


@pytest.fixture
def fake() -> type[FakeStopwatch]:
    """Maker of fake stopwatches."""
    return FakeStopwatch
