r"""The text that a Prometheus endpoint serves: samples with labels, and scrapes made of them."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from calibration.readers.reading import SourceText
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
        line=number,
        name=found["name"],
        labels=labels,
        value=float(found["value"]),
        time_s=time_s,
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
