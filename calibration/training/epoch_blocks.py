"""Blocks of a whole epoch, which EAGLE-3 and SpecForge 0.1 print alike but for one word.

The evaluation says ``Test Epoch`` in EAGLE-3 and ``Eval Epoch`` in SpecForge. Training blocks wait for
the next evaluation to say whose they are.
"""

from dataclasses import dataclass, field

import numpy as np

from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.position_blocks import ACCURACY, LOSS, RATE, Block
from calibration.training.records import Kind, RawLog, RecordTable, Split, TrainingRecord

_TRAIN = "Train"


@dataclass(slots=True, kw_only=True)
class EpochBlocks:
    """The epoch blocks of one of the two families."""

    raw: RawLog  # where its records go
    family: str  # id of the family
    format: str  # id of its layout
    evaluation_word: str  # ``Eval`` or ``Test``
    takes_open: bool  # whether training blocks are taken that no evaluation tells apart
    _waiting: RecordTable = field(init=False, default_factory=RecordTable)
    _is_own: bool | None = field(init=False, default=None)  # what the last evaluation said

    def take(self, block: Block) -> None:
        """Take a complete block."""
        record = block_record(block, self.format)
        if record is None:
            self.raw.num_without_metrics += 1
            self.raw.loss_only.add(self.family)
        elif block.key[0] == _TRAIN:
            self._waiting.append(record)
        elif block.key[0] == self.evaluation_word:
            self._is_own = True
            self._give_waiting()
            self.raw.add(self.family, record)
        else:
            self._is_own = False
            self._waiting = RecordTable()

    def finish(self) -> bool:
        """Give what still waits: its family is that of the evaluation before, if there was any."""
        is_open = self._is_own is None and self.takes_open and len(self._waiting) > 0
        if is_open or self._is_own:
            self._give_waiting()
        self._waiting = RecordTable()
        return is_open

    def _give_waiting(self) -> None:
        """Move the training records that wait into the table of the family."""
        waiting, self._waiting = self._waiting, RecordTable()
        if not len(waiting):
            return
        table = self.raw.table(self.family, Split.TRAIN)
        numbers = np.array([table.label(label) for label in waiting.labels], dtype=np.float64)
        columns = {name: waiting.column(name) for name in waiting.columns}
        for name in ("stream", "format"):
            columns[name] = numbers[columns[name].astype(np.intp)]
        table.extend(columns, len(waiting))
        table.hints |= waiting.hints
        table.rounding = waiting.rounding


def name_open_family(raw: RawLog) -> None:
    """Make training blocks that no evaluation tells apart those of SpecForge, as a user may say."""
    table = raw.tables.get("eagle3", {}).get(Split.TRAIN)
    if table is None or OPEN_FAMILY not in table.hints or "specforge" in raw.tables:
        return
    table.hints.discard(OPEN_FAMILY)
    table.labels[:] = ["F1" if label == "E1" else label for label in table.labels]
    raw.tables["specforge"] = raw.tables.pop("eagle3")


def block_record(block: Block, format_id: str) -> TrainingRecord | None:
    """Return the record that a complete block is; None where it has no accuracy."""
    word, number = block.key
    accuracies = {}
    if depths := block.depths(ACCURACY):
        accuracies[Kind.MARGINAL] = depths
    if depths := block.depths(RATE):
        accuracies[Kind.OVERLAP] = depths
    if not accuracies:
        return None
    of_step = word.endswith("Step")
    evaluation = Split.UNKNOWN if of_step else Split.VAL
    return TrainingRecord(
        format=format_id,
        split=Split.TRAIN if word.startswith(_TRAIN) else evaluation,
        line=block.line,
        stream=block.stream,
        accuracies=accuracies,
        losses=block.depths(LOSS),
        step=number if of_step else None,
        epoch=None if of_step else float(number),
        hints=frozenset({"acceptance_rate"}) if Kind.OVERLAP in accuracies else frozenset(),
        rounding=block.rounding,
    )
