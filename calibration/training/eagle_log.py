"""The EAGLE repository: blocks of an epoch (EAGLE-3), and two lines of an epoch (EAGLE-1, HASS)."""

import re
from typing import Final

from calibration.training.epoch_blocks import EpochBlocks
from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.number_text import NUMBER, half_unit, printed_number
from calibration.training.position_blocks import Block, OpenBlocks, position_lines
from calibration.training.progress_bars import is_cut
from calibration.training.records import Kind, RawLog, Split, TrainingRecord
from specmodel.units import PERCENT

FAMILY: Final = "eagle3"
FAMILY_EAGLE1: Final = "eagle1"

_MOST_STREAMS = 10_000
_HEADER = re.compile(
    r"\b(?:(?P<word>Train|Test|Eval) )?Epoch \[(?P<epoch>\d{1,9})/\d{1,9}\](?!,\s{1,4}position)"
    rf"(?:,?\s{{1,4}}Loss:\s{{0,4}}(?P<loss>{NUMBER}))?",
    re.ASCII | re.IGNORECASE,
)
_ACCURACY = re.compile(
    rf"\b(?P<word>Train|Test) Accuracy:\s{{0,4}}(?:(?P<value>{NUMBER})%)?", re.ASCII | re.IGNORECASE
)


class Eagle3Lines:
    """Reads what traineagle3 prints at the end of an epoch (E1)."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._epochs = EpochBlocks(
            raw=raw, family=FAMILY, format="E1", evaluation_word="Test", takes_open=True
        )
        self._blocks = OpenBlocks(self._epochs.take, self._drop)

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of a block."""
        taken = False
        for found in position_lines(text):
            if not found.key[0].endswith("Step"):
                self._blocks.put(line, stream, found)
                taken = True
        return taken

    def finish(self) -> None:
        """End the last blocks."""
        self._blocks.close()
        self._epochs.takes_open = "specforge" not in self._raw.tables
        if self._epochs.finish():
            self._raw.table(FAMILY, Split.TRAIN).hints.add(OPEN_FAMILY)

    def _drop(self, block: Block) -> None:
        """Say that a block is not complete; SpecForge says it of its own."""
        if block.key[0] != "Eval":
            self._raw.warn("truncated-record", block.line)


class Eagle1Lines:
    """Reads the accuracies of an epoch that EAGLE-1, EAGLE-2 and HASS print (E2), in percent."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._epochs: dict[str, float] = {}  # by stream
        self._losses: dict[tuple[str, Split], float | None] = {}

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of an epoch."""
        if "poch [" not in text and "ccuracy:" not in text:
            return False
        taken = False
        for found in _HEADER.finditer(text):
            self._take_header(stream, text, found)
            taken = True
        for found in _ACCURACY.finditer(text):
            self._take_accuracy(line, stream, found)
            taken = True
        return taken

    def finish(self) -> None:
        """Forget what accuracies would have been of."""
        self._epochs.clear()
        self._losses.clear()

    def _take_header(self, stream: str, text: str, found: re.Match[str]) -> None:
        """Keep epoch and loss for the accuracy that follows."""
        if len(self._losses) > _MOST_STREAMS:
            self._losses.clear()
            self._epochs.clear()
        self._epochs[stream] = float(found["epoch"])
        loss = None
        if found["loss"] and not is_cut(text, found.end()):
            loss = printed_number(found["loss"])
        is_train = (found["word"] or "Train").lower() == "train"
        self._losses[stream, Split.TRAIN if is_train else Split.VAL] = loss

    def _take_accuracy(self, line: int, stream: str, found: re.Match[str]) -> None:
        """Add the record of an accuracy; a number without its percent sign is cut."""
        value = printed_number(found["value"]) if found["value"] else None
        if value is None:
            self._raw.warn("truncated-record", line)
            return
        split = Split.TRAIN if found["word"].lower() == "train" else Split.VAL
        self._raw.add(
            FAMILY_EAGLE1,
            TrainingRecord(
                format="E2",
                split=split,
                line=line,
                stream=stream,
                accuracies={Kind.MARGINAL: (value * PERCENT,)},
                total_loss=self._losses.pop((stream, split), None),
                epoch=self._epochs.get(stream),
                rounding=(half_unit(found["value"]) or 0.0) * PERCENT,
            ),
        )
