"""NeMo Automodel on the console: a line a record, and bars that show the same (N1)."""

import re
from typing import Final

from calibration.training.number_text import NUMBER, printed_number
from calibration.training.physical_lines import CutText
from calibration.training.progress_bars import EpochBar, EpochBars, is_cut
from calibration.training.records import RawLog, Split
from calibration.training.uniform_rows import Layout, UniformRows

FAMILY: Final = "automodel"

_BAR = re.compile(r"\bepoch (\d{1,9})$", re.ASCII | re.IGNORECASE)
_PAIR = re.compile(rf"(?<![\w./-])(\w{{1,40}})=({NUMBER})(?![\w.+/])", re.ASCII | re.IGNORECASE)
_MARK = re.compile(r"\b(train|val)_(?:acc|loss)=", re.ASCII | re.IGNORECASE)
_LENGTHS = ("tau_sim", "tau_real")


class AutomodelLines:
    """Reads the records of NeMo Automodel; those of bars have the format ``N1-bar``."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._rows = UniformRows(raw, FAMILY)
        self._bars = EpochBars(raw, _BAR, self._add_bar)

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it is one of Automodel."""
        taken = False
        if "_acc=" in text or "_loss=" in text:
            taken = self._take_line(line, stream, text)
        if "epoch " in text and "acc=" in text:
            taken = self._bars.take(line, stream, text) or taken
        return taken

    def finish(self) -> None:
        """End the last bar."""
        self._bars.end(is_last=True)
        self._rows.flush()

    def _take_line(self, line: int, stream: str, text: str) -> bool:
        """Take a record line."""
        mark = _MARK.search(text)
        if mark is None:
            return False
        place = mark[1] + "_"
        pairs: dict[str, float] = {}
        end = 0
        for found in _PAIR.finditer(text):
            value = printed_number(found[2])
            if value is not None:
                pairs[found[1]] = value
                end = found.end()
        if "epoch" not in pairs and "step" not in pairs:
            return False
        rest = text[end:].strip()
        if is_cut(text, end) or (isinstance(text, CutText) and rest and rest[0] != "("):
            self._raw.warn("truncated-record", line)
            return True
        return self._add(line, stream, place, pairs)

    def _add(self, line: int, stream: str, place: str, pairs: dict[str, float]) -> bool:
        """Add the record of a line."""
        names = {
            "step": "step",
            "epoch": "epoch",
            place + "acc": "mean_marginal",
            place + "loss": "total_loss",
            "lr": "learning_rate",
        } | {place + key: f"reported:{key}" for key in _LENGTHS}
        known = {name: pairs[key] for key, name in names.items() if key in pairs}
        if "mean_marginal" not in known and not any(n.startswith("reported:") for n in known):
            self._raw.num_without_metrics += 1
            self._raw.loss_only.add(FAMILY)
            return True
        self._bars.end()
        split = Split.TRAIN if place == "train_" else Split.VAL
        layout = Layout(format="N1", split=split, columns=tuple(known))
        self._rows.add(layout, line, stream, tuple(known.values()))
        return True

    def _add_bar(self, bar: EpochBar) -> None:
        """Add the last state of a counter."""
        keys = {
            "acc": "mean_marginal",
            "loss": "total_loss",
            "lr": "learning_rate",
            "tau": "reported:tau_sim",
        }
        numbers = {key: printed_number(bar.state.pairs.get(key, "")) for key in keys}
        known = {keys[key]: value for key, value in numbers.items() if value is not None}
        if "mean_marginal" not in known:
            return
        layout = Layout(format="N1-bar", split=Split.TRAIN, columns=("step", "epoch", *known))
        values = (float(bar.state.counter), bar.epoch, *known.values())
        self._rows.add(layout, bar.line, bar.stream, values, total_steps=bar.state.total)
