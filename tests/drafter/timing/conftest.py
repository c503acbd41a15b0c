"""A stopwatch whose clock, clocks and compilations are written by the test."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import pytest

from drafter.timing.stopwatch import Work
from specmodel.measurement import Clocks

STEADY = Clocks(multiprocessor_hz=1.98e9, memory_hz=3.2e9)


class FakeWork(NamedTuple):
    """A work that never runs."""

    name: str

    @property
    def num_nodes(self) -> int | None:
        return 12

    def replay(self) -> None:
        """Nothing to replay."""


@dataclass
class FakeStopwatch:
    """Times by name and number of the sample; nothing is run."""

    time_s: Callable[[FakeWork, int], float] = lambda _, __: 1e-4
    readings: Iterator[Clocks | None] = field(default_factory=lambda: repeat(STEADY))
    compiled: Iterator[int] = field(default_factory=lambda: repeat(0))
    cache_bytes: int | None = 1000
    kind: str = "measured"
    name: str = "a fake"
    sm: int = 90
    uuid: str = "GPU-0"
    memory_bytes: int = 10**9
    seen: list[str] = field(default_factory=list)
    host: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> "FakeStopwatch":
        return self

    @property
    def compilations(self) -> int:
        return next(self.compiled)

    def driver(self) -> str:
        return "1.0"

    def state(self) -> str:
        return "ECC on"

    def clocks(self) -> Clocks | None:
        return next(self.readings)

    def free_bytes(self) -> int:
        return self.memory_bytes

    def prepared(self, work: Work) -> FakeWork:
        return FakeWork(work.name)

    def sample_s(self, prepared: FakeWork, replays: int) -> float:
        assert replays > 0
        self.seen.append(prepared.name)
        self.host += 0.3
        number = self.counts.get(prepared.name, 0)
        self.counts[prepared.name] = number + 1
        return self.time_s(prepared, number)

    def host_s(self) -> float:
        return self.host


@pytest.fixture
def fake() -> type[FakeStopwatch]:
    """Maker of fake stopwatches."""
    return FakeStopwatch
