"""Console lines of speculators: metric records, wrapped or not, and what people paste of them.

Formats S1-S4 and S7, training_logs.md sections 2 and 3.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from calibration.training.number_text import half_unit, printed_number
from calibration.training.physical_lines import physical_lines
from calibration.training.records import MISSING, Array, Kind, RawLog, Split
from calibration.training.rich_records import PAIR, JoinedRecord, RichRecords
from calibration.training.speculators_keys import (
    BLOCK_FAMILY,
    CONSOLE_ROUNDING,
    EAGLE3_FAMILY,
    KeyPlan,
    key_plans,
)

# Ids of the families whose records are found.
FAMILIES: Final = (EAGLE3_FAMILY, BLOCK_FAMILY)

_QUOTED_METRIC = re.compile(
    r"""['"](?:(?:train|val)/)?(?:full_acc|cond_acc_\d+|position_\d+_acc)(?:_\d+)?(?:_epoch)?['"]\s*:""",
    re.ASCII,
)
_DICT_TOKEN = re.compile(
    r"""(?P<quote>['"])(?P<key>[\w/@.-]{1,100})(?P=quote)\s{0,4}:\s{0,4}
        (?:(?P<deeper>\{)|(?:[\w.]{1,40}\()?(?P<value>[-+]?[\w.][\w.+-]{0,39}))?
      | (?P<end>\})""",
    re.VERBOSE | re.ASCII,
)
_TOTAL_STEPS = re.compile(r"\b(\d{1,6}) epochs of (\d{1,9}) steps\b", re.ASCII)
_DEEPEST = 8
_MOST_LAYOUTS = 4
_ACCURACIES = (Kind.JOINT, Kind.CONDITIONAL, Kind.MARGINAL, "mean_marginal")


@dataclass(slots=True)
class SpeculatorsLines:
    """Reads the lines of a speculators log one by one.

    A record is added when the next one begins, as it may go on until then. Lines of other programs in
    between do no harm.
    """

    raw: RawLog  # what records and warnings are added to
    # Keys of sound records in their order, a few kinds of them, the newest last.
    layouts: dict[tuple[str, ...], None] = field(init=False, default_factory=dict)
    _records: RichRecords = field(init=False, default_factory=RichRecords)
    _steps_seen: bool = field(init=False, default=False)
    _without_step_seen: bool = field(init=False, default=False)
    _pending: tuple[KeyPlan, dict[str, Sequence[float] | Array], int] | None = field(
        init=False, default=None
    )
    _total_steps: int = field(init=False, default=0)

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take one line."""
        if "{" in text and _QUOTED_METRIC.search(text):
            self._dict(line, stream, text)
            return True
        ended = self._records.feed(line, stream, text)
        taken = self._records.taken
        for record in ended:
            self._add(record)
        if not taken and " epochs of " in text:
            self._note_total(text)
        return taken

    @property
    def has_open(self) -> bool:
        """Whether a record may go on with what follows."""
        return self._records.has_open

    def interrupt(self, first_line: int, text: bytes) -> None:
        """Take lines that are part of no record: what goes on behind them was interrupted."""
        line, start = first_line, 0
        while start < len(text) and self._records.waits:
            end = text.find(b"\n", start) + 1 or len(text)
            for number, stream, piece in physical_lines([text[start:end]], first_line=line):
                self._records.feed(number, stream, piece)
            line, start = line + 1, end

    def close(self, streams: Collection[str]) -> None:
        """Add the open records of some streams, of which new ones begin, and all that have an end."""
        for record in self._records.close(streams):
            self._add(record)

    def finish(self) -> None:
        """Add what is open at the end of a file; another file may follow."""
        for record in self._records.finish():
            self._add(record)
        self._settle(with_steps=False)
        self._steps_seen = self._without_step_seen = False

    def takes(self, plan: KeyPlan) -> bool:
        """Return whether records with these keys are complete, as far as the log tells.

        A train record ends with its step, or in old versions, which have none, with its learning rate.
        """
        if plan.split is Split.TRAIN and "step" not in plan.columns:
            return "learning_rate" in plan.columns and not self._steps_seen
        return plan.complete

    def store(
        self, plan: KeyPlan, columns: dict[str, Sequence[float] | Array], length: int
    ) -> None:
        """Add complete records of the console with the same keys, in the order of the file."""
        if plan.split is Split.TRAIN:
            with_steps = "step" in plan.columns
            self._settle(with_steps=with_steps)
            self._steps_seen |= with_steps
            self._without_step_seen |= not with_steps
        plan.store(
            self.raw, columns, length, layout=plan.format_of_console(), rounding=CONSOLE_ROUNDING
        )
        if self._total_steps:
            table = self.raw.table(plan.family, plan.split)
            table.total_steps = max(self._total_steps, table.total_steps or 0)

    def _add(self, record: JoinedRecord) -> None:
        """Add a record, if it is one and complete."""
        values: dict[str, str] = {}
        for found in PAIR.finditer(record.text):
            if not (record.cut and found.end() == len(record.text)):  # a cut number is a number too
                values.setdefault(found[1], found[2])
        keys = tuple(values)
        plans = key_plans(keys)
        if plans and record.hard_wrap:
            self.raw.warn("hard-wrap", record.line)
        if plans and record.interleaved:
            self.raw.warn("interleaved-output", record.line)
        sound = len(plans) == 1 and not (record.hard_wrap or record.interleaved or record.cut)
        for plan in plans:
            sound &= self._add_split(plan, list(values.values()), record)
        if sound and not plans[0].bare:
            self._keep_layout(keys)

    def _add_split(self, plan: KeyPlan, values: list[str], record: JoinedRecord) -> bool:
        """Add what a record says of one split; return whether it was added."""
        numbers = _numbers(plan, values)
        if not self.takes(plan) or not math.isfinite(numbers.get("step", 0.0)):
            self.raw.warn("truncated-record", record.line)
            return False
        if not plan.family:
            self.raw.loss_only.add(BLOCK_FAMILY)
            self.raw.num_without_metrics += 1
            return False
        if plan.bare:
            self._store_pasted(plan, numbers, values, record.line, record.stream)
            return False
        columns = self._row(plan, numbers, record.line, record.stream)
        without_step = plan.split is Split.TRAIN and "step" not in plan.columns
        if without_step and not self._without_step_seen and self._pending is None:
            self._pending = (plan, columns, record.line)  # old, or cut before its step
            return True
        self.store(plan, columns, 1)
        return True

    def _settle(self, *, with_steps: bool) -> None:
        """Decide on a first record without a step: cut where the log has steps, else old."""
        if self._pending is None:
            return
        plan, columns, line = self._pending
        self._pending = None
        if with_steps:
            self.raw.warn("truncated-record", line)
        else:
            self.store(plan, columns, 1)

    def _row(
        self, plan: KeyPlan, numbers: dict[str, float], line: int, stream: str
    ) -> dict[str, Sequence[float] | Array]:
        """Return one record as columns."""
        columns: dict[str, Sequence[float] | Array] = {
            name: (number,) for name, number in numbers.items()
        }
        columns["line"] = (float(line),)
        columns["stream"] = (float(self.raw.table(plan.family, plan.split).label(stream)),)
        return columns

    def _dict(self, line: int, stream: str, text: str) -> None:
        """Take a line that holds a dict of metrics."""
        values = _dict_values(text)
        if values is None:
            self.raw.warn("truncated-record", line)
            return
        for plan in key_plans(tuple(values)):
            if plan.family:
                found = list(values.values())
                self._store_pasted(plan, _numbers(plan, found), found, line, stream)

    def _store_pasted(
        self, plan: KeyPlan, numbers: dict[str, float], values: list[str], line: int, stream: str
    ) -> None:
        """Add a record that does not stand as the console prints it."""
        layout = "S7" if plan.family == BLOCK_FAMILY else "dict"
        columns = self._row(plan, numbers, line, stream)
        plan.store(
            self.raw, columns, 1, layout=layout, rounding=finest_rounding(plan, values), hints=False
        )

    def _keep_layout(self, keys: tuple[str, ...]) -> None:
        """Remember the order of the keys of a sound record."""
        if keys not in self.layouts:
            self.layouts[keys] = None
            if len(self.layouts) > _MOST_LAYOUTS:
                del self.layouts[next(iter(self.layouts))]

    def _note_total(self, text: str) -> None:
        """Note how long the trainer says that the run is."""
        found = _TOTAL_STEPS.search(text)
        if found is not None:
            self._total_steps = int(found[1]) * int(found[2])


def finest_rounding(plan: KeyPlan, values: Sequence[str]) -> float:
    """Return half a unit of the last digit of the accuracy that was printed most finely.

    Numbers as Python prints them leave out zeros at their end.
    """
    units = [
        unit
        for name, place in plan.columns.items()
        if name.startswith(_ACCURACIES) and (unit := half_unit(values[place])) is not None
    ]
    return min(units, default=CONSOLE_ROUNDING)


def _numbers(plan: KeyPlan, values: Sequence[str]) -> dict[str, float]:
    """Return the numbers of a record by column; `MISSING` where no number was printed."""
    return {
        name: MISSING if (number := printed_number(values[place])) is None else number
        for name, place in plan.columns.items()
    }


def _dict_values(text: str) -> dict[str, str] | None:
    """Return printed values by key, keys of dicts in dicts joined by a slash; None where it is cut."""
    values: dict[str, str] = {}
    above: list[str] = []
    for found in _DICT_TOKEN.finditer(text, text.index("{")):
        if found["end"]:
            if not above:
                return values
            above.pop()
        elif found["deeper"]:
            if len(above) == _DEEPEST:
                return None
            above.append(found["key"])
        elif found["value"]:
            values.setdefault("/".join([*above, found["key"]]), found["value"])
    return None
