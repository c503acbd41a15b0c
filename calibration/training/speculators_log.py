"""Logs of Speculators: wrapped records of the console, one by one, and those that look alike in blocks."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from calibration.training.alike_blocks import NUMBER, Pattern
from calibration.training.lines import (
    CutText,
    half_unit,
    physical_lines,
    printed_number,
    split_prefix,
)
from calibration.training.records import MISSING, Array, Kind, RawLog, Split
from calibration.training.speculators_keys import (
    BLOCK_FAMILY,
    CONSOLE_ROUNDING,
    EAGLE3_FAMILY,
    KeyPlan,
    key_plans,
)

# ---
# Records that Rich wrapped over several lines, put together again.
#
# A line begins with a time (or 10 blanks), a level in 8 columns and a message from column 20, with a
# path at the right of the first line; what does not fit goes on below, behind as many blanks. Bars and
# records of other loggers may stand in between. training_logs.md section 3, step 5.
# A key and what stands behind its equals sign.
PAIR: Final = re.compile(r"(?<![\w/@.-])([A-Za-z][\w/@.-]{0,99})=([^\s,=]{1,40})(?=[\s,]|$)")

_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_START = re.compile(rf"(?:\[[^\]\s][^\]]{{0,30}}\] |[ ]{{2,40}})?{_LEVEL}(?: {{1,5}}|$)")
# What loggers without Rich print behind the level: date, time, ``[trainer.py:220]``.
_OTHER_HEAD = re.compile(r"[\d/:.,-]{4,30}(?: [\d:.,]{4,30})? (?:\[[^\]\s]{1,60}\] )?")
_PATH = re.compile(r"(?:^|\s)[\w.-]{1,100}\.py:\d{1,7}\s*$")
_INDENT = " " * 20
_OWN_LEVEL = "INFO     "  # of metric records, as Rich lays it out: only Rich breaks a word
_BEGINS = re.compile(
    r"(?<![\w/])(?:(?:train|val)/|(?:epoch|global_step|step|lr|lr/\w+|loss|loss_\d+|full_acc|full_acc_\d+|cond_acc_\d+"
    r"|position_\d+_acc)=|profile[/=])",
    re.ASCII,
)
_OWN = re.compile(
    r"(?<![\w/])(?:(?:train|val)/[\w@.-]{1,99}|(?:full_acc|full_acc_\d+|cond_acc_\d+|position_\d+_acc)"
    r"(?:_epoch)?)=",
    re.ASCII,
)
_KEY_BEFORE = re.compile(r"(?:^|[\s,])([A-Za-z][\w/@.-]{0,99})=")
_HALF_PAIR = re.compile(
    r"(?:train|val|profile|epoch|lr|global_step)[\w/@.-]{0,99}(?:=[\w.+-]{0,40})?"
)
_BROKEN_PIECE = re.compile(r"(?=[^=/_.,\d]*[=/_.,\d])[\w/@.=+-]+(?:,.*)?")
_LAST_STEP = re.compile(r"[ ]global_step=\d{1,15}$")
_LAST_EPOCH = re.compile(r"[ ]epoch=\d{1,9}$")
_LONGEST_LAST_PAIR = 40
_WORDS = ("train/", "val/")

_LONGEST_PATH = 120
_MOST_STREAMS = 4096
_MOST_RANKS = 64  # that are asked whether their records have ended
_MOST_TEXT = 1 << 14


@dataclass(slots=True)
class JoinedRecord:
    """The message of one record, of which the end may not be seen yet."""

    line: int  # line on which it begins
    stream: str  # label of who printed it
    column: int
    text: str  # the message without time, level and path
    # whether the file ends behind its last character, so that a last number may be cut
    cut: bool = False
    hard_wrap: bool = False  # whether a key or a number was broken over two lines
    interrupted: bool = False
    interleaved: bool = False  # whether something else stood inside it

    @property
    def metrics(self) -> bool:
        """Whether it may be a metric record."""
        return _begins_metrics(self.text)

    @property
    def ended(self) -> bool:
        """Whether its last key is there, unless a release prints the keys in another order."""
        last = _LAST_EPOCH if self.text.startswith("val/") else _LAST_STEP
        return not self.hard_wrap and bool(last.search(self.text[-_LONGEST_LAST_PAIR:]))

    def append(self, piece: str, *, cut: bool) -> None:
        """Add what stands on a line that goes on with the record."""
        if len(self.text) + len(piece) > _MOST_TEXT:
            return
        if self.text.endswith(",") or not self.text:
            self.text = f"{self.text} {piece}".lstrip()
        else:
            self.hard_wrap = True
            self.text += piece
        self.cut = cut

    def goes_on_with(self, piece: str) -> bool:
        """Return whether a line goes on with the record although something stood in between."""
        if self.text.endswith(",") or not self.text:
            keys = _KEY_BEFORE.findall(piece)
            known = _KEY_BEFORE.findall(self.text)
            return bool(_BEGINS.match(piece)) and bool(keys) and set(keys).isdisjoint(known)
        tail = self.text[self.text.rfind(" ") + 1 :] + piece.split(",", 1)[0]
        return bool(_BROKEN_PIECE.fullmatch(piece)) and bool(_HALF_PAIR.fullmatch(tail))


@dataclass(slots=True)
class RichRecords:
    """Joins the lines of metric records, for each stream on its own.

    Keeps the open record of each stream only.
    """

    # Whether the last line that was fed belongs to what may be a metric record.
    taken: bool = field(init=False, default=False)
    _open: dict[str, JoinedRecord] = field(init=False, default_factory=dict)

    def feed(self, line: int, stream: str, text: str) -> Sequence[JoinedRecord]:
        """Return the records that a line shows to be at their end, in the order of their lines."""
        self.taken = False
        start = _START.match(text)
        if start is not None:
            return self._begin(line, stream, text, start.end())
        current = self._open.get(stream)
        column = current.column if current is not None and current.column else len(_INDENT)
        if text.startswith(_INDENT[:column]):
            if current is not None and current.metrics:
                piece = text.strip()
                if not current.interrupted or current.goes_on_with(piece):
                    self._resume(current, piece, text)
            return ()
        if "=" in text and _OWN.search(text):
            return self._plain(line, stream, text)
        if current is not None:  # blanks may be lost where a log was pasted
            piece = text.lstrip()
            if current.text.endswith(",") and current.metrics and current.goes_on_with(piece):
                self._resume(current, piece.rstrip(), text)
            else:
                current.interrupted = True
        return ()

    @property
    def has_open(self) -> bool:
        """Whether there is a record that may go on."""
        return bool(self._open)

    @property
    def waits(self) -> bool:
        """Whether there is a record that may go on and nothing of its stream was seen behind it."""
        return not all(one.interrupted for one in self._open.values())

    def close(self, streams: Collection[str]) -> list[JoinedRecord]:
        """Return the open records of some streams, of which new ones begin, and all that have an end."""
        if len(self._open) > _MOST_RANKS:
            ending = [stream for stream in streams if stream in self._open]
        else:
            ending = [name for name, one in self._open.items() if name in streams or one.ended]
        closed = [self._open.pop(stream) for stream in dict.fromkeys(ending)]
        return [record for record in closed if record.metrics]

    def finish(self) -> list[JoinedRecord]:
        """Return the records that are open: nothing more belongs to them."""
        return self.close(list(self._open))

    def _begin(self, line: int, stream: str, text: str, column: int) -> Sequence[JoinedRecord]:
        """Take a line with a level."""
        other = _OTHER_HEAD.match(text, column)
        message, cut = _without_path(text, column if other is None else other.end())
        begins = _BEGINS.match(message) is not None
        self.taken = begins or (text[:column].endswith(_OWN_LEVEL) and _begins_metrics(message))
        if not self.taken:
            current = self._open.get(stream)
            if current is not None:
                current.interrupted = True
            return ()
        return self._start(stream, JoinedRecord(line, stream, column, message, cut))

    def _start(self, stream: str, record: JoinedRecord) -> Sequence[JoinedRecord]:
        """Keep a new record, in the place of the one before it; return what is at its end."""
        if not record.metrics:
            self._open.pop(stream, None)
        ended = self.close((stream,)) if record.metrics else []
        if len(self._open) >= _MOST_STREAMS:  # these are no labels; the oldest gives way
            self._open.pop(next(iter(self._open)))
        self._open[stream] = record
        return ended

    def _resume(self, current: JoinedRecord, piece: str, text: str) -> None:
        """Add a line to its record."""
        current.interleaved |= current.interrupted
        current.interrupted = False
        current.append(piece, cut=_is_cut(text))
        self.taken = True

    def _plain(self, line: int, stream: str, text: str) -> Sequence[JoinedRecord]:
        """Take a line of pairs that Rich did not lay out, or whose blanks were lost."""
        found = _BEGINS.search(text)
        start = found.start() if found is not None else 0
        message, cut = _without_path(text, start)
        current = self._open.get(stream)
        self.taken = True
        if (
            current is not None
            and current.text.endswith(",")
            and current.metrics
            and not text[:start].strip()
            and current.goes_on_with(message)
        ):
            self._resume(current, message, text)
            return ()
        return self._start(stream, JoinedRecord(line, stream, 0, message, cut))


def _without_path(text: str, start: int) -> tuple[str, bool]:
    """Return a message without the path at the right, and whether the file ends behind it."""
    found = _PATH.search(text, max(start - 1, len(text) - _LONGEST_PATH))
    if found is not None:
        return text[start : max(start, found.start())].strip(), False
    return text[start:].strip(), _is_cut(text)


def _is_cut(text: str) -> bool:
    """Return whether the file ends inside a line, with nothing behind its last character."""
    return isinstance(text, CutText) and not text[-1:].isspace()


def _begins_metrics(message: str) -> bool:
    """Return whether a message begins as a metric record does; it may be broken."""
    if _BEGINS.match(message):
        return True
    return bool(message) and any(word.startswith(message) for word in _WORDS)


# ---
# Console lines of speculators: metric records, wrapped or not, and what people paste of them.
#
# Formats S1-S4 and S7, training_logs.md sections 2 and 3.
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
    _patterned: set[tuple[str, ...]] = field(init=False, default_factory=set)
    _records: RichRecords = field(init=False, default_factory=RichRecords)
    _steps_seen: bool = field(init=False, default=False)
    _without_step_seen: bool = field(init=False, default=False)
    _pending: tuple[KeyPlan, Mapping[str, Sequence[float] | Array], str] | None = field(
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
        if not taken and " epochs of " in text and (total := _TOTAL_STEPS.search(text)):
            self._total_steps = int(total[1]) * int(total[2])
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

    def learnt(self) -> Iterator[Pattern]:
        """Yield patterns of the kinds of records that are new."""
        for keys in self.layouts.keys() - self._patterned:
            if len(self._patterned) < _MOST_PATTERNS:
                self._patterned.add(keys)
                yield _pattern(self, keys)

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
        self, plan: KeyPlan, columns: Mapping[str, Sequence[float] | Array], streams: Sequence[str]
    ) -> None:
        """Add complete records of the console with the same keys, in the order of the file."""
        if plan.split is Split.TRAIN:
            with_steps = "step" in plan.columns
            self._settle(with_steps=with_steps)
            self._steps_seen |= with_steps
            self._without_step_seen |= not with_steps
        plan.store(
            self.raw, columns, streams, layout=plan.format_of_console(), rounding=CONSOLE_ROUNDING
        )
        self.raw.table(plan.family, plan.split).know((), None, self._total_steps or None)

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
        if sound and not plans[0].bare and keys not in self.layouts:
            self.layouts[keys] = None
            if len(self.layouts) > _MOST_LAYOUTS:
                del self.layouts[next(iter(self.layouts))]

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
        columns = _row(numbers, record.line)
        without_step = plan.split is Split.TRAIN and "step" not in plan.columns
        if without_step and not self._without_step_seen and self._pending is None:
            self._pending = (plan, columns, record.stream)  # old, or cut before its step
            return True
        self.store(plan, columns, [record.stream])
        return True

    def _settle(self, *, with_steps: bool) -> None:
        """Decide on a first record without a step: cut where the log has steps, else old."""
        if self._pending is None:
            return
        plan, columns, stream = self._pending
        self._pending = None
        if with_steps:
            self.raw.warn("truncated-record", int(columns["line"][0]))
        else:
            self.store(plan, columns, [stream])

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
        columns = _row(numbers, line)
        plan.store(
            self.raw,
            columns,
            [stream],
            layout=layout,
            rounding=finest_rounding(plan, values),
            hints=False,
        )


def _row(numbers: dict[str, float], line: int) -> Mapping[str, Sequence[float] | Array]:
    """Return one record as columns."""
    return {"line": (float(line),)} | {name: (number,) for name, number in numbers.items()}


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


# ---
# Patterns of records that look alike, for `AlikeBlocks`.
_MOST_PATTERNS: Final = 32  # in a log: more kinds of records are not alike
_OTHER = rb"[^,\s=]{1,40}"
_SPACES = rb"[ ]{0,2000}"
_BLOCK_PATH = rb"[ ]{1,2000}[\w.-]{1,100}\.py:\d{1,7}"
_BREAK = _SPACES + rb"\n[ ]{20}"
_SEPARATOR = rb",(?:[ ](?=[A-Za-z])|" + _BREAK + rb"|" + _BLOCK_PATH + _BREAK + rb")"
_BLOCK_START = rb"(\S[^\r\n]{0,150}?)??(?:\[\d\d:\d\d:\d\d\]|[ ]{10}) INFO     "
_END = rb"(?:" + _BLOCK_PATH + rb")?" + _SPACES + rb"\n(?![ ]{20})"


def _pattern(lines: SpeculatorsLines, keys: tuple[str, ...]) -> Pattern:
    """Return what records with certain keys look like."""
    (plan,) = key_plans(keys)
    names = {place: name for name, place in plan.columns.items()}
    pairs = (
        re.escape(key).encode() + b"=" + (NUMBER if place in names else _OTHER)
        for place, key in enumerate(keys)
    )

    def store(columns: Mapping[str, Sequence[float] | Array], streams: Sequence[str]) -> None:
        lines.close(set(streams))
        lines.store(plan, columns, streams)

    return Pattern(
        compiled=re.compile(_BLOCK_START + _SEPARATOR.join(pairs) + _END),
        beginning=b"INFO     " + keys[0].encode() + b"=",
        names=tuple(names[place] for place in sorted(names)),
        label=_label,
        takes=partial(lines.takes, plan),
        store=store,
    )


def _label(before: bytes) -> str | None:
    """Return the label of a stream, None where what stands before a record is something else."""
    label, behind = split_prefix(before.decode("utf-8", "replace") + "[")
    return label if behind == "[" else None
