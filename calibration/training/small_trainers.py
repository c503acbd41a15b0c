"""Logs of trainers with a line or a table a record: Automodel, DeepSpec, EAGLE, HF Trainer, TorchSpec."""

import re
from typing import Final, NamedTuple

from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.lines import (
    NUMBER,
    Bars,
    CutText,
    Numbers,
    depths_of,
    dictionaries,
    finest,
    half_unit,
    has_open_dictionary,
    is_cut,
    number,
    numbers_of,
    printed_number,
)
from calibration.training.position_blocks import Block, EpochBlocks, OpenBlocks, position_lines
from calibration.training.records import Kind, RawLog, Split, by_depth
from specmodel.units import PERCENT

# ---
# NeMo Automodel on the console: a line a record, and bars that show the same (N1).
AUTOMODEL: Final = "automodel"

_BAR_KEYS: Final = {
    "acc": "mean_marginal",
    "loss": "total_loss",
    "lr": "learning_rate",
    "tau": "reported:tau_sim",
}
_BAR = re.compile(r"\bepoch (\d{1,9})$", re.ASCII | re.IGNORECASE)
_PAIR = re.compile(rf"(?<![\w./-])(\w{{1,40}})=({NUMBER})(?![\w.+/])", re.ASCII | re.IGNORECASE)
_LENGTHS = ("tau_sim", "tau_real", "accept_len")
# What a line is, which data it is about, and what stands before its keys.
_KINDS: Final = (
    (re.compile(r"\bdecode_eval: step=", re.ASCII), Split.VAL, ""),
    (re.compile(r"\bFinished epoch (\d{1,9})/\d", re.ASCII), Split.VAL, "val_"),
    (re.compile(r"\btrain_(?:acc|loss)=", re.ASCII | re.IGNORECASE), Split.TRAIN, "train_"),
    (re.compile(r"\bval_(?:acc|loss)=", re.ASCII | re.IGNORECASE), Split.VAL, "val_"),
    (re.compile(r"\bepoch=\d{1,9} step=\d{1,12} loss=.{0,40}\bacc=", re.ASCII), Split.TRAIN, ""),
    (re.compile(r"\b\w{1,40}: .{0,400}\baccept_len=", re.ASCII), Split.TRAIN, ""),
)


class AutomodelLines:
    """Reads the records of NeMo Automodel; those of bars have the format ``N1-bar``."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._bars = Bars(raw, AUTOMODEL, "N1-bar", _BAR, "acc", _BAR_KEYS)
        self._places: dict[str, dict[str, float]] = {}  # of the last record, by stream

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of Automodel."""
        taken = False
        if "acc=" in text or "_loss=" in text or "accept_len" in text:
            taken = self._take_line(line, stream, text)
        if "epoch " in text and "acc=" in text:
            taken = self._bars.take(line, stream, text) or taken
        return taken

    def finish(self) -> None:
        """End the last bar."""
        self._bars.end(is_last=True)
        self._places.clear()

    def _take_line(self, line: int, stream: str, text: str) -> bool:
        """Take a record line, or one that says more of the record above it."""
        kinds = ((found, *k[1:]) for k in _KINDS if (found := k[0].search(text)))
        if (kind := next(kinds, None)) is None:
            return False
        mark, split, above = kind
        pairs: dict[str, float] = {}
        end = 0
        for found in _PAIR.finditer(text):
            value = printed_number(found[2])
            if value is not None:
                pairs[found[1]] = value
                end = found.end()
        if mark.lastindex:  # epochs are counted from 0 in records
            pairs.setdefault("epoch", float(mark[1]) - 1.0)
        if "epoch" not in pairs and "step" not in pairs:
            pairs |= self._places.get(stream, {})
        if "epoch" not in pairs and "step" not in pairs:
            return False
        rest = text[end:].strip()
        if is_cut(text, end) or (isinstance(text, CutText) and rest and rest[0] != "("):
            self._raw.warn("truncated-record", line)
            return True
        self._places[stream] = {key: pairs[key] for key in ("epoch", "step") if key in pairs}
        names = {"step": "step", "epoch": "epoch", "lr": "learning_rate"} | {
            above + "acc": "mean_marginal",
            above + "loss": "total_loss",
            **{above + key: f"reported:{key}" for key in _LENGTHS},
            "accept_length": "reported:decode_eval",
        }
        known = {name: pairs[key] for key, name in names.items() if key in pairs}
        if not known.keys() - {"step", "epoch", "learning_rate", "total_loss"}:
            self._raw.without_accuracy(AUTOMODEL)
            return True
        self._bars.end()
        self._raw.add(AUTOMODEL, split, "N1", line, stream, known)
        return True


# ---
# DeepSpec on the console: losses and nothing else, ``epoch=1 step=10/1000 loss=4.9`` (D1).
DEEPSPEC: Final = "deepspec"

_LINE = re.compile(
    r"\bepoch=(\d{1,9})\s{1,4}step=(\d{1,12})/(\d{1,12})\s{1,4}"
    rf"loss=({NUMBER})(?![\w.])",
    re.ASCII | re.IGNORECASE,
)


class DeepSpecLines:
    """Reads the losses of DeepSpec."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of DeepSpec."""
        if "step=" not in text or "loss=" not in text:
            return False
        taken = False
        for found in _LINE.finditer(text):
            taken = True
            loss = printed_number(found[4])
            if loss is None or is_cut(text, found.end()):
                self._raw.warn("truncated-record", line)
                continue
            values = {"epoch": float(found[1]), "step": float(found[2]), "total_loss": loss}
            total = int(found[3])
            self._raw.add(DEEPSPEC, Split.TRAIN, "D1", line, stream, values, total_steps=total)
            self._raw.without_accuracy(DEEPSPEC)
        return taken

    def finish(self) -> None:
        """Do nothing: each record is a line."""


# ---
# The EAGLE repository: blocks of an epoch (EAGLE-3), and two lines of an epoch (EAGLE-1, HASS).
EAGLE3: Final = "eagle3"
EAGLE1: Final = "eagle1"

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
        self._epochs = EpochBlocks(raw, EAGLE3, "E1", "Test", takes_open=True)
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
            self._raw.table(EAGLE3, Split.TRAIN).hints.add(OPEN_FAMILY)

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
        values = {
            "marginal_0": value * PERCENT,
            "total_loss": self._losses.pop((stream, split), None),
            "epoch": self._epochs.get(stream),
        }
        rounding = (half_unit(found["value"]) or 0.0) * PERCENT
        self._raw.add(EAGLE1, split, "E2", line, stream, values, rounding=rounding)


# ---
# Scripts on HF Trainer that print dictionaries: the heads of Medusa, the accuracy of BaldEagle (H1).
HF_TRAINER: Final = "hf-trainer"

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
            if _KEY.search(body) and self._add(line, stream, numbers_of(body)):
                taken = True
            elif _LOSSES.search(body) and _RATE.search(body):
                self._raw.without_accuracy(HF_TRAINER)
        is_last = isinstance(text, CutText) and HF_TRAINER in self._raw.tables
        if (is_last or _KEY.search(text)) and has_open_dictionary(text):
            self._raw.warn("truncated-record", line)
            taken = True
        return taken

    def finish(self) -> None:
        """Do nothing: each record is complete with its dictionary."""

    def _add(self, line: int, stream: str, numbers: Numbers) -> bool:
        """Add the record of a dictionary; False where it has no first choice."""
        for place in _PLACES:
            heads = depths_of(numbers, place + "medusa{}_top1") or depths_of(
                numbers, place + "medusa_{}_top1"
            )
            first = number(numbers, place + "top_1_acc")
            if heads or first is not None:
                break
        else:
            return False
        accuracies = heads or (() if first is None else (first,))
        values = by_depth(Kind.MARGINAL, accuracies) | {
            **by_depth("loss", depths_of(numbers, place + "medusa{}_loss")),
            "total_loss": number(numbers, place + "loss"),
            "learning_rate": number(numbers, "learning_rate"),
            "epoch": number(numbers, "epoch"),
        }
        split = Split.VAL if place.startswith("eval") else Split.TRAIN
        rounding, hints = finest(accuracies) or _ROUNDING, () if heads else ("top_k_acc",)
        self._raw.add(HF_TRAINER, split, "H1", line, stream, values, hints=hints, rounding=rounding)
        return True


# ---
# TorchSpec on the console: a bar in training, and a line from each of two loggers in evaluation (T1).
TORCHSPEC: Final = "torchspec"

_TORCHSPEC_LENGTHS = ("acc_len", "sim_acc_len", "simulated_acc_len")
_TORCHSPEC_MEANS = {"acc": "mean_marginal", "loss": "total_loss"}
_LONGEST_PREFIX = 200
_TRAINING = re.compile(r"Training$")
_TRAINING_KEYS: Final = _TORCHSPEC_MEANS | {"acc_len": "reported:acc_len"}
_EVALUATION = re.compile(
    rf"(?:\b[Ss]tep (?P<step>\d{{1,12}})[ :,-]{{1,3}})?\beval: "
    rf"(?P<pairs>\w{{1,40}}=(?:{NUMBER})(?:, ?\w{{1,40}}=(?:{NUMBER})){{0,40}})",
    re.ASCII | re.IGNORECASE,
)
_TORCHSPEC_PAIR = re.compile(rf"(\w{{1,40}})=({NUMBER})", re.ASCII | re.IGNORECASE)
_RANK = re.compile(r"\bRANK:(\d{1,6})\]", re.ASCII | re.IGNORECASE)


class _Evaluation(NamedTuple):
    """An evaluation that may be printed twice."""

    line: int
    stream: str
    step: int | None
    values: dict[str, float | None]


class TorchSpecLines:
    """Reads the records of TorchSpec."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._bars = Bars(raw, TORCHSPEC, "T1", _TRAINING, "acc_len", _TRAINING_KEYS)
        self._evaluation: _Evaluation | None = None
        self._is_twice = False

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of TorchSpec."""
        taken = False
        is_last = isinstance(text, CutText) and TORCHSPEC in self._raw.tables
        if "acc_len=" not in text and not is_last:
            return False
        if "eval: " in text:
            taken = self._take_evaluations(line, stream, text)
        return self._bars.take(line, stream, text) or taken

    def finish(self) -> None:
        """End the last bar and the last evaluation."""
        self._bars.end(is_last=True)
        self._end_evaluation()

    def _take_evaluations(self, line: int, stream: str, text: str) -> bool:
        """Take the evaluations of a line."""
        taken = False
        for found in _EVALUATION.finditer(text):
            pairs = {
                key: printed_number(value) for key, value in _TORCHSPEC_PAIR.findall(found["pairs"])
            }
            values = {
                f"reported:{key}": pairs[key] for key in _TORCHSPEC_LENGTHS if key in pairs
            } | {name: pairs[key] for key, name in _TORCHSPEC_MEANS.items() if key in pairs}
            goes_on = isinstance(text, CutText) and text.startswith(",", found.end())
            if goes_on or is_cut(text, found.end()):
                self._raw.warn("truncated-record", line)
                taken = True
                continue
            if not values.keys() - {"total_loss"}:
                continue
            taken = True
            rank = _RANK.search(text, max(0, found.start() - _LONGEST_PREFIX), found.start())
            label = stream or (f"RANK:{rank[1]}" if rank else "")
            step = int(found["step"]) if found["step"] else None
            self._take_evaluation(_Evaluation(line, label, step, values))
        return taken

    def _take_evaluation(self, record: "_Evaluation") -> None:
        """Keep an evaluation until it is known whether it is printed twice."""
        before = self._evaluation
        same_step = before and (before.step == record.step or None in (before.step, record.step))
        if before is None or before.values != record.values or not same_step:
            self._end_evaluation()
            self._evaluation = record
        elif not self._is_twice and (before.step is None) != (record.step is None):
            named = before if before.step is not None else record
            self._evaluation = named._replace(line=before.line)
            self._is_twice = True
        else:  # a copy of another process, or the same result at another step
            self._end_evaluation()
            step = before.step if record.step is None else record.step
            self._evaluation = record._replace(step=step)

    def _end_evaluation(self) -> None:
        """Add the evaluation that is kept."""
        if self._evaluation is not None:
            line, stream, step, values = self._evaluation
            self._raw.add(TORCHSPEC, Split.VAL, "T1", line, stream, {**values, "step": step})
        self._evaluation = None
        self._is_twice = False
