"""DeepSpec on the console: losses and nothing else, ``epoch=1 step=10/1000 loss=4.9`` (D1)."""

import re
from typing import Final

from calibration.training.number_text import NUMBER, printed_number
from calibration.training.progress_bars import is_cut
from calibration.training.records import RawLog, Split
from calibration.training.uniform_rows import Layout, UniformRows

FAMILY: Final = "deepspec"

_LINE = re.compile(
    r"\bepoch=(\d{1,9})\s{1,4}step=(\d{1,12})/(\d{1,12})\s{1,4}"
    rf"loss=({NUMBER})(?![\w.])",
    re.ASCII | re.IGNORECASE,
)
_LAYOUT = Layout(format="D1", split=Split.TRAIN, columns=("epoch", "step", "total_loss"))


class DeepSpecLines:
    """Reads the losses of DeepSpec."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw
        self._rows = UniformRows(raw, FAMILY)

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
            values = (float(found[1]), float(found[2]), loss)
            self._rows.add(_LAYOUT, line, stream, values, total_steps=int(found[3]))
            self._raw.num_without_metrics += 1
            self._raw.loss_only.add(FAMILY)
        return taken

    def finish(self) -> None:
        """Give the last records."""
        self._rows.flush()
