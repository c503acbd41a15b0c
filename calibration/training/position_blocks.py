"""Blocks of lines, one for each metric and depth, that form one record: EAGLE-3 and SpecForge.

``Train Epoch [4/40], position 0,  Acc: 0.66`` begins a record; accuracies of the other depths follow,
then acceptance rates and losses. A block that lacks some of what it began is not complete.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from calibration.training.dict_records import MOST_DEPTHS
from calibration.training.number_text import NUMBER, half_unit, printed_number
from calibration.training.progress_bars import is_cut

ACCURACY: Final = "Acc"
RATE: Final = "Acceptance Rate"
LOSS: Final = "pLoss"

_MOST_OPEN: Final = 64  # blocks of one step, printed by as many processes
_LINE = re.compile(
    r"(?:(?<![A-Za-z])(?P<word>Train|Eval|Test) Epoch \[(?P<epoch>\d{1,9})/(?P<epochs>\d{1,9})\]"
    r"|(?<![A-Za-z])(?P<mode>Train|Eval) - Step (?P<step>\d{1,12}) \[\d{1,12}/\d{1,12}\])"
    r",\s{1,4}position (?P<position>\d{1,9}),\s{1,4}"
    rf"(?P<label>Acc|Acceptance Rate|pLoss):\s{{0,4}}(?P<value>{NUMBER})",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLine:
    """One line of a block."""

    # what its block is about: ``Train``, ``Eval`` or ``Test`` and the epoch, or ``Train - Step`` or
    # ``Eval - Step`` and the step
    key: tuple[str, int]
    position: int  # depth, from 0
    label: str  # `ACCURACY`, `RATE` or `LOSS`
    value: float  # as printed
    rounding: float  # half a unit of its last printed digit


@dataclass(slots=True)
class Block:
    """The lines of one record."""

    key: tuple[str, int]  # as in `PositionLine`
    line: int  # where it begins
    stream: str  # label of its process
    values: dict[str, dict[int, float]] = field(init=False, default_factory=dict)
    rounding: float = field(init=False, default=0.0)

    def has(self, label: str, position: int) -> bool:
        """Return whether a line was printed."""
        return position in self.values.get(label, ())

    def put(self, found: PositionLine) -> None:
        """Add a line."""
        self.values.setdefault(found.label, {})[found.position] = found.value
        if found.label == ACCURACY:
            self.rounding = max(self.rounding, found.rounding)

    def depths(self, label: str) -> tuple[float, ...]:
        """Return the values of a metric by depth; empty where there is none."""
        values = self.values.get(label, {})
        return tuple(values[position] for position in sorted(values))

    @property
    def is_even(self) -> bool:
        """Whether all metrics have the same depths, from 0 on."""
        positions = {frozenset(values) for values in self.values.values()}
        return len(positions) == 1 and all(set(range(len(one))) == one for one in positions)


def position_lines(text: str) -> Iterator[PositionLine]:
    """Yield the lines of blocks in a physical line; a number that may be cut is none."""
    if "position " not in text:
        return
    for found in _LINE.finditer(text):
        position, value = int(found["position"]), printed_number(found["value"])
        if position >= MOST_DEPTHS or value is None or is_cut(text, found.end()):
            continue
        if found["word"]:
            key = (found["word"].capitalize(), int(found["epoch"]))
        else:
            key = (f"{found['mode'].capitalize()} - Step", int(found["step"]))
        yield PositionLine(
            key=key,
            position=position,
            label={"acc": ACCURACY, "acceptance rate": RATE}.get(found["label"].lower(), LOSS),
            value=value,
            rounding=half_unit(found["value"]) or 0.0,
        )


class OpenBlocks:
    """The blocks that are being printed, stream by stream."""

    __slots__ = ("_drop", "_metrics", "_open", "_take")

    def __init__(self, take: Callable[[Block], None], drop: Callable[[Block], None]) -> None:
        self._take = take
        self._drop = drop
        self._open: dict[str, list[Block]] = {}
        self._metrics: dict[str, frozenset[str]] = {}  # of the last complete block

    def put(self, line: int, stream: str, found: PositionLine) -> None:
        """Give a line to its block.

        Several processes may print the blocks of one step line by line: a line belongs to the block
        that began last and lacks it.
        """
        blocks = self._open.setdefault(stream, [])
        if blocks and blocks[0].key != found.key:
            self._close(stream)
            blocks = self._open[stream] = []
        for block in reversed(blocks):
            if not block.has(found.label, found.position):
                block.put(found)
                return
        if len(blocks) == _MOST_OPEN:
            self._end(blocks.pop(0))
        blocks.append(Block(found.key, line, stream))
        blocks[-1].put(found)

    def close(self) -> None:
        """End all blocks: no more lines follow."""
        for stream in tuple(self._open):
            self._close(stream)

    def _close(self, stream: str) -> None:
        """End the blocks of one stream."""
        for block in self._open.pop(stream, []):
            self._end(block)

    def _end(self, block: Block) -> None:
        """Take a block if it is complete: even, with the metrics of the block of its word before."""
        metrics = frozenset(block.values)
        if block.is_even and metrics >= self._metrics.get(block.key[0], frozenset()):
            self._metrics[block.key[0]] = metrics
            self._take(block)
        else:
            self._drop(block)
