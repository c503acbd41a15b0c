"""The text that a Prometheus endpoint serves, and what its counters grew by between two scrapes."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from calibration.readers.findings import Findings
from calibration.readers.reading import Reading, SourceText
from specmodel.units import MILLI

# What is said of a line that is left out because it does not parse.
NO_SAMPLE: Final = "no complete sample: cut off, or no exposition text"

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = re.compile(rf'\s*+({_NAME})\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(?:,\s*+|$)', re.DOTALL)
_SAMPLE = re.compile(
    rf"(?P<name>{_NAME})(?:\s*+\{{(?P<labels>(?:[^\"}}]|\"(?:[^\"\\]|\\.)*+\")*+)\}})?+"
    r"\s++(?P<value>[^\s#]++)(?:\s++(?P<time>[^\s#]++))?+\s*+(?:#.*)?+",
    re.DOTALL,
)
_COMMENT = re.compile(r"#\s*+(?:HELP|TYPE|UNIT|EOF)\b")
_NUMBER = re.compile(
    r"[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+|[+-]?Inf(?:inity)?|NaN", re.IGNORECASE
)
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}
_LONGEST_LINE = 65536
_FIRST_MILLISECONDS = 1e11  # as seconds it is the year 5138, as milliseconds 1973
_FIRST_SECONDS = 1e9  # as seconds it is 2001, as milliseconds twelve days after 1970
_LARGEST_COUNT = 1e15  # no server lives that long
_DIGITS = re.compile(r"(\d+)", re.ASCII)
_FEW = 20  # lines before the last one that show how numbers are written


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of a scrape."""

    line: int  # line of the file, 1-based
    name: str  # of the series, with its suffix (``_total``, ``_created`` ...)
    labels: Mapping[str, str]  # what tells it from other series of the name
    value: float  # as served; may be no finite number
    # when it was taken, in seconds since 1970; None where the text does not say
    time_s: float | None = None

    @property
    def model(self) -> str:
        """Of which served model it is; empty where no label says so."""
        return self.labels.get("model_name", "")

    @property
    def is_count(self) -> bool:
        """Whether the value can be one of a counter of tokens or rounds: whole, not negative."""
        return 0 <= self.value <= _LARGEST_COUNT and self.value == int(self.value)

    def label_texts(self, *, without: Collection[str] = ()) -> tuple[str, ...]:
        """Return ``name=value`` of its labels in order of name, some left out."""
        return tuple(f"{k}={v}" for k, v in sorted(self.labels.items()) if k not in without)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What an endpoint served at one moment, as far as it was asked for."""

    path: Path  # the file
    samples: tuple[Sample, ...]  # in the order of the file

    @property
    def time_s(self) -> float | None:
        """When the last sample was taken."""
        return latest_time(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """The scrapes of one file and the lines that are none."""

    scrapes: tuple[Scrape, ...]  # at least one, maybe without samples
    # lines that begin with a name that was asked for and cannot be read
    broken: tuple[int, ...] = field(default=())


def is_exposition(head: str, prefix: str) -> bool:
    """Return whether a text is a scrape with series whose names have a prefix.

    The first line that is not blank must be a comment or a sample: a log that quotes a scrape is a log.
    """
    first = head.lstrip("\N{BYTE ORDER MARK} \t\r\n")[:_LONGEST_LINE].split("\n", 1)[0].strip()
    if not (_COMMENT.match(first) or first.startswith("# ") or _is_sample(first)):
        return False
    start = rf"^(?:{re.escape(prefix)}\w+(?:\{{|[ \t]+[-+.\dNI])|# TYPE {re.escape(prefix)}\w+ )"
    return re.search(start, head, re.MULTILINE | re.ASCII) is not None


def read_exposition(source: SourceText, names: Collection[str]) -> Exposition:
    """Return the scrapes of a file, as far as they have certain names.

    Usually there is one. Where a series stands several times, scrapes were appended to each other:
    those of equal time belong together, or, without times, what stands before the repetition.
    """
    lines = source.text.split("\n")
    open_metrics = any(line.strip() == "# EOF" for line in lines)
    cut = _cut_line(lines)
    samples: list[Sample] = []
    broken: list[int] = []
    breaks: set[int] = set()  # how many samples there are where an end of a scrape is written
    for number, line in enumerate(lines, start=1):
        name = (
            line[:_LONGEST_LINE]
            .lstrip("\N{BYTE ORDER MARK} \t")
            .split("{", 1)[0]
            .split(None, 1)[:1]
        )
        if not name or name[0] not in names:
            if line.strip() == "# EOF":
                breaks.add(len(samples))
            continue
        sample = None if number == cut else _sample(line, number, open_metrics=open_metrics)
        if sample is None:
            broken.append(number)
        else:
            samples.append(sample)
    return Exposition(
        scrapes=tuple(
            Scrape(path=source.path, samples=tuple(group)) for group in _split(samples, breaks)
        ),
        broken=tuple(broken),
    )


def in_order(scrapes: Sequence[Scrape]) -> list[Scrape]:
    """Return scrapes by their time, or by the names of their files where a time is missing.

    Numbers in names count as numbers; scrapes of one file keep their order.
    """
    times = [scrape.time_s for scrape in scrapes]
    if None not in times:
        return sorted(scrapes, key=lambda scrape: scrape.time_s or 0.0)
    return sorted(scrapes, key=lambda scrape: _natural(scrape.path))


def latest_time(samples: Iterable[Sample]) -> float | None:
    """Return when the last of some samples was taken, None where none says it."""
    return max((sample.time_s for sample in samples if sample.time_s is not None), default=None)


def _natural(path: Path) -> tuple[tuple[str | int, ...], str]:
    """Return a key that sorts file names as people count."""
    parts = _DIGITS.split(path.name)
    return tuple(int(one) if one.isascii() and one.isdigit() else one for one in parts), str(path)


def _sample(line: str, number: int, *, open_metrics: bool) -> Sample | None:
    """Return the sample of a line, None where it is none."""
    found = None
    if len(line) <= _LONGEST_LINE:
        found = _SAMPLE.fullmatch(line.strip("\N{BYTE ORDER MARK} \t\r"))
    if found is None or not _NUMBER.fullmatch(found["value"]):
        return None
    labels = _labels(found["labels"] or "")
    if labels is None:
        return None
    time_s = None
    if found["time"] is not None:
        if not _NUMBER.fullmatch(found["time"]):
            return None
        time_s = _seconds(found["time"], open_metrics=open_metrics)
    return Sample(
        line=number, name=found["name"], labels=labels, value=float(found["value"]), time_s=time_s
    )


def _labels(written: str) -> dict[str, str] | None:
    """Return the labels between the braces, None where they are none."""
    labels: dict[str, str] = {}
    place = 0
    while place < len(written):
        found = _LABEL.match(written, place)
        if found is None:
            return None
        labels[found[1]] = _plain(found[2])
        place = found.end()
    return labels


def _seconds(written: str, *, open_metrics: bool) -> float | None:
    """Return a time as seconds: OpenMetrics writes seconds, the older format milliseconds.

    The older format has whole numbers only, and neither was written before 2001: a file that lost
    its last line still tells.
    """
    time = float(written)
    if not math.isfinite(time):
        return None
    in_seconds = open_metrics or "." in written or _FIRST_SECONDS <= time < _FIRST_MILLISECONDS
    return time if in_seconds and time < _FIRST_MILLISECONDS else time * MILLI


def _plain(value: str) -> str:
    """Return the value of a label without its escapes."""
    if "\\" not in value:
        return value
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value, flags=re.DOTALL)


def _is_sample(line: str) -> bool:
    """Return whether a line is a sample."""
    return _sample(line, 1, open_metrics=False) is not None


def _cut_line(lines: Sequence[str]) -> int | None:
    """Return the number of the last line where it was cut inside a number, None elsewhere.

    A scrape ends with a line end. One without may have been pasted, or cut: then its last number is
    shorter than it was, which shows where all lines before it are written in another form.
    """
    last = _form(lines[-1])
    if last is None:
        return None
    before = {_form(line) for line in lines[-_FEW - 1 : -1]} - {None}
    return len(lines) if len(before) == 1 and last not in before else None


def _form(line: str) -> tuple[bool, int] | None:
    """Return whether a value is written out and how long its time is, None where there is none."""
    found = _SAMPLE.fullmatch(line.strip()) if len(line) <= _LONGEST_LINE else None
    if found is None or not found["value"][-1].isdigit():
        return None if found is None else (False, -1)
    written_out = "." in found["value"] or "e" in found["value"]
    return written_out, len(found["time"] or "")


def _split(samples: Sequence[Sample], breaks: Collection[int]) -> list[list[Sample]]:
    """Return the samples of each scrape of a file."""
    keys = [(s.name, tuple(sorted(s.labels.items()))) for s in samples]
    repeated = len(set(keys)) < len(keys)
    if repeated and all(sample.time_s is not None for sample in samples):
        by_time: dict[float, list[Sample]] = {}
        for sample in samples:
            by_time.setdefault(sample.time_s or 0.0, []).append(sample)
        return list(by_time.values())
    groups: list[list[Sample]] = [[]]
    seen: set[object] = set()
    for place, (sample, key) in enumerate(zip(samples, keys, strict=True)):
        if groups[-1] and (key in seen or place in breaks):
            groups.append([])
            seen.clear()
        seen.add(key)
        groups[-1].append(sample)
    return groups


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


def counter_names(stems: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what counters of each stem mean, and their times of creation, by name."""
    counters = {stem + suffix: stems[stem] for stem in stems for suffix in ("_total", "")}
    return counters, {f"{stem}_created": meaning for stem, meaning in stems.items()}


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
    """Yield the windows in which no server restarted of every model, with the findings at its file."""
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
            if window.totals is None:
                findings.drop("counter_reset", window.later.line, window.restarted)
            else:
                yield model, window
    findings.path = sources[0].path


def of_series(reading: Reading, sources: Sequence[SourceText]) -> Reading:
    """Return a reading of several files without line numbers in its warnings, which name one file."""
    if len(sources) == 1:
        return reading
    return replace(reading, warnings=tuple(w._replace(lines=()) for w in reading.warnings))


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
