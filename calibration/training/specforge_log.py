"""SpecForge on the console: epoch blocks (F1), step blocks (F2), bars (F3) and dictionaries (F4)."""

import re
from functools import cache
from typing import Final

from calibration.training.epoch_blocks import EpochBlocks, block_record
from calibration.training.number_text import printed_number
from calibration.training.position_blocks import Block, OpenBlocks, position_lines
from calibration.training.progress_bars import EpochBar, EpochBars
from calibration.training.records import RawLog, Split
from calibration.training.specforge_dicts import StepDictionaries
from calibration.training.step_blocks import StepBlocks
from calibration.training.uniform_rows import Layout, UniformRows

FAMILY: Final = "specforge"

_RATE = frozenset({"acceptance_rate"})
_BAR = re.compile(r"\bTraining Epoch (\d{1,9})$", re.ASCII)


class SpecForgeLines:
    """Reads the records of SpecForge."""

    def __init__(self, raw: RawLog, *, takes_open: bool = False) -> None:
        self._raw = raw
        self._takes_open = takes_open
        self._rows = UniformRows(raw, FAMILY)
        self._bars = EpochBars(raw, _BAR, self._add_bar)
        self._dictionaries = StepDictionaries(raw, self._rows)
        # What takes dictionaries that look alike out of whole blocks.
        self.steps = StepBlocks(self._dictionaries, self._bars.end)
        self._epochs = EpochBlocks(
            raw=raw, family=FAMILY, format="F1", evaluation_word="Eval", takes_open=takes_open
        )
        self._blocks = OpenBlocks(self._take_block, self._drop_block)

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of SpecForge, or an epoch block's."""
        taken = False
        if "position " in text:
            for found in position_lines(text):
                self._blocks.put(line, stream, found)
                taken = True
        if "Training Epoch " in text:
            taken = self._bars.take(line, stream, text) or taken
        if "step " in text and "{" in text:
            self._bars.end()
            taken = self._dictionaries.take(line, stream, text) or taken
        return taken

    def finish(self) -> None:
        """End the last block and the last bar."""
        self._blocks.close()
        self._bars.end(is_last=True)
        self._rows.flush()
        self._epochs.takes_open = self._takes_open or FAMILY in self._raw.tables
        self._epochs.finish()

    def _take_block(self, block: Block) -> None:
        """Take a complete block of an epoch or a step."""
        if not block.key[0].endswith("Step"):
            self._epochs.take(block)
            return
        record = block_record(block, "F2")
        if record is None:
            self._raw.num_without_metrics += 1
            self._raw.loss_only.add(FAMILY)
        else:
            self._rows.add_record(record)

    def _drop_block(self, block: Block) -> None:
        """Say that a block is not complete; EAGLE-3 says it of those of training."""
        if block.key[0] not in ("Train", "Test"):
            self._raw.warn("truncated-record", block.line)

    def _add_bar(self, bar: EpochBar) -> None:
        """Add the last state of a counter."""
        pairs = bar.state.pairs
        accuracy, loss = printed_number(pairs["acc"]), printed_number(pairs.get("loss", ""))
        if accuracy is None:
            return
        layout = _bar_layout(has_loss=loss is not None, has_rate="acceptance_rate" in pairs)
        values = (float(bar.state.counter), bar.epoch, accuracy)
        self._rows.add(
            layout,
            bar.line,
            bar.stream,
            values if loss is None else (*values, loss),
            total_steps=bar.state.total,
        )


@cache
def _bar_layout(*, has_loss: bool, has_rate: bool) -> Layout:
    """Return what the states of a bar have in common."""
    columns = ("step", "epoch", "mean_marginal")
    return Layout(
        format="F3",
        split=Split.TRAIN,
        columns=(*columns, "total_loss") if has_loss else columns,
        hints=_RATE if has_rate else frozenset(),
    )
