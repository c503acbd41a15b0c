"""SpecForge on the console: epoch blocks (F1), step blocks (F2), bars (F3) and dictionaries (F4)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from typing import Final

import numpy as np

from calibration.training.lines import (
    CutText,
    EpochBar,
    EpochBars,
    Numbers,
    PrintedNumbers,
    by_depth,
    dictionaries,
    finest,
    number,
    numbers_of,
    printed_number,
    split_prefix,
)
from calibration.training.position_blocks import (
    Block,
    EpochBlocks,
    OpenBlocks,
    block_record,
    position_lines,
)
from calibration.training.records import (
    Array,
    Kind,
    Layout,
    RawLog,
    Split,
    TrainingRecord,
    UniformRows,
)

# ---
# The dictionaries that SpecForge prints, one a step: ``step 50: {'acc_0': 0.58, ...}`` (F4).
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
        self, known: KnownKeys, columns: dict[str, Sequence[float] | Array], streams: Sequence[str]
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
        if self._num_rounded < _FINEST_ROWS:  # the finest of the first dictionaries says it
            found, before = finest(record.accuracies.get(Kind.MARGINAL, ())), self._rounding
            self._rounding = found if before is None else min(before, found or before)
            self._num_rounded += 1
        known_keys = _known_keys(record, numbers)
        if self._num_rounded >= _FINEST_ROWS and known_keys and len(self.known) < _MOST_LAYOUTS:
            self.known.append(known_keys)
        self._rows.add_record(record)
        if self._rounding is not None:
            self._raw.table(self._rows.family, record.split).rounding = self._rounding


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
        format=record.format, split=record.split, columns=("step", *wanted), hints=record.hints
    )
    return KnownKeys(list(numbers), layout, tuple(order[key] for key in wanted.values()))


# ---
# Many dictionaries of steps of SpecForge at once, where they look alike.
#
# A pattern is made from the keys of dictionaries that were read one by one; lines that match it are taken
# many at a time. What does not match exactly is left to be read one by one: the result is the same.
_MOST_RECORDS: Final = 4096  # that are taken at once
_MOST_KNOWN: Final = 1 << 12
_NUMBER = rb"([\d.e+-]{1,30})"
_OTHER = rb"[^,'{}\r\n]{1,60}"
_START = rb"([^\r\n{]{0,200}?)step (\d{1,12}): \{"
_END = rb"\}[ ]{0,200}\n"
_RECORD = "step 1: {"  # how what stands behind a prefix begins
_OTHERS_MARKS = ("position ", "Training Epoch ")  # of records that would be glued in front


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What dictionaries with certain keys look like."""

    known: KnownKeys
    # Columns of `RecordTable` in the order in which the numbers are printed.
    names: tuple[str, ...]
    compiled: re.Pattern[bytes]
    beginning: bytes


@dataclass(slots=True)
class StepBlocks:
    """Takes the dictionaries that look alike out of blocks of a log."""

    dictionaries: StepDictionaries  # what reads them one by one, and knows their keys
    before: Callable[[], None]  # called before some are taken
    _patterns: list[_Pattern] = field(init=False, default_factory=list)
    _numbers: PrintedNumbers = field(init=False, default_factory=PrintedNumbers)
    _streams: dict[bytes, str | None] = field(init=False, default_factory=dict)

    def rest(
        self, first_line: int, block: bytes, may_take: Callable[[], bool]
    ) -> Iterator[tuple[int, bytes]]:
        """Take dictionaries and yield what is left, in the order of the file."""
        self._patterns += [_pattern(k) for k in self.dictionaries.known[len(self._patterns) :]]
        found: dict[bytes, int] = {}
        place = left = 0
        while (start := self._next(block, place, found)) < len(block):
            run = self._run(block, start)
            if run is None:
                place = block.find(b"\n", start) + 1 or len(block)
                continue
            pattern, place, groups = run
            if left < start:
                yield first_line, block[left:start]
                first_line += block.count(b"\n", left, start)
                left = start
            if may_take() and self._take(pattern, groups, first_line):
                first_line, left = first_line + len(groups), place
        if left < len(block):
            yield first_line, block[left:]

    def _next(self, block: bytes, place: int, found: dict[bytes, int]) -> int:
        """Return where the next line begins that may hold a dictionary of a pattern."""
        first = len(block)
        for pattern in self._patterns:
            text = pattern.beginning
            if found.get(text, -1) < place:  # no byte is searched twice
                at = block.find(text, place)
                found[text] = at if at >= 0 else len(block)
            first = min(first, found[text])
        if first == len(block):
            return first
        start = max(place, block.rfind(b"\n", place, first) + 1)
        return max(start, block.rfind(b"\r", start, first) + 1)

    def _run(
        self, block: bytes, start: int
    ) -> tuple[_Pattern, int, list[tuple[bytes, ...]]] | None:
        """Return a pattern, where its dictionaries that begin at a place end, and their groups."""
        alike = (one for one in self._patterns if one.compiled.match(block, start))
        pattern = next(alike, None)
        if pattern is None:
            return None
        matches, place = pattern.compiled.match, start
        groups: list[tuple[bytes, ...]] = []
        while len(groups) < _MOST_RECORDS:
            match = matches(block, place)
            if match is None or self._stream(match[1]) is None:
                break
            groups.append(match.groups())
            place = match.end()
        return (pattern, place, groups) if groups else None

    def _stream(self, prefix: bytes) -> str | None:
        """Return the label of a stream; None where what stands in front may be something else."""
        if prefix not in self._streams:
            if len(self._streams) >= _MOST_KNOWN:  # time stamps
                self._streams.clear()
            text = prefix.decode("utf-8", "replace")
            label, behind = split_prefix(text + _RECORD)
            is_sound = behind.endswith(_RECORD) and not any(mark in text for mark in _OTHERS_MARKS)
            self._streams[prefix] = label if is_sound else None
        return self._streams[prefix]

    def _take(self, pattern: _Pattern, groups: list[tuple[bytes, ...]], first_line: int) -> bool:
        """Add the dictionaries of a run; False where one is not sound: all are read one by one."""
        try:
            numbers = self._numbers.table([group[1:] for group in groups])
        except ValueError:
            return False
        if not np.isfinite(numbers).all():
            return False
        columns: dict[str, Sequence[float] | Array] = {
            "line": np.arange(first_line, first_line + len(groups), dtype=np.float64)
        }
        columns |= zip(pattern.names, numbers, strict=True)
        self.before()
        labels = [self._stream(group[0]) or "" for group in groups]
        self.dictionaries.add_known(pattern.known, columns, labels)
        return True


def _pattern(known: KnownKeys) -> _Pattern:
    """Return what dictionaries with certain keys look like."""
    names = dict(zip(known.places, known.layout.columns[1:], strict=True))
    keys = [re.escape(key.encode()) for key in known.keys]
    values = [_NUMBER if place in names else _OTHER for place in range(len(keys))]
    pairs = (b"'" + key + b"': " + value for key, value in zip(keys, values, strict=True))
    return _Pattern(
        known=known,
        names=("step", *(names[place] for place in sorted(names))),
        compiled=re.compile(_START + b", ".join(pairs) + _END),
        beginning=b": {'" + known.keys[0].encode() + b"': ",
    )


FAMILY: Final = "specforge"

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
        self._epochs = EpochBlocks(raw, FAMILY, "F1", "Eval", takes_open)
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
        values: tuple[float, ...] = (float(bar.state.counter), bar.epoch, accuracy)
        values = values if loss is None else (*values, loss)
        self._rows.add(layout, bar.line, bar.stream, values, total_steps=bar.state.total)


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
