r"""Records that Rich wrapped over several lines, put together again.

A line begins with a time (or 10 blanks), a level in 8 columns and a message from column 20, with a
path at the right of the first line; what does not fit goes on below, behind as many blanks. Bars and
records of other loggers may stand in between. training_logs.md section 3, step 5.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from calibration.training.physical_lines import CutText

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRecord:
    """The message of one record."""

    line: int  # line on which it begins
    stream: str  # label of who printed it
    text: str  # the message without time, level and path
    # whether the file ends behind its last character, so that a last number may be cut
    cut: bool = False
    hard_wrap: bool = False  # whether a key or a number was broken over two lines
    interleaved: bool = False  # whether something else stood inside it


@dataclass(slots=True)
class _Open:
    """A record whose end was not seen yet."""

    line: int
    column: int
    text: str
    cut: bool = False
    hard_wrap: bool = False
    interrupted: bool = False
    interleaved: bool = False

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
    _open: dict[str, _Open] = field(init=False, default_factory=dict)

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
                self._go_on(current, text)
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
        if not self._open:
            return []
        if len(self._open) > _MOST_RANKS:
            ending = [stream for stream in streams if stream in self._open]
        else:
            ending = [name for name, one in self._open.items() if name in streams or one.ended]
        closed = [self._close(stream) for stream in ending]
        return [record for record in closed if record is not None]

    def _close(self, stream: str) -> JoinedRecord | None:
        """Return the open record of a stream: nothing more belongs to it."""
        current = self._open.pop(stream, None)
        if current is None or not current.metrics:
            return None
        return JoinedRecord(
            line=current.line,
            stream=stream,
            text=current.text,
            cut=current.cut,
            hard_wrap=current.hard_wrap,
            interleaved=current.interleaved,
        )

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
        return self._start(stream, _Open(line=line, column=column, text=message, cut=cut))

    def _start(self, stream: str, record: _Open) -> Sequence[JoinedRecord]:
        """Keep a new record, in the place of the one before it; return what is at its end."""
        if not record.metrics:
            self._open.pop(stream, None)
            ended = []
        else:
            ended = self.close((stream,))
        if len(self._open) >= _MOST_STREAMS:  # these are no labels; the oldest gives way
            self._open.pop(next(iter(self._open)))
        self._open[stream] = record
        return ended

    def _go_on(self, current: _Open, text: str) -> None:
        """Take a line behind blanks."""
        piece = text.strip()
        if not current.interrupted or current.goes_on_with(piece):
            self._resume(current, piece, text)

    def _resume(self, current: _Open, piece: str, text: str) -> None:
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
        return self._start(stream, _Open(line=line, column=0, text=message, cut=cut))


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
