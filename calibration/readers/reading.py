"""What a reader returns: rows in canonical columns, and what it could not use and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from calibration.readers.log_file import LogFile
from specmodel.errors import LeftOut, Note

# A value of one canonical column: a number, a text or a list of accuracies.
Cell: TypeAlias = float | str | tuple[float, ...]

# Beside the canonical columns: where a throughput comes from when it was not measured.
#
# ``step_time`` (decode only), ``speedup``, or ``rows`` (the mean of baseline rows).
ORIGIN_NAMES = ("throughput_origin", "baseline_origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """The decoded text of one file."""

    path: Path  # where it was read from
    text: str  # its content, without a byte order mark
    encoding: str  # how it was decoded
    guessed: bool = False  # whether the encoding is a guess because the bytes were not UTF-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement as a file gives it."""

    line: int  # line of the file, 1-based; the first one where a row takes several
    # canonical columns that are filled, and `ORIGIN_NAMES` where they say something
    cells: Mapping[str, Cell]
    # columns whose meaning is not known, as written
    extra: Mapping[str, str] = field(default_factory=dict)
    # system and load as they were asked for: a run with speculation and one without at equal loads
    # are a pair. None where the file does not pair its rows itself
    load: tuple[object, ...] | None = None
    # how the row came about (``lines`` pooled, ``rounds``, ``rank`` ...); no columns
    details: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def content(self) -> tuple[object, ...]:
        """What two rows share when they are equal in every column, wherever they stand."""
        return (*sorted(self.cells.items()), *sorted(self.extra.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that one file says."""

    path: Path  # the file
    format: str  # the format as recognised from the content
    rows: tuple[Row, ...]  # what could be used, in the order of the file
    dropped: tuple[LeftOut, ...] = ()  # what could not
    warnings: tuple[Note, ...] = ()  # at most one of each code
    # layouts found, each named by the oldest release that writes it; empty where the format has one
    # layout
    era: tuple[str, ...] = ()
    # what the numbers of this format mean and what was converted, a sentence each
    conventions: tuple[str, ...] = ()
    # probes of a cost table; such a file has no rows
    cost_table: tuple[Mapping[str, float], ...] = ()


class Reader(Protocol):
    """One input format that is read as a whole: a module with these three names."""

    FORMAT: str

    def recognise(self, head: str) -> bool:
        """Say whether a file that begins like this is of the format."""

    def read(self, source: SourceText) -> Reading:
        """Return the rows of a file of the format."""


class SeriesReader(Reader, Protocol):
    """A format whose files are moments of one server: only their differences are runs."""

    def series_key(self, source: SourceText) -> tuple[str, ...]:
        """Return what the files of one server share."""

    def read_series(self, sources: Sequence[SourceText]) -> Reading:
        """Return the rows of several files of one server."""


class LogReader(Protocol):
    """A format of any length, read line by line in bounded memory."""

    FORMAT: str

    def recognise(self, head: str) -> bool:
        """Say whether a file that begins like this is of the format."""

    def read_log(self, log: LogFile) -> Reading:
        """Return the rows of a log of the format."""
