"""SpecForge on the console: epoch blocks (F1), step blocks (F2), bars (F3) and dictionaries (F4)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from calibration.training.alike_blocks import NUMBER, Pattern
from calibration.training.lines import (
    MOST_DEPTHS,
    Bars,
    CutText,
    Numbers,
    dictionaries,
    finest,
    numbers_of,
    split_prefix,
)
from calibration.training.position_blocks import (
    Block,
    EpochBlocks,
    OpenBlocks,
    add_block,
    position_lines,
)
from calibration.training.records import Array, Kind, RawLog, Split, by_depth

FAMILY: Final = "specforge"

# ---
# The dictionaries that SpecForge prints, one a step: ``step 50: {'acc_0': 0.58, ...}`` (F4).
_RATE = frozenset({"acceptance_rate"})
_MOST_LAYOUTS: Final = 64
_FINEST_ROWS: Final = 20  # that say how accuracies are rounded
_BY_DEPTH: Final = {
    Kind.MARGINAL: ("per_position_acc", "acc"),
    Kind.OVERLAP: ("acceptance_rate",),
    "loss": ("ploss",),
}
_WHOLE: Final = {
    "total_loss": ("avg_loss", "loss"),
    "mean_marginal": ("acc", "accuracy"),
    "learning_rate": ("lr",),
    "reported:simulated_acc_len": ("simulated_acc_len",),
    "reported:accept_len": ("accept_len",),
}
_STEP = re.compile(r"step (\d{1,12}):\s{0,4}(?=\{)", re.ASCII)
_OWN_KEY = re.compile(
    r"['\"](?:(?:train/|eval/)?(?:acc_\d|acceptance_rate_\d|ploss_\d)|eval/(?:per_position_acc|"
    r"simulated_acc_len|avg_acc)|(?:train/|eval/)?(?:accept_len|accuracy|acc)['\"])",
    re.ASCII,
)


class StepKeys(NamedTuple):
    """What the dictionaries with some keys are."""

    keys: tuple[str, ...]  # all of them, in their order
    split: Split
    columns: Mapping[str, int]  # place of the key by column

    @property
    def hints(self) -> frozenset[str]:
        """What tells the version apart."""
        return _RATE if f"{Kind.OVERLAP}_0" in self.columns else frozenset()


class StepDictionaries:
    """Reads the dictionaries of steps."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        # Keys of dictionaries that were read and may be taken in blocks, the oldest first.
        self.known: list[StepKeys] = []
        self.rounding: float | None = None
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
                self._add(line, stream, step, numbers_of(body))
                taken = True
            elif step is not None and "'loss'" in body and "'lr'" in body:
                self._raw.without_accuracy(FAMILY)
        for start in starts:  # those that are left were not closed
            end = text.find("{", start + 1)
            is_last = end < 0 and isinstance(text, CutText) and FAMILY in self._raw.tables
            if is_last or _OWN_KEY.search(text, start, len(text) if end < 0 else end):
                self._raw.warn("truncated-record", line)
                taken = True
        return taken

    def _add(self, line: int, stream: str, step: int, numbers: Numbers) -> None:
        """Add the record of a dictionary, and remember its keys."""
        plain: dict[str, float] = {}
        for key, value in numbers.items():
            if not isinstance(value, tuple):
                plain[key] = value
            elif key.endswith("per_position_acc"):
                plain |= by_depth(key, value)
        known = _step_keys(tuple(plain))
        if known is None:
            return
        printed = list(plain.values())
        values: dict[str, float] = {name: printed[at] for name, at in known.columns.items()}
        if self._num_rounded < _FINEST_ROWS:  # the finest of the first dictionaries says it
            accuracies = [v for name, v in values.items() if name.startswith(Kind.MARGINAL)]
            found = finest(accuracies)
            self.rounding = min(filter(None, (found, self.rounding)), default=None)
            self._num_rounded += 1
        elif known not in self.known and plain == numbers and len(self.known) < _MOST_LAYOUTS:
            self.known.append(known)
        values["step"] = step
        self._raw.add(
            FAMILY, known.split, "F4", line, stream, values,
            hints=known.hints, rounding=self.rounding,
        )  # fmt: skip


@lru_cache(maxsize=_MOST_LAYOUTS)
def _step_keys(keys: tuple[str, ...]) -> StepKeys | None:
    """Return what a dictionary with some keys is; None where it has nothing to say."""
    is_evaluation = any(key.startswith("eval/") for key in keys)
    is_named = any(key.startswith("train/") for key in keys)
    above = "eval/" if is_evaluation else "train/" if is_named else ""
    places = {key: place for place, key in enumerate(keys)}
    columns: dict[str, int] = {}
    for column, names in _BY_DEPTH.items():
        for name in names:
            depth = 0
            while f"{above}{name}_{depth}" in places and depth < MOST_DEPTHS:
                columns.setdefault(f"{column}_{depth}", places[f"{above}{name}_{depth}"])
                depth += 1
            if depth:
                break
    for column, names in _WHOLE.items():
        for name in names:
            if above + name in places:
                columns.setdefault(column, places[above + name])
    if is_evaluation and "eval/avg_acc" in places:  # of the first depth
        columns.setdefault(f"{Kind.MARGINAL}_0", places["eval/avg_acc"])
    says = (Kind.MARGINAL, Kind.OVERLAP, "mean_marginal", "reported:")
    if not any(name.startswith(says) for name in columns):
        return None
    return StepKeys(keys, Split.VAL if is_evaluation else Split.TRAIN, columns)


# ---
# Patterns of dictionaries that look alike, for `AlikeBlocks`.
_OTHER = rb"[^,'{}\r\n]{1,60}"
_START = rb"([^\r\n{]{0,200}?)step (\d{1,12}): \{"
_END = rb"\}[ ]{0,200}\n"
_RECORD = "step 1: {"  # how what stands behind a prefix begins
_OTHERS_MARKS = ("position ", "Training Epoch ")  # of records that would be glued in front


def _label(before: bytes) -> str | None:
    """Return the label of a stream; None where what stands in front may be something else."""
    text = before.decode("utf-8", "replace")
    label, behind = split_prefix(text + _RECORD)
    is_sound = behind.endswith(_RECORD) and not any(mark in text for mark in _OTHERS_MARKS)
    return label if is_sound else None


_BAR_KEYS: Final = {"acc": "mean_marginal", "loss": "total_loss"}
_BAR = re.compile(r"\bTraining Epoch (\d{1,9})$", re.ASCII)


class SpecForgeLines:
    """Reads the records of SpecForge."""

    def __init__(self, raw: RawLog, *, takes_open: bool = False) -> None:
        self._raw = raw
        self._takes_open = takes_open
        self._bars = Bars(raw, FAMILY, "F3", _BAR, "acc", _BAR_KEYS)
        self._dictionaries = StepDictionaries(raw)
        self._num_patterns = 0
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

    def learnt(self, takes: Callable[[], bool]) -> Iterator[Pattern]:
        """Yield patterns of the dictionaries that are new, for `AlikeBlocks`."""
        new = self._dictionaries.known[self._num_patterns :]
        self._num_patterns += len(new)
        for known in new:
            names = {place: name for name, place in known.columns.items()}
            keys = [re.escape(key.encode()) for key in known.keys]
            pairs = (
                b"'" + key + b"': " + (NUMBER if place in names else _OTHER)
                for place, key in enumerate(keys)
            )
            yield Pattern(
                compiled=re.compile(_START + b", ".join(pairs) + _END),
                beginning=b": {'" + known.keys[0].encode() + b"': ",
                names=("step", *(names[place] for place in sorted(names))),
                label=_label,
                takes=takes,
                store=partial(self._store, known),
            )

    def finish(self) -> None:
        """End the last block and the last bar."""
        self._blocks.close()
        self._bars.end(is_last=True)
        self._epochs.takes_open = self._takes_open or FAMILY in self._raw.tables
        self._epochs.finish()

    def _store(
        self,
        known: StepKeys,
        columns: Mapping[str, Sequence[float] | Array],
        streams: Sequence[str],
    ) -> None:
        """Add dictionaries that look alike."""
        self._bars.end()
        hints, rounding = known.hints, self._dictionaries.rounding
        self._raw.extend(
            FAMILY, known.split, "F4", columns, streams, hints=hints, rounding=rounding
        )

    def _take_block(self, block: Block) -> None:
        """Take a complete block of an epoch or a step."""
        if not block.key[0].endswith("Step"):
            self._epochs.take(block)
            return
        if block.has_accuracy:
            add_block(self._raw, FAMILY, block, "F2")
        else:
            self._raw.without_accuracy(FAMILY)

    def _drop_block(self, block: Block) -> None:
        """Say that a block is not complete; EAGLE-3 says it of those of training."""
        if block.key[0] not in ("Train", "Test"):
            self._raw.warn("truncated-record", block.line)
