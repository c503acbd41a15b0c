"""Lines of a vLLM server's log: what the logger put around the text, and the acceptance metrics."""

import math
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from calibration.readers.terminal_text import without_escapes

_HEADER = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\s+"
    r"\[?[\w./-]+:\d+\]\s?",
    re.ASCII,
)
_CONTAINER = re.compile(r"^([\w./-]{1,100})\s*\|\s", re.ASCII)
_QUOTES = frozenset("'\"`{")
_LONGEST_PREFIX = 300
_ENGINE = re.compile(r"(?:Engine \d+|\d+ Engines Aggregated): ", re.ASCII)

V0: Final = "Speculative metrics:"
V1: Final = "SpecDecoding metrics:"
_MARKER = re.compile(f"{V0}|{V1}")

_V1_LABEL = re.compile(
    "(Mean acceptance length|Accepted throughput|Drafted throughput|Accepted|Drafted"
    r"|Per-position acceptance rate|Avg Draft acceptance rate|Draft acceptance rate)\s*:"
)
_V0_FIELDS = tuple(
    re.compile(rf"{label}:\s*(\d{{1,15}})(?:[,.]\s|[,.]$)", re.ASCII)
    for label in (
        "Number of speculative tokens",
        "Number of draft tokens",
        "Number of emitted tokens",
    )
)
_TOKENS = re.compile(r"(\d{1,15}) tokens\b(?!/)", re.ASCII)
_NUMBER = re.compile(r"(nan|\d{1,9}(?:\.\d{1,15})?)", re.ASCII)
_PERCENT = re.compile(r"(?:nan|\d+(?:\.\d+)?)\s?%", re.ASCII)
_RATES = re.compile(
    r"\[?\s*((?:nan|\d(?:\.\d{1,15})?)(?:,\s*(?:nan|\d(?:\.\d{1,15})?))*)", re.ASCII
)
_LAST_RATE = re.compile(r"(?:^|[\s,\[])(?:nan|\d\.\d{3,})\s*\]?\s*$", re.ASCII)
_MOST_RATES = 1024
_SUM_TOLERANCE = 0.02  # of printed rates against the printed mean: rounding of both, and room


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a V1 line says about the time since the last one."""

    era: str  # ``v1_early`` or ``v1``
    accepted: float  # counts, [tokens]
    drafted: float
    # mean acceptance length as printed, with two decimals; None where the line has none
    mean: float | None
    # share of rounds in which the first 1, 2, ... drafts were all accepted; empty where the line
    # has none
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a V0 line says about the time since the server started."""

    num_steps: int  # depth
    drafted: float  # counts, [tokens]
    emitted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of the server itself."""

    stream: str  # name of the container in front of the line; empty where there is none
    text: str  # what the server said
    # whether its logger wrote it, which is known from level, time and place in the code
    logged: bool


def log_line(line: str) -> LogLine | None:
    """Return what a server said in a line, None where the words may be somebody's data."""
    text = without_escapes(line).rstrip("\r")
    text = text[text.rfind("\r") + 1 :]  # a progress bar was overwritten
    header = _HEADER.search(text, 0, _LONGEST_PREFIX)
    container = _CONTAINER.match(text)
    stream = container[1] if container else ""
    if header is None:
        return LogLine(
            stream=stream, text=text[container.end() if container else 0 :], logged=False
        )
    if _QUOTES.intersection(text[: header.start()]):
        return None
    return LogLine(stream=stream, text=text[header.end() :], logged=True)


def is_metrics(line: LogLine) -> bool:
    """Return whether the server says how many drafts were accepted."""
    text = _ENGINE.sub("", line.text, count=1)
    marker = _MARKER.search(text, 0, _LONGEST_PREFIX)
    if marker is None:
        return False
    before = text[: marker.start()]
    return not before.strip() if line.logged else not _QUOTES.intersection(before)


def read_metrics(text: str) -> Window | Counters | None:
    """Return the figures of a metrics line, None where it is cut off or garbled.

    The list of rates is separated like the fields, so the text is split on the names of the fields.
    """
    if V1 not in text:
        return _read_v0(text)
    found = list(_V1_LABEL.finditer(text))
    fields: dict[str, str] = {}
    for label, following in zip_longest(found, found[1:]):
        value = text[label.end() : following.start() if following else len(text)]
        fields.setdefault(label[1], value.strip().removesuffix(",").rstrip())
    early = "Draft acceptance rate" in fields
    rate = fields.get("Draft acceptance rate" if early else "Avg Draft acceptance rate", "")
    accepted = _TOKENS.match(fields.get("Accepted", ""))
    drafted = _TOKENS.match(fields.get("Drafted", ""))
    if not _PERCENT.match(rate) or accepted is None or drafted is None:
        return None
    mean = _NUMBER.match(fields.get("Mean acceptance length", ""))
    rates = _rates(fields.get("Per-position acceptance rate"), last=early and text)
    if rates is None or (not early and (mean is None or not rates)):
        return None
    length = float(mean[1]) if mean else None
    window = Window(
        era="v1_early" if early else "v1",
        accepted=float(accepted[1]),
        drafted=float(drafted[1]),
        mean=None if length is None or math.isnan(length) else length,
        rates=tuple(rates),
    )
    return None if early and _is_short(window) else window


def _read_v0(text: str) -> Counters | None:
    """Return the counters of a V0 line, None where it is cut off."""
    found = [field.search(text) for field in _V0_FIELDS]
    numbers = [float(field[1]) for field in found if field]
    if len(numbers) < len(found):
        return None
    num_steps, drafted, emitted = numbers
    return Counters(num_steps=int(num_steps), drafted=drafted, emitted=emitted)


def _rates(written: str | None, *, last: str | bool) -> list[float] | None:
    """Return the rates of a list, None where it is cut off; ``last``: the text it is the end of."""
    if written is None:
        return []
    found = _RATES.match(written)
    if found is None or (isinstance(last, str) and not _LAST_RATE.search(last)):
        return None
    rates = found[1].split(",")
    return [float(rate) for rate in rates] if len(rates) <= _MOST_RATES else None


def _is_short(window: Window) -> bool:
    """Return whether rates at the end of a line are fewer than the mean was made of."""
    if window.mean is None or not window.rates:
        return False
    return 1 + sum(window.rates) < window.mean - _SUM_TOLERANCE
