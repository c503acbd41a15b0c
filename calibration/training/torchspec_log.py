"""TorchSpec on the console: a bar in training, and a line from each of two loggers in evaluation (T1)."""

import re
from dataclasses import dataclass, replace
from typing import Final

from calibration.training.number_text import NUMBER, printed_number
from calibration.training.physical_lines import CutText
from calibration.training.progress_bars import BarState, LatestBars, bar_states, is_cut
from calibration.training.records import RawLog, Split, TrainingRecord
from calibration.training.uniform_rows import Layout, UniformRows

FAMILY: Final = "torchspec"

_LENGTHS = ("acc_len", "sim_acc_len", "simulated_acc_len")
_LONGEST_PREFIX = 200
_EPOCH = re.compile(r"(\d{1,9})(?:/\d{1,9})?", re.ASCII | re.IGNORECASE)
_EVALUATION = re.compile(
    rf"(?:\b[Ss]tep (?P<step>\d{{1,12}})[ :,-]{{1,3}})?\beval: "
    rf"(?P<pairs>\w{{1,40}}=(?:{NUMBER})(?:, ?\w{{1,40}}=(?:{NUMBER})){{0,40}})",
    re.ASCII | re.IGNORECASE,
)
_PAIR = re.compile(rf"(\w{{1,40}})=({NUMBER})", re.ASCII | re.IGNORECASE)
_RANK = re.compile(r"\bRANK:(\d{1,6})\]", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A state of the training bar."""

    line: int
    stream: str
    state: BarState


class TorchSpecLines:
    """Reads the records of TorchSpec."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._rows = UniformRows(raw, FAMILY)
        self._bars: LatestBars[_Bar] = LatestBars()
        self._evaluation: TrainingRecord | None = None
        self._is_twice = False

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of TorchSpec."""
        taken = False
        is_last = isinstance(text, CutText) and FAMILY in self._raw.tables
        if "acc_len=" not in text and not is_last:
            return False
        if "eval: " in text:
            taken = self._take_evaluations(line, stream, text)
        for state in bar_states(text):
            is_cut_short = not state.is_closed and state.description.endswith("Training")
            if "acc_len" not in state.pairs and not is_cut_short:
                continue
            taken = True
            before = self._bars.replace(stream, state.counter, _Bar(line, stream, state))
            if before is not None:
                self._add_bar(before)
        return taken

    def finish(self) -> None:
        """End the last bar and the last evaluation."""
        for bar in self._bars.take_all():
            if bar.state.is_closed:
                self._add_bar(bar)
            else:
                self._raw.warn("truncated-record", bar.line)
        self._rows.flush()
        self._end_evaluation()

    def _add_bar(self, bar: _Bar) -> None:
        """Add the last state of a counter."""
        pairs = bar.state.pairs
        epoch = _EPOCH.match(pairs.get("epoch", ""))
        values = {
            "step": float(bar.state.counter),
            "epoch": float(epoch[1]) if epoch else None,
            "total_loss": printed_number(pairs.get("loss", "")),
            "mean_marginal": printed_number(pairs.get("acc", "")),
            "reported:acc_len": printed_number(pairs.get("acc_len", "")),
        }
        known = {name: value for name, value in values.items() if value is not None}
        if "mean_marginal" not in known and "reported:acc_len" not in known:
            return
        layout = Layout(format="T1", split=Split.TRAIN, columns=tuple(known))
        self._rows.add(
            layout, bar.line, bar.stream, tuple(known.values()), total_steps=bar.state.total
        )

    def _take_evaluations(self, line: int, stream: str, text: str) -> bool:
        """Take the evaluations of a line."""
        taken = False
        for found in _EVALUATION.finditer(text):
            pairs = {key: printed_number(value) for key, value in _PAIR.findall(found["pairs"])}
            lengths = {key: value for key, value in pairs.items() if key in _LENGTHS}
            accuracy = pairs.get("acc")
            goes_on = isinstance(text, CutText) and text.startswith(",", found.end())
            if goes_on or is_cut(text, found.end()):
                self._raw.warn("truncated-record", line)
                taken = True
                continue
            if accuracy is None and not lengths:
                continue
            taken = True
            rank = _RANK.search(text, max(0, found.start() - _LONGEST_PREFIX), found.start())
            self._take_evaluation(
                TrainingRecord(
                    format="T1",
                    split=Split.VAL,
                    line=line,
                    stream=stream or (f"RANK:{rank[1]}" if rank else ""),
                    total_loss=pairs.get("loss"),
                    mean_marginal=accuracy,
                    step=int(found["step"]) if found["step"] else None,
                    reported={key: value for key, value in lengths.items() if value is not None},
                )
            )
        return taken

    def _take_evaluation(self, record: TrainingRecord) -> None:
        """Keep an evaluation until it is known whether it is printed twice."""
        before = self._evaluation
        if before is None or not _same_result(before, record):
            self._end_evaluation()
            self._evaluation = record
        elif not self._is_twice and (before.step is None) != (record.step is None):
            named = before if before.step is not None else record
            self._evaluation = replace(named, line=before.line)
            self._is_twice = True
        else:  # a copy of another process, or the same result at another step
            self._end_evaluation()
            step = before.step if record.step is None else record.step
            self._evaluation = replace(record, step=step)

    def _end_evaluation(self) -> None:
        """Add the evaluation that is kept."""
        if self._evaluation is not None:
            self._raw.add(FAMILY, self._evaluation)
        self._evaluation = None
        self._is_twice = False


def _same_result(one: TrainingRecord, other: TrainingRecord) -> bool:
    """Return whether two records print the same numbers."""
    return (
        one.total_loss == other.total_loss
        and one.mean_marginal == other.mean_marginal
        and one.reported == other.reported
        and (one.step is None or other.step is None or one.step == other.step)
    )
