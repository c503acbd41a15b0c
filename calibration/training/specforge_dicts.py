"""The dictionaries that SpecForge prints, one a step: ``step 50: {'acc_0': 0.58, ...}`` (F4)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from calibration.training.dict_records import (
    Numbers,
    by_depth,
    dictionaries,
    finest,
    number,
    numbers_of,
)
from calibration.training.physical_lines import CutText
from calibration.training.records import Array, Kind, RawLog, Split, TrainingRecord
from calibration.training.uniform_rows import Layout, UniformRows

_RATE = frozenset({"acceptance_rate"})
_MOST_LAYOUTS: Final = 64
_FINEST_ROWS: Final = 20  # that say how accuracies are rounded
_STEP = re.compile(r"step (\d{1,12}):\s{0,4}(?=\{)", re.ASCII)
_OWN_KEY = re.compile(
    r"['\"](?:(?:train/|eval/)?(?:acc_\d|acceptance_rate_\d|ploss_\d)|eval/(?:per_position_acc|"
    r"simulated_acc_len|avg_acc)|(?:train/|eval/)?(?:accept_len|accuracy|acc)['\"])",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """What the dictionaries with some keys are, worked out once."""

    keys: list[str]  # all of them, in their order
    layout: Layout  # of the records; its first column is the step
    places: tuple[int, ...]  # which keys the other columns are


class StepDictionaries:
    """Reads the dictionaries of steps."""

    def __init__(self, raw: RawLog, rows: UniformRows) -> None:
        self._raw = raw
        self._rows = rows
        # Keys of dictionaries that were read and may be read quickly, the oldest first.
        self.known: list[KnownKeys] = []
        self._rounding: float | None = None
        self._num_rounded = 0

    def take(self, line: int, stream: str, text: str) -> bool:
        """Take the dictionaries of steps; one without its end is dropped."""
        starts = {found.end(): int(found[1]) for found in _STEP.finditer(text)}
        if not starts:
            return False
        taken = False
        for start, body in dictionaries(text):
            step = starts.pop(start, None)
            if step is not None and _OWN_KEY.search(body):
                if not self._add_known(line, stream, step, body):
                    self._add_numbers(line, stream, step, numbers_of(body))
                taken = True
            elif step is not None and "'loss'" in body and "'lr'" in body:
                self._raw.num_without_metrics += 1
                self._raw.loss_only.add(self._rows.family)
        for start in starts:  # those that are left were not closed
            end = text.find("{", start + 1)
            is_last = (
                end < 0 and isinstance(text, CutText) and self._rows.family in self._raw.tables
            )
            if is_last or _OWN_KEY.search(text, start, len(text) if end < 0 else end):
                self._raw.warn("truncated-record", line)
                taken = True
        return taken

    def add_known(
        self,
        known: KnownKeys,
        columns: dict[str, Sequence[float] | Array],
        streams: Sequence[str],
    ) -> None:
        """Add the records of many dictionaries with the same keys."""
        self._rows.extend(known.layout, columns, streams, rounding=self._rounding)

    def _add_known(self, line: int, stream: str, step: int, body: str) -> bool:
        """Add the record of a dictionary of known keys and finite numbers, quickly."""
        parts = (body + ", ").split("'")
        keys = parts[1::2]
        for known in self.known:
            if known.keys == keys:
                break
        else:
            return False
        if body.count("': ") != len(keys) or body.count(", '") != len(keys) - 1:
            return False
        try:
            values = [float(parts[2 * place + 2][2:-2]) for place in known.places]
        except ValueError:
            return False
        if not isfinite(sum(values)):
            return False
        values.insert(0, float(step))
        self._rows.add(known.layout, line, stream, values, rounding=self._rounding)
        return True

    def _add_numbers(self, line: int, stream: str, step: int, numbers: Numbers) -> None:
        """Add the record of a dictionary, and remember its keys."""
        record = _dictionary_record(line, stream, step, numbers)
        if record is None:
            return
        self._refine_rounding(record)
        known_keys = _known_keys(record, numbers)
        if self._num_rounded >= _FINEST_ROWS and known_keys and len(self.known) < _MOST_LAYOUTS:
            self.known.append(known_keys)
        self._rows.add_record(record)
        if self._rounding is not None:
            self._raw.table(self._rows.family, record.split).rounding = self._rounding

    def _refine_rounding(self, record: TrainingRecord) -> None:
        """Learn how finely accuracies are printed: the finest of the first dictionaries says it."""
        if self._num_rounded < _FINEST_ROWS:
            found = finest(record.accuracies.get(Kind.MARGINAL, ()))
            known = self._rounding
            self._rounding = found if known is None else min(known, found or known)
            self._num_rounded += 1


def _dictionary_record(
    line: int, stream: str, step: int, numbers: Numbers
) -> TrainingRecord | None:
    """Return the record of a dictionary; None where it has nothing to say."""
    is_evaluation = any(key.startswith("eval/") for key in numbers)
    place = "eval/" if is_evaluation else ""
    if not is_evaluation and any(key.startswith("train/") for key in numbers):
        place = "train/"
    marginal = by_depth(numbers, place + "acc_{}")
    listed = numbers.get(place + "per_position_acc")
    if isinstance(listed, tuple) and listed:
        marginal = listed
    first = number(numbers, place + "avg_acc") if is_evaluation else None
    if not marginal and first is not None:  # of the first depth
        marginal = (first,)
    accuracies = {
        Kind.MARGINAL: marginal,
        Kind.OVERLAP: by_depth(numbers, place + "acceptance_rate_{}"),
    }
    accuracies = {kind: values for kind, values in accuracies.items() if values}
    lengths = {key: number(numbers, place + key) for key in ("simulated_acc_len", "accept_len")}
    reported = {key: value for key, value in lengths.items() if value is not None}
    mean = number(numbers, place + "acc", place + "accuracy")
    losses = by_depth(numbers, place + "ploss_{}")
    if not accuracies and mean is None and not reported:
        return None
    return TrainingRecord(
        format="F4",
        split=Split.VAL if is_evaluation else Split.TRAIN,
        line=line,
        stream=stream,
        accuracies=accuracies,
        losses=losses,
        total_loss=number(numbers, place + "avg_loss", place + "loss"),
        mean_marginal=mean,
        learning_rate=number(numbers, place + "lr"),
        step=step,
        reported=reported,
        hints=_RATE if Kind.OVERLAP in accuracies else frozenset(),
    )


def _known_keys(record: TrainingRecord, numbers: Numbers) -> KnownKeys | None:
    """Return where the values of a record stand among the numbers; None where there are lists."""
    if any(isinstance(value, tuple) for value in numbers.values()):
        return None
    place = "train/" if any(key.startswith("train/") for key in numbers) else ""
    wanted = {
        f"marginal_{depth}": f"{place}acc_{depth}"
        for depth in range(len(record.accuracies.get(Kind.MARGINAL, ())))
    }
    wanted |= {
        f"overlap_{depth}": f"{place}acceptance_rate_{depth}"
        for depth in range(len(record.accuracies.get(Kind.OVERLAP, ())))
    }
    wanted |= {f"loss_{depth}": f"{place}ploss_{depth}" for depth in range(len(record.losses))}
    scalars = {"total_loss": "loss", "mean_marginal": "acc", "learning_rate": "lr"}
    wanted |= {column: place + key for column, key in scalars.items() if place + key in numbers}
    found = (record.total_loss, record.mean_marginal, record.learning_rate)
    is_whole = len([value for value in found if value is not None]) == len(wanted.keys() & scalars)
    if not is_whole or record.split is Split.VAL or record.reported:
        return None
    order = {key: index for index, key in enumerate(numbers)}
    layout = Layout(
        format=record.format,
        split=record.split,
        columns=("step", *wanted),
        hints=record.hints,
    )
    return KnownKeys(list(numbers), layout, tuple(order[key] for key in wanted.values()))
