"""States of progress bars (tqdm) in training logs: a counter, its total and what stands behind it.

A bar is printed again and again into one line, first when its counter moves and once more when its
numbers change: the last state of a counter is the one to keep.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from calibration.training.physical_lines import CutText
from calibration.training.records import RawLog

_Item = TypeVar("_Item")

_LONGEST_DESCRIPTION: Final = 80
_STATE = re.compile(
    r"(?:\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,20}(?P<counter>\d{1,12})/(?P<total>\d{1,12})"
    r"|(?<!\d)(?P<alone>\d{1,12})it)\s\[(?P<inside>[^\]\[\r\n]{0,2000})(?P<end>\]?)",
    re.ASCII,
)
_PAIR = re.compile(r"([A-Za-z_][\w./@-]{0,60})=([^\s,=\]\[]{1,40})(?=[,\]])", re.ASCII)


@dataclass(frozen=True, slots=True)
class BarState:
    """One state of a bar."""

    description: str  # what stands in front of it, without the colon
    counter: int  # steps done
    total: int | None  # steps to do; None where the bar does not know
    pairs: Mapping[str, str]  # what stands behind it, the complete pairs only
    is_closed: bool  # whether its closing bracket was printed


def bar_states(text: str) -> Iterator[BarState]:
    """Yield the states of bars in a line."""
    if "[" not in text or ("%|" not in text and "it [" not in text):
        return
    for found in _STATE.finditer(text):
        counter, total = found["counter"] or found["alone"], found["total"]
        yield BarState(
            description=_description(text, found.start()),
            counter=int(counter),
            total=int(total) if total else None,
            pairs=dict(_PAIR.findall(found["inside"] + found["end"])),
            is_closed=bool(found["end"]),
        )


class LatestBars(Generic[_Item]):
    """The last state of each counter, stream by stream."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[str, tuple[object, _Item]] = {}

    def replace(self, stream: str, key: object, item: _Item) -> _Item | None:
        """Keep an item; return the one before it if its counter was another."""
        before = self._latest.get(stream)
        self._latest[stream] = (key, item)
        return before[1] if before is not None and before[0] != key else None

    def take_all(self) -> list[_Item]:
        """Return what is kept, and forget it."""
        items = [item for _, item in self._latest.values()]
        self._latest.clear()
        return items


@dataclass(frozen=True, slots=True)
class EpochBar:
    """A state of the bar of an epoch, and where it stands."""

    line: int
    stream: str
    epoch: float
    state: BarState


class EpochBars:
    """The bars of epochs that show an accuracy: the last state of each counter is given on."""

    __slots__ = ("_add", "_latest", "_name", "_raw")

    def __init__(self, raw: RawLog, name: re.Pattern[str], add: Callable[[EpochBar], None]) -> None:
        self._raw, self._name, self._add = raw, name, add
        self._latest: LatestBars[EpochBar] = LatestBars()

    def take(self, line: int, stream: str, text: str) -> bool:
        """Take the states of a line; return whether there are any."""
        taken = False
        for state in bar_states(text):
            named = self._name.search(state.description)
            if named is None or "acc" not in state.pairs:
                continue
            taken = True
            bar = EpochBar(line, stream, float(named[1]), state)
            before = self._latest.replace(stream, (bar.epoch, state.counter), bar)
            if before is not None:
                self._add(before)
        return taken

    def end(self, *, is_last: bool = False) -> None:
        """Give the bars that are kept; the last of a file may be cut."""
        for bar in self._latest.take_all():
            if bar.state.is_closed or not is_last:
                self._add(bar)
            else:
                self._raw.warn("truncated-record", bar.line)


def is_cut(text: str, end: int) -> bool:
    """Return whether a number that ends at a place may be cut: the file ends there."""
    return isinstance(text, CutText) and end >= len(text)


def _description(text: str, end: int) -> str:
    """Return what stands between the state before and a state, without its colon."""
    before = text[max(0, end - _LONGEST_DESCRIPTION) : end].rstrip()
    return before[before.rfind("]") + 1 :].removesuffix(":").strip()
