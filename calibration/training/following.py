"""A training log that grows: every look at it reads what is new, and only that."""

import codecs
import os
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from calibration.points.files import PathLike
from calibration.training.line_readers import LineReaders
from calibration.training.records import RawLog, merged
from calibration.training.refusals import usable_log
from calibration.training.training_log import TrainingLog, TrainingLogError
from specmodel.errors import FormatError, ParameterError
from specmodel.units import MEBI

_BLOCK_BYTES: Final = 4 * MEBI
_LONGEST_LINE_BYTES: Final = 16 * MEBI
_UNFINISHED: Final = "truncated-record"


class TrainingLogFollower:
    """Follows the files of a run that is being trained."""

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        family: str | None = None,
        correct_alias: bool = False,
    ) -> None:
        named = [paths] if isinstance(paths, Path | str) else list(paths)
        if not named:
            raise ParameterError("paths", "none", "one file or more")
        self._files = [_GrowingFile(Path(path)) for path in named]
        self._family = family
        self._correct_alias = correct_alias

    def poll(self) -> TrainingLog | None:
        """Read what was appended and return the log so far."""
        if not sum([file.take_new() for file in self._files]):  # all of them, so no any()
            return None
        states = [file.state() for file in self._files]
        first_lines = [1]
        for file in self._files[:-1]:
            first_lines.append(first_lines[-1] + file.num_lines)
        try:
            return usable_log(
                merged(states, first_lines),
                paths=[file.path for file in self._files],
                first_lines=first_lines,
                family=self._family,
                correct_alias=self._correct_alias,
            )
        except TrainingLogError as error:
            if error.code in ("unrecognised", "no-metrics"):
                return None
            raise


@dataclass(slots=True)
class _GrowingFile:
    """One file, how far it was read, and what its readers know."""

    path: Path
    place: int = 0
    raw: RawLog = field(default_factory=RawLog)
    _readers: LineReaders = field(init=False)
    _rest: bytes = b""
    _identity: int = 0
    _decoder: codecs.IncrementalDecoder | None = None

    def __post_init__(self) -> None:
        self._readers = LineReaders(self.raw)

    @property
    def num_lines(self) -> int:
        """How many line ends have been read."""
        return self._readers.num_lines

    def take_new(self) -> bool:
        """Read what is new; True where there is something."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size < self.place or status.st_ino != self._identity:
                    self._begin_again(status.st_ino)
                if status.st_size == self.place:
                    return False
                file.seek(self.place)
                while piece := file.read(_BLOCK_BYTES):
                    self._take(piece)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            raise FormatError(self.path, reason, code="unreadable") from None
        return True

    def state(self) -> RawLog:
        """Return the records so far; what is being written is not counted as cut."""
        raw, readers = deepcopy((self.raw, self._readers))
        known = len(raw.warnings.get(_UNFINISHED, ()))
        readers.finish()
        lines = raw.warnings.get(_UNFINISHED, [])[:known]
        raw.warnings.pop(_UNFINISHED, None)
        if lines:
            raw.warnings[_UNFINISHED] = lines
        return raw

    def _begin_again(self, identity: int) -> None:
        """Forget everything: this is another file."""
        self.place, self._rest, self._decoder = 0, b"", None
        self._identity = identity
        self.raw = RawLog()
        self._readers = LineReaders(self.raw)

    def _take(self, piece: bytes) -> None:
        """Feed the complete lines of a piece."""
        for text in self._decoded(piece):
            data = self._rest + text
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            if not end and len(data) > _LONGEST_LINE_BYTES:
                data, end = data + b"\n", len(data) + 1
            if end:
                self._readers.feed(data[:end])
            self._rest = data[end:]

    def _decoded(self, piece: bytes) -> Iterator[bytes]:
        """Yield a piece as UTF-8 without a byte order mark."""
        if not self.place and piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self.place += len(piece)
        if self._decoder is not None:
            yield self._decoder.decode(piece).encode("utf-8", "replace")
        else:
            yield piece.removeprefix(codecs.BOM_UTF8) if self.place == len(piece) else piece


# ---
# A log that is watched while it grows: looked at from time to time until its run has ended.
def watched_logs(
    paths: Sequence[Path],
    *,
    family: str | None = None,
    correct_alias: bool = False,
    every_s: float = 30.0,
    most_looks: int | None = None,
) -> Iterator[TrainingLog]:
    """Yield the log of a run each time that it has grown."""
    follower = TrainingLogFollower(paths, family=family, correct_alias=correct_alias)
    looks = 0
    while True:
        log = follower.poll()
        looks += 1
        if log is not None:
            yield log
            if log.total_steps and log.last_step and log.last_step >= log.total_steps:
                return
        if most_looks is not None and looks >= most_looks:
            return
        time.sleep(every_s)
