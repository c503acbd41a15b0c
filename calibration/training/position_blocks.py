"""Blocks that print one line for each position, as SpecForge and EAGLE do at the end of an epoch."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.lines import MOST_DEPTHS, NUMBER, half_unit, is_cut, printed_number
from calibration.training.records import Kind, RawLog, Split, by_depth

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
    def has_accuracy(self) -> bool:
        """Whether it is a record: losses alone are none."""
        return ACCURACY in self.values or RATE in self.values

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


# ---
# Blocks of a whole epoch, which EAGLE-3 and SpecForge 0.1 print alike but for one word.
#
# The evaluation says ``Test Epoch`` in EAGLE-3 and ``Eval Epoch`` in SpecForge. Training blocks wait for
# the next evaluation to say whose they are.
_TRAIN = "Train"


@dataclass(slots=True)
class EpochBlocks:
    """The epoch blocks of one of the two families."""

    raw: RawLog  # where its records go
    family: str  # id of the family
    format: str  # id of its layout
    evaluation_word: str  # ``Eval`` or ``Test``
    takes_open: bool  # whether training blocks are taken that no evaluation tells apart
    _waiting: RawLog = field(init=False, default_factory=RawLog)
    _is_own: bool | None = field(init=False, default=None)  # what the last evaluation said

    def take(self, block: Block) -> None:
        """Take a complete block."""
        if not block.has_accuracy:
            self.raw.without_accuracy(self.family)
        elif block.key[0] == _TRAIN:
            add_block(self._waiting, self.family, block, self.format)
        elif block.key[0] == self.evaluation_word:
            self._is_own = True
            self._give_waiting()
            add_block(self.raw, self.family, block, self.format)
        else:
            self._is_own = False
            self._waiting = RawLog()

    def finish(self) -> bool:
        """Give what still waits: its family is that of the evaluation before, if there was any."""
        is_open = self._is_own is None and self.takes_open and bool(self._waiting.tables)
        if is_open or self._is_own:
            self._give_waiting()
        self._waiting = RawLog()
        return is_open

    def _give_waiting(self) -> None:
        """Move the training records that wait into the table of the family."""
        waiting = self._waiting.tables.pop(self.family, {}).get(Split.TRAIN)
        if waiting is not None:
            self.raw.table(self.family, Split.TRAIN).join(waiting)


def name_open_family(raw: RawLog) -> None:
    """Make training blocks that no evaluation tells apart those of SpecForge, as a user may say."""
    table = raw.tables.get("eagle3", {}).get(Split.TRAIN)
    if table is None or OPEN_FAMILY not in table.hints or "specforge" in raw.tables:
        return
    table.hints.discard(OPEN_FAMILY)
    table.labels[:] = ["F1" if label == "E1" else label for label in table.labels]
    raw.tables["specforge"] = raw.tables.pop("eagle3")


def add_block(raw: RawLog, family: str, block: Block, layout: str) -> None:
    """Add the record that a complete block is."""
    word, number = block.key
    of_step = word.endswith("Step")
    values = by_depth(Kind.MARGINAL, block.depths(ACCURACY))
    values |= by_depth(Kind.OVERLAP, block.depths(RATE)) | by_depth("loss", block.depths(LOSS))
    values["step" if of_step else "epoch"] = number
    evaluation = Split.UNKNOWN if of_step else Split.VAL
    raw.add(
        family,
        Split.TRAIN if word.startswith(_TRAIN) else evaluation,
        layout,
        block.line,
        block.stream,
        values,
        hints={"acceptance_rate"} if RATE in block.values else (),
        rounding=block.rounding,
    )
