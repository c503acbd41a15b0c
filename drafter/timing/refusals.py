"""Samples of times, and the reasons for which a time is refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from specmodel.errors import ParameterError, SpecModelError
from specmodel.measurement import (
    Clocks,
    DraftRecord,
    DraftTiming,
    ExtendTiming,
    KernelTiming,
    StepTiming,
)
from specmodel.units import MICRO, PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Times of one work in two identical runs, between which other works ran.

    Medians, since a launch that was held up is no property of the work.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            times = getattr(self, name)
            if not times or not all(0.0 < time_s < np.inf for time_s in times):
                raise ParameterError(name, times, "positive times, at least one")

    @property
    def median_s(self) -> float:
        """Median of all, [s]."""
        return float(np.median(self.first + self.second))

    @property
    def run_medians_s(self) -> tuple[float, float]:
        """Median of each run, [s]."""
        return float(np.median(self.first)), float(np.median(self.second))

    @property
    def spread(self) -> float:
        """Relative difference of the two runs' medians, [-]."""
        return relative_difference(*self.run_medians_s)

    @property
    def scatter(self) -> float:
        """Distance between the 20th and the 80th percentile over the median, [-]."""
        low, high = np.percentile(self.first + self.second, (20, 80))
        return float((high - low) / self.median_s)

    @property
    def num_samples(self) -> int:
        """Number of samples, [-]."""
        return len(self.first) + len(self.second)


class Difference(NamedTuple):
    """Time of what one work does more than another."""

    time_s: float
    spread: float
    num_samples: int


def relative_difference(one: float, other: float) -> float:
    r"""Distance of two numbers over their mean.

    .. math:: \frac{|a - b|}{(|a| + |b|) / 2}
    """
    scale = (abs(one) + abs(other)) / 2
    return abs(one - other) / scale if scale else 0.0


def difference(whole: Samples, part: Samples) -> Difference:
    """Time of what `whole` does more than `part`.

    Launch of the graph and the flush cancel. drafter.md 20.
    """
    runs = [a - b for a, b in zip(whole.run_medians_s, part.run_medians_s, strict=True)]
    return Difference(
        time_s=whole.median_s - part.median_s,
        spread=relative_difference(*runs),
        num_samples=min(whole.num_samples, part.num_samples),
    )


class Line(NamedTuple):
    """A line through times of drafts over their number of steps."""

    slope_s: float
    start_s: float
    bend: float


def fitted_line(times_s: Mapping[int, float]) -> Line:
    r"""Least-squares line through times of drafts.

    .. math:: T_k = a + b\,(k - 1)

    A draft of one step is the extend pass alone, which drafts the first token.
    """
    if len(times_s) < 2:
        raise ParameterError("depths", sorted(times_s), "at least two")
    steps = np.array(sorted(times_s), dtype=np.float64) - 1.0
    times = np.array([times_s[depth] for depth in sorted(times_s)])
    slope, start = np.polyfit(steps, times, 1)
    off = float(np.abs(times - (start + slope * steps)).max())
    return Line(float(slope), float(start), off / float(slope) if slope > 0 else np.inf)


def step_difference(by_depth: Mapping[int, Samples]) -> Difference:
    """Time of one draft step: the slope over the number of steps.

    Flush, launch and extend pass are in every depth alike and cancel.
    """
    slopes = [
        fitted_line({depth: each.run_medians_s[run] for depth, each in by_depth.items()}).slope_s
        for run in (0, 1)
    ]
    whole = fitted_line({depth: each.median_s for depth, each in by_depth.items()})
    return Difference(
        time_s=whole.slope_s,
        spread=relative_difference(*slopes),
        num_samples=min(each.num_samples for each in by_depth.values()),
    )


MOST_CLOCK_CHANGE: Final = 3 * PERCENT
"""Relative change of a clock during a measurement, [-]. drafter.md 20."""

MOST_SPREAD: Final = 5 * PERCENT
"""Relative difference of two identical runs, and scatter within one, [-]. A judgement."""

MOST_BEND: Final = 25 * PERCENT
"""Distance of a draft's time from the line over its depths, in slopes, [-]. A judgement."""

LEAST_FLUSHES: Final = 4
"""Bytes that are read to flush a last-level cache, in sizes of that cache, [-]. drafter.md 20."""


class MeasurementRefusedError(SpecModelError, RuntimeError):
    """A measurement that would mislead; nothing is recorded from it."""

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}: refused: {reason}")


class MeasurementCutError(SpecModelError, RuntimeError):
    """A measurement that an error ended; what was measured before is kept."""

    def __init__(self, what: str, reason: str, record: DraftRecord) -> None:
        self.what, self.reason, self.record = what, reason, record
        super().__init__(f"{what}: ended by an error, the loads before it are kept: {reason}")


def clock_change(readings: Sequence[Clocks]) -> dict[str, float]:
    r"""Relative change of each clock over some readings.

    .. math:: \frac{\max f - \min f}{\max f}

    A device that was idle at one of the readings shows as a large change.
    """
    if len(readings) < 2:
        return {}
    by_name = {
        "multiprocessor": [each.multiprocessor_hz for each in readings],
        "memory": [each.memory_hz for each in readings],
    }
    return {name: (max(hz) - min(hz)) / max(hz) for name, hz in by_name.items()}


def check_clocks(what: str, readings: Sequence[Clocks]) -> None:
    r"""Refuse a measurement during which a clock moved.

    .. math:: \frac{\max f - \min f}{\max f} \le 0.03

    Clocks are read, never set.
    """
    for name, change in clock_change(readings).items():
        if change > MOST_CLOCK_CHANGE:
            raise MeasurementRefusedError(
                what,
                f"the {name} clock moved by {change / PERCENT:.1f} %, more than "
                f"{MOST_CLOCK_CHANGE / PERCENT:g} %; let the device warm up, cool it or leave it alone",
            )


def check_spread(what: str, spread: float, *, kind: str = "two identical runs differ") -> None:
    r"""Refuse a measurement that does not repeat.

    .. math:: s \le 0.05

    Differences that are claimed have to exceed the spread besides.
    """
    if not 0.0 <= spread <= MOST_SPREAD:
        raise MeasurementRefusedError(
            what,
            f"{kind} by {spread / PERCENT:.1f} %, more than {MOST_SPREAD / PERCENT:g} %; "
            "is anything else running on the device?",
        )


def check_compilations(what: str, before: int, after: int) -> None:
    """Refuse a measurement in which a kernel was compiled.

    Triton compiles at the first launch of a variant, which takes a second and not microseconds.
    """
    compiled = after - before
    if compiled:
        number = "1 kernel was" if compiled == 1 else f"{compiled} kernels were"
        raise MeasurementRefusedError(
            what, f"{number} compiled inside the timed region; run the work once before"
        )


def check_cold(what: str, flush_bytes: float, cache_bytes: float | None) -> None:
    r"""Refuse times of weights that may still lie in the last-level cache.

    .. math:: F \ge 4 L

    In serving a pass of the target model evicts the draft model before each draft. A hot time is reported
    beside a cold one, never alone.
    """
    if cache_bytes is None or cache_bytes <= 0:
        raise MeasurementRefusedError(what, "the size of the device's cache is not known")
    if flush_bytes < LEAST_FLUSHES * cache_bytes:
        raise MeasurementRefusedError(
            what,
            f"hot cache only: {flush_bytes:.3g} bytes were read between drafts, fewer than "
            f"{LEAST_FLUSHES} times the cache of {cache_bytes:.3g} bytes",
        )


def check_line(what: str, times_s: Mapping[int, float]) -> None:
    r"""Refuse times of drafts that do not rise by one step's time a step.

    .. math:: \max_k |T_k - (a + b k)| \le 0.25\, b, \qquad b > 0

    Every further step launches the same kernels on the same shapes, so anything but a line is noise.
    """
    line = fitted_line(times_s)
    if not line.slope_s > 0:
        raise MeasurementRefusedError(
            what, f"a further step takes {line.slope_s / MICRO:.3g} us, which is not positive"
        )
    if line.bend > MOST_BEND:
        raise MeasurementRefusedError(
            what,
            f"times of {', '.join(map(str, sorted(times_s)))} steps are off a line by "
            f"{line.bend / PERCENT:.0f} % of a step, more than {MOST_BEND / PERCENT:g} %",
        )


@dataclass
class Findings:
    """Rows and notes of a record that is being measured."""

    steps: list[StepTiming] = field(default_factory=list)
    extends: list[ExtendTiming] = field(default_factory=list)
    drafts: list[DraftTiming] = field(default_factory=list)
    kernels: tuple[KernelTiming, ...] = ()
    kernels_of: str = ""
    clocks: list[Clocks] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = lambda _: None

    @property
    def are_recordable(self) -> bool:
        """Whether they make a record: it needs a step and an extend pass."""
        return bool(self.steps and self.extends)

    @property
    def spread(self) -> float:
        """Largest relative difference of two runs, of any row, [-]."""
        rows: list[StepTiming | ExtendTiming | DraftTiming] = [*self.steps, *self.extends]
        return max(row.spread for row in [*rows, *self.drafts])

    def say(self, note: str) -> None:
        """Keep a note for the record, and tell it now."""
        self.notes.append(note)
        self.tell(note)

    def note_conditions(self, *, is_dry: bool) -> None:
        """Note what holds for every row: made-up times, clocks that were not read or moved."""
        if is_dry:
            self.notes.append("a dry run: every time in this record is made up")
        elif not self.clocks:
            self.notes.append("the clocks could not be read, so they were not checked")
        for name, change in clock_change(self.clocks).items():
            if change > MOST_CLOCK_CHANGE:
                self.notes.append(
                    f"the {name} clock differs by {change / PERCENT:.1f} % between loads"
                )
