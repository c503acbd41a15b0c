"""Scripts on HF Trainer that print dictionaries: the heads of Medusa, the accuracy of BaldEagle (H1)."""

import re
from typing import Final

from calibration.training.dict_records import (
    Numbers,
    by_depth,
    dictionaries,
    finest,
    has_open_dictionary,
    number,
    numbers_of,
)
from calibration.training.physical_lines import CutText
from calibration.training.records import Kind, RawLog, Split, TrainingRecord

FAMILY: Final = "hf-trainer"

_KEY = re.compile(
    r"['\"](?:eval_|eval/|train/)?(?:medusa_?\d{1,3}_top\d|top_\d{1,2}_acc)", re.ASCII
)
_LOSSES = re.compile(r"['\"]loss['\"]\s{0,4}:")
_RATE = re.compile(r"['\"]learning_rate['\"]\s{0,4}:")
_ROUNDING = 0.0005  # where nothing says it
_PLACES = ("", "eval_", "eval/", "train/")


class HfTrainerLines:
    """Reads the records of Medusa and BaldEagle."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it has a dictionary of HF Trainer."""
        known = "medusa" in text or "top_" in text or "learning_rate" in text
        if "{" not in text or not (known or isinstance(text, CutText)):
            return False
        taken = False
        for _, body in dictionaries(text):
            record = None
            if _KEY.search(body):
                record = _record(line, stream, numbers_of(body))
            if record is not None:
                self._raw.add(FAMILY, record)
                taken = True
            elif _LOSSES.search(body) and _RATE.search(body):
                self._raw.num_without_metrics += 1
                self._raw.loss_only.add(FAMILY)
        is_last = isinstance(text, CutText) and FAMILY in self._raw.tables
        if (is_last or _KEY.search(text)) and has_open_dictionary(text):
            self._raw.warn("truncated-record", line)
            taken = True
        return taken

    def finish(self) -> None:
        """Do nothing: each record is complete with its dictionary."""


def _record(line: int, stream: str, numbers: Numbers) -> TrainingRecord | None:
    """Return the record of a dictionary; None where it has no first choice."""
    for place in _PLACES:
        heads = by_depth(numbers, place + "medusa{}_top1") or by_depth(
            numbers, place + "medusa_{}_top1"
        )
        first = number(numbers, place + "top_1_acc")
        if heads or first is not None:
            break
    else:
        return None
    accuracies = heads or (() if first is None else (first,))
    is_evaluation = place.startswith("eval")
    return TrainingRecord(
        format="H1",
        split=Split.VAL if is_evaluation else Split.TRAIN,
        line=line,
        stream=stream,
        accuracies={Kind.MARGINAL: accuracies},
        losses=by_depth(numbers, place + "medusa{}_loss"),
        total_loss=number(numbers, place + "loss"),
        learning_rate=number(numbers, "learning_rate"),
        epoch=number(numbers, "epoch"),
        hints=frozenset() if heads else frozenset({"top_k_acc"}),
        rounding=finest(accuracies) or _ROUNDING,
    )
