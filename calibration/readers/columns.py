"""The columns that are known, and what they are called: the vocabulary of vocabulary.toml."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from specmodel.units import MICRO, MILLI


class Kind(Enum):
    """What a column holds."""

    NUMBER = "number"
    WHOLE = "whole number"
    LIST = "list of fractions"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that is known."""

    name: str  # its name, with the unit
    kind: Kind = Kind.TEXT  # what it holds
    zero: bool = False  # whether zero is possible. No number of a points file can be negative
    # bounds of what can be, in the unit of the column; zero is a matter of ``zero``
    least: float = 0.0
    most: float = math.inf
    share: bool = False  # whether it is a part of a whole, which may be written in percent
    open: bool = False  # whether its name can mean several things
    aliases: tuple[str, ...] = ()  # other names, normalised as `normalised_name` does, best first
    with_unit: tuple[str, ...] = ()  # names that mean it only together with its unit


_VOCABULARY: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("vocabulary.toml").read_text("utf-8")
)

# Words around the name of a column: which run it is of, how it was averaged, what names a run.
WORDS: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset(words) for kind, words in _VOCABULARY["words around"].items()
}

_ALL: Final = tuple(
    Column(
        name=name,
        kind=Kind(entry.get("kind", "text")),
        aliases=tuple(entry.get("names", ())),
        with_unit=tuple(entry.get("with_unit", ())),
        **{key: entry[key] for key in ("zero", "least", "most", "share", "open") if key in entry},
    )
    for name, entry in _VOCABULARY.items()
    if name != "words around"
)
_NUM_CANONICAL = [column.name for column in _ALL].index("notes") + 1

# Every canonical column, in the order of the file; and those that others follow from.
COLUMNS: Final = _ALL[:_NUM_CANONICAL]
DERIVING: Final = _ALL[_NUM_CANONICAL:]

CANONICAL_NAMES: Final = tuple(column.name for column in COLUMNS)
NUMBER_NAMES: Final = tuple(c.name for c in COLUMNS if c.kind in {Kind.NUMBER, Kind.WHOLE})
TEXT_NAMES: Final = tuple(c.name for c in COLUMNS if c.kind is Kind.TEXT)


# A rate of tokens at the end of a name or alone; and a time, in milliseconds.
RATE: Final = re.compile(
    r"(?:^|_|(?<=[^\x00-\x7f]))(?:(?P<kilo>k)?(?:tok(?:en)?s?|t)(?:/|_per_|_|/_)s(?:ec(?:ond)?)?|tps)"
    r"(?:(?:/|_per_|_|_/_)(?P<scope>user|request|req|sequence|seq|stream|gpu|device|card))?(?=_|$)"
)
TIME: Final = re.compile(r"(?:^|_)(ms|s|secs?|seconds?|us|\u03bcs|\u79d2|\u6beb\u79d2)(?=_|$)")
TIME_UNITS: Final = {
    "ms": 1.0,
    "\u6beb\u79d2": 1.0,
    "us": MICRO / MILLI,
    "\u03bcs": MICRO / MILLI,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "\u79d2"), 1 / MILLI),
}

# What a throughput may be counted over; relative ones are speed-ups, of which no rate is known.
SCOPES: Final = ("aggregate", "per_user", "per_gpu", "relative")

_SPELLINGS: Final = {
    "relative": "relative",
    **dict.fromkeys(("", "total", "aggregate", "aggregated", "sum", "all", "overall"), "aggregate"),
    **dict.fromkeys(("system", "server", "batch", "whole", "whole_batch"), "aggregate"),
    **dict.fromkeys(("user", "users", "request", "req", "sequence", "stream"), "per_user"),
    **dict.fromkeys(("gpu", "gpus", "device", "accelerator", "card"), "per_gpu"),
}
_TOKEN_RATE = re.compile(
    r"(?:(?:total|output|aggregate)_)*(?:tps|(?:k?tok|k?tokens?)(?:/|_per_|_)s(?:ec(?:ond)?)?)"
)
_BETWEEN = re.compile(r"[_/]*(?:per_)?")


def scope_of(written: str) -> str | None:
    """Return the scope that a text stands for, None where it stands for none."""
    text = re.sub(r"[\s-]+", "_", written.strip().strip("()[]").casefold())
    rate = _TOKEN_RATE.match(text)
    rest = text[rate.end() :] if rate else text
    between = _BETWEEN.match(rest)
    return _SPELLINGS.get(rest[between.end() :] if between else rest)
