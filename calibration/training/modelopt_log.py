"""ModelOpt on the console: lines of a step, and a dictionary of the same numbers (M1).

``Step 500 Training Acc: [...]`` and ``Step 500 Estimated Training AR: ...`` come from a callback, the
dictionary from HF Trainer; which is printed first depends on the order of the callbacks.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from calibration.training.lines import (
    NUMBER,
    Numbers,
    depths_of,
    dictionaries,
    finest,
    half_unit,
    has_open_dictionary,
    is_cut,
    list_numbers,
    number,
    numbers_of,
    printed_number,
)
from calibration.training.records import PRINTED_NAN, Kind, RawLog, Split, by_depth

FAMILY: Final = "modelopt"

_ESTIMATE = "estimated_training_ar"
_MEASURED = "AR"
_ROUNDING = 0.0005  # where nothing says it
_ESTIMATE_ROUNDING = 0.000_051
_ACCURACIES = re.compile(
    r"\bStep (\d{1,12}) Training Acc(?:uracy)?:\s{0,4}\[{1,2}([^\[\]\r\n]{0,2000})(\]?)", re.ASCII
)
_LENGTH = re.compile(
    rf"\bStep (\d{{1,12}}) (Estimated Training )?AR:\s{{0,4}}({NUMBER})(?![\w.])",
    re.ASCII | re.IGNORECASE,
)
_ITEM = re.compile(r"[^\s,'\"]{1,40}")
_KEY = re.compile(r"parallel_0_step_\d{1,3}", re.ASCII)
_PATTERNS = ("train_acc/parallel_0_step_{}", "parallel_0_step_{}_train_acc")


@dataclass(slots=True)
class _Pending:
    """A record that more may be printed of."""

    line: int
    stream: str
    step: int | None = None
    accuracies: tuple[float, ...] = ()
    rounding: float = 0.0
    losses: dict[str, float | None] = field(default_factory=dict)  # and what stands with them
    reported: dict[str, float] = field(default_factory=dict)
    has_dictionary: bool = False


class ModelOptLines:
    """Reads the records of ModelOpt."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._pending: _Pending | None = None
        self._rollout: tuple[int, int, str, float] | None = None  # step, line, stream, value

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of ModelOpt, or a dictionary that belongs to one."""
        taken = False
        if "Step " in text:
            taken = self._take_accuracies(line, stream, text)
            taken = self._take_lengths(line, stream, text) or taken
        if "{" in text and ("parallel_0_step_" in text or self._pending is not None):
            taken = self._take_dictionaries(line, stream, text) or taken
        return taken

    def finish(self) -> None:
        """End the last record."""
        if self._pending is None and self._rollout is not None:
            step, line, stream, _ = self._rollout
            self._pending = _Pending(line, stream, step=step)
        self._end(is_last=True)

    def _take_accuracies(self, line: int, stream: str, text: str) -> bool:
        """Take the accuracies of a step."""
        taken = False
        for found in _ACCURACIES.finditer(text):
            taken = True
            if not found[3]:
                self._raw.warn("truncated-record", line)
                continue
            items = _ITEM.findall(found[2])
            step, accuracies = int(found[1]), list_numbers(found[2])
            rounding = max((half_unit(item) or 0.0 for item in items), default=0.0)
            pending = self._pending
            if pending is not None and pending.step == step and not pending.accuracies:
                pending.accuracies, pending.rounding = accuracies, rounding
            elif pending is not None and _is_same(pending, accuracies, rounding):
                pending.step = step
            else:
                self._begin(_Pending(line, stream, step, accuracies, rounding))
        return taken

    def _take_lengths(self, line: int, stream: str, text: str) -> bool:
        """Take the accept lengths of a step, estimated or from a rollout."""
        taken = False
        for found in _LENGTH.finditer(text):
            taken = True
            step, value = int(found[1]), printed_number(found[3])
            if value is None or is_cut(text, found.end()):
                self._raw.warn("truncated-record", line)
            elif found[2]:
                self._take_estimate(line, stream, step, value)
            elif self._pending is not None and self._pending.step == step:
                self._pending.reported[_MEASURED] = value
            else:
                self._rollout = (step, line, stream, value)
        return taken

    def _take_estimate(self, line: int, stream: str, step: int, value: float) -> None:
        """Add the estimate of a step to its record, or begin one."""
        pending = self._pending
        if (
            pending is None
            or (
                pending.step is None
                and not _is_same_estimate(pending.reported.get(_ESTIMATE), value)
            )
            or pending.step not in (None, step)
        ):
            pending = self._begin(_Pending(line, stream))
        pending.step = step
        pending.reported.setdefault(_ESTIMATE, value)

    def _take_dictionaries(self, line: int, stream: str, text: str) -> bool:
        """Take dictionaries with accuracies, and those of losses that follow the line of a step."""
        taken = False
        for _, body in dictionaries(text):
            has_accuracies = _KEY.search(body) is not None
            if has_accuracies or "'loss'" in body:
                numbers = numbers_of(body)
                found = (depths_of(numbers, one) for one in _PATTERNS)  # of either age
                accuracies = next(filter(None, found), ())
                if accuracies:
                    self._take_numbers(line, stream, numbers, accuracies)
                    taken = True
                elif not has_accuracies and self._pending and not self._pending.has_dictionary:
                    _put_losses(self._pending, numbers)
                    taken = True
        if _KEY.search(text) and has_open_dictionary(text):
            self._raw.warn("truncated-record", line)
            taken = True
        return taken

    def _take_numbers(
        self, line: int, stream: str, numbers: Numbers, accuracies: tuple[float, ...]
    ) -> None:
        """Take the numbers of a dictionary with accuracies."""
        rounding = finest(accuracies) or _ROUNDING
        estimate = number(numbers, _ESTIMATE, "train/" + _ESTIMATE)
        pending = self._pending
        if pending is None or pending.has_dictionary:
            pending = self._begin(_Pending(line, stream))
        elif pending.accuracies:
            if not _are_equal(pending.accuracies, accuracies, pending.rounding):
                pending = self._begin(_Pending(line, stream))
        elif not _is_same_estimate(estimate, pending.reported.get(_ESTIMATE)):
            pending = self._begin(_Pending(line, stream))
        if rounding <= pending.rounding or not pending.accuracies:  # more digits than the line
            pending.accuracies, pending.rounding = accuracies, rounding
        _put_losses(pending, numbers)
        if estimate is not None:
            pending.reported.setdefault(_ESTIMATE, estimate)

    def _begin(self, pending: _Pending) -> _Pending:
        """End the record before and begin one."""
        self._end()
        self._pending = pending
        return pending

    def _end(self, *, is_last: bool = False) -> None:
        """Add the record that is kept."""
        pending = self._pending
        self._pending = None
        if pending is None:
            return
        rollout = self._rollout
        if rollout is not None and (
            is_last or pending.step is None or rollout[0] <= pending.step
        ):  # of this step, or of one that has no record
            pending.reported.setdefault(_MEASURED, rollout[3])
            self._rollout = None
        values = by_depth(Kind.MARGINAL, pending.accuracies) | {
            "step": pending.step,
            **pending.losses,
            **{f"reported:{key}": value for key, value in pending.reported.items()},
        }
        rounding = pending.rounding if pending.accuracies else None
        self._raw.add(
            FAMILY, Split.TRAIN, "M1", pending.line, pending.stream, values, rounding=rounding
        )


def _put_losses(pending: _Pending, numbers: Numbers) -> None:
    """Add what HF Trainer says about a step."""
    keys = {"total_loss": "loss", "learning_rate": "learning_rate", "epoch": "epoch"}
    pending.losses = {name: number(numbers, key) for name, key in keys.items()}
    pending.has_dictionary = True


def _is_same(pending: _Pending, accuracies: tuple[float, ...], rounding: float) -> bool:
    """Return whether the accuracies of a line are those of the record that is kept."""
    if pending.step is not None or not pending.has_dictionary:
        return False
    return _are_equal(pending.accuracies, accuracies, rounding)


def _is_same_estimate(one: float | None, other: float | None) -> bool:
    """Return whether a line and a dictionary print one estimate; the line has four decimals."""
    return one is not None and other is not None and abs(one - other) <= _ESTIMATE_ROUNDING


def _are_equal(one: tuple[float, ...], other: tuple[float, ...], rounding: float) -> bool:
    """Return whether two prints of accuracies are of the same numbers."""
    if not one or len(one) != len(other):
        return False
    most = rounding * 1.01  # what binary fractions add
    pairs = zip(one, other, strict=True)
    return all(a == b or (a < PRINTED_NAN > b and abs(a - b) <= most) for a, b in pairs)
