"""Counters of a server between two scrapes: what they grew by, and whether the server restarted."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from calibration.readers.exposition import (
    NO_SAMPLE,
    Exposition,
    Sample,
    Scrape,
    in_order,
    read_exposition,
)
from calibration.readers.findings import Findings
from calibration.readers.reading import Reading, SourceText

# What tells one counter of a server from another: its name, and labels that count.
SeriesKey: TypeAlias = tuple[str, ...]

# Whose counters they are: a model, or one scheduler of a server.
Owner = TypeVar("Owner")

# What is said of such a window.
RESTARTED: Final = (
    "a counter fell or the series changed between {earlier} and {later}: the server restarted in "
    "between, so their difference is no run"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The counters of one server at one moment."""

    path: Path  # the file
    line: int  # where its first counter stands
    time_s: float | None  # when; None where the scrape does not say
    counts: Mapping[SeriesKey, float]  # the counters
    # when each was created, where the scrape says so
    created_s: Mapping[SeriesKey, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)  # values that hold at this moment
    shape: tuple[object, ...] = ()  # what a server cannot change while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened between two moments of a server, or since it started."""

    earlier: Moment | None  # none where the window began when the server started
    later: Moment  # the end
    # by how much the counters of each name grew together; None where the server restarted in
    # between
    totals: Mapping[str, float] | None

    @property
    def seconds(self) -> float | None:
        """How long it was; None where a time is missing or both are equal."""
        start = None if self.earlier is None else self.earlier.time_s
        if start is None or self.later.time_s is None or self.later.time_s <= start:
            return None
        return self.later.time_s - start

    def total(self, name: str) -> float | None:
        """Return the growth of all counters of a name, None where there is none."""
        return None if self.totals is None else self.totals.get(name)

    @property
    def restarted(self) -> str:
        """What is said of a window in which the server restarted."""
        earlier = self.later if self.earlier is None else self.earlier
        return RESTARTED.format(earlier=earlier.path.name, later=self.later.path.name)


def windows(moments: Sequence[Moment]) -> Iterator[Window]:
    """Yield the windows between moments in their order; of a single one, its life.

    Counters that only one of two moments has are left out of the window.
    """
    if len(moments) == 1:
        yield Window(earlier=None, later=moments[0], totals=_totals(moments[0].counts))
    for earlier, later in pairwise(moments):
        yield Window(earlier=earlier, later=later, totals=_growth(earlier, later))


def moments_of_servers(
    sources: Sequence[SourceText],
    names: Collection[str],
    moments_in: Callable[[Scrape], Iterable[tuple[Owner, Moment]]],
) -> tuple[dict[Owner, list[Moment]], list[Exposition]]:
    """Return what each server of several scrapes counted, in order of time."""
    expositions = [read_exposition(source, names) for source in sources]
    moments: dict[Owner, list[Moment]] = {}
    for scrape in in_order([s for exposition in expositions for s in exposition.scrapes]):
        for owner, moment in moments_in(scrape):
            moments.setdefault(owner, []).append(moment)
    return moments, expositions


def windows_of_models(
    sources: Sequence[SourceText],
    names: Collection[str],
    moments_in: Callable[[Scrape], Iterable[tuple[str, Moment]]],
    is_usable: Callable[[Sample], bool],
    findings: Findings,
) -> Iterator[tuple[str, Window]]:
    """Yield the windows of every model in several scrapes, with the findings at their file."""
    moments, expositions = moments_of_servers(sources, names, moments_in)
    for exposition in expositions:
        findings.path = exposition.scrapes[0].path
        findings.drop_cut_off(exposition.broken, NO_SAMPLE)
        for sample in (one for scrape in exposition.scrapes for one in scrape.samples):
            if not is_usable(sample):
                findings.drop("malformed", sample.line, f"{sample.name} is {sample.value:g}")
    for model in sorted(moments):
        for window in windows(moments[model]):
            findings.path = window.later.path
            yield model, window
    findings.path = sources[0].path


def of_series(reading: Reading, sources: Sequence[SourceText]) -> Reading:
    """Return a reading of several files without line numbers in its warnings, which name one file."""
    if len(sources) == 1:
        return reading
    return replace(reading, warnings=tuple(replace(w, lines=()) for w in reading.warnings))


def _growth(earlier: Moment, later: Moment) -> dict[str, float] | None:
    """Return by how much the counters grew, None where they cannot be of one life."""
    if earlier.shape != later.shape:
        return None
    if any(later.created_s.get(key, since) != since for key, since in earlier.created_s.items()):
        return None
    both = earlier.counts.keys() & later.counts.keys()
    if not both or any(later.counts[key] < earlier.counts[key] for key in both):
        return None
    return _totals({key: later.counts[key] - earlier.counts[key] for key in both})


def _totals(counts: Mapping[SeriesKey, float]) -> dict[str, float]:
    """Return the sum of the counters of each name."""
    totals: dict[str, float] = {}
    for key, count in counts.items():
        totals[key[0]] = totals.get(key[0], 0.0) + count
    return totals
