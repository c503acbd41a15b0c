"""What a reader finds while it reads: rows, what was left out and why, what is to be said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibration.readers.reading import Dropped, PointWarning, Reading, Row
from calibration.readers.row_checks import Refusal, number
from specmodel.errors import FormatError

_MOST_LINES: Final = 10_000  # of one warning; a log may have any number
_MOST_REASONS = 3
_NOTHING = "no usable row: nothing was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCodes:
    """Codes of what can happen in any format.

    Parameters
    ----------
    empty : str
        Of the error where no row is left.
    cut_off : str
        Of a record that is left out because it is not complete.
    depths_differ : str
        Of the warning where rows have different depths; empty where sweeps are the rule.
    eras_differ : str
        Of the warning where a file has several layouts; empty where it is not given.
    """

    empty: str
    cut_off: str
    depths_differ: str = ""
    eras_differ: str = ""


SGLANG_CODES: Final = SharedCodes(
    empty="no_rows", cut_off="truncated_line", eras_differ="mixed_eras"
)
"""Of the formats of SGLang and SpecForge."""

ENGINE_CODES: Final = SharedCodes(
    empty="no_points", cut_off="malformed", depths_differ="depth_changed"
)
"""Of those of the other engines and of their clients."""


class Findings:
    """Rows, reasons and warnings of one file, each code once.

    Parameters
    ----------
    path : Path
        The file. Of several files, the one that is being read.
    messages : mapping from str to str
        What each code of a warning says to a user.
    codes : SharedCodes
        Codes of what can happen in any format.

    Examples
    --------
    >>> findings = Findings(Path("server.log"), {"rough": "one request"})
    >>> for line in (4, 9):
    ...     findings.drop("idle", line, "nothing was drafted")
    >>> findings.keep(12, Row(line=12, cells={"accept_length": 2.0}), ["rough"])
    True
    >>> reading = findings.reading("a_format")
    >>> [str(one) for one in (*reading.dropped, *reading.warnings)]
    ['server.log, line 4 and 1 more: nothing was drafted', 'server.log, line 12: one request']
    """

    def __init__(
        self, path: Path, messages: Mapping[str, str], codes: SharedCodes = ENGINE_CODES
    ) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._messages, self._codes = messages, codes
        self._dropped: dict[str, Dropped] = {}
        self._warned: dict[str, tuple[str, list[int]]] = {}

    def keep(self, line: int, row: Row | Refusal, notes: Iterable[str] = ()) -> bool:
        """Keep a row and say what is to be said about it, or leave it out where it is refused.

        Returns
        -------
        bool
            Whether it was kept.
        """
        if isinstance(row, Refusal):
            self.refuse(line, row)
            return False
        self.rows.append(row)
        for code in notes:
            self.warn(code, line)
        return True

    def refuse(self, line: int, refusal: Refusal) -> None:
        """Leave something out for the reason of a check."""
        self.drop(refusal.code, line, refusal.message, column=refusal.column)

    def drop(self, code: str, line: int, message: str, *, column: str = "") -> None:
        """Leave something out; the first message of a code is the one that is shown."""
        seen = self._dropped.get(code)
        self._dropped[code] = Dropped(
            path=seen.path if seen else self.path,
            line=seen.line if seen else line,
            code=code,
            message=seen.message if seen else message,
            column=seen.column if seen else column,
            count=seen.count + 1 if seen else 1,
        )

    def drop_cut_off(self, lines: Iterable[int], message: str) -> None:
        """Leave out what is not complete."""
        for line in lines:
            self.drop(self._codes.cut_off, line, message)

    def warn(self, code: str, line: int) -> None:
        """Say what the messages have for a code."""
        self._warn(code, self._messages[code], line)

    def reading(
        self,
        format_name: str,
        nothing: str = _NOTHING,
        *,
        advice: str = "",
        era: tuple[str, ...] = (),
        conventions: tuple[str, ...] = (),
    ) -> Reading:
        """Return everything that was found.

        Parameters
        ----------
        format_name : str
            The format of the file.
        nothing : str
            What is said of a file without a row in which nothing was dropped either.
        advice : str
            What to do about it.
        era, conventions : tuple of str
            As in `Reading`.

        Returns
        -------
        Reading
            With at least one row.

        Raises
        ------
        FormatError
            Where there is no row, with the code for it; the message has the first reasons.

        Examples
        --------
        >>> findings = Findings(Path("a.jsonl"), {})
        >>> findings.drop("idle", 7, "nothing ran")
        >>> findings.reading("a_format", advice="run it under load")
        Traceback (most recent call last):
            ...
        specmodel.errors.FormatError: a.jsonl: no usable row: line 7: nothing ran; run it under load
        """
        dropped = tuple(self._dropped.values())
        if not self.rows:
            reasons = [one.within_file for one in dropped]
            more = len(reasons) - _MOST_REASONS
            found = f"no usable row: {'; '.join(reasons[:_MOST_REASONS])}" if reasons else nothing
            found += f"; and {more} more reasons" if more > 0 else ""
            found += f"; {advice}" if advice else ""
            raise FormatError(self.path, found, code=self._codes.empty)
        self._warn_of_depths()
        self._warn_of_eras(era)
        return Reading(
            path=self.path,
            format=format_name,
            rows=tuple(self.rows),
            dropped=dropped,
            warnings=tuple(
                PointWarning(code=code, message=message, path=self.path, lines=tuple(lines))
                for code, (message, lines) in sorted(self._warned.items())
            ),
            era=era,
            conventions=conventions,
        )

    def _warn(self, code: str, message: str, line: int | None) -> None:
        """Say something about a line; None for the file as a whole."""
        lines = self._warned.setdefault(code, (message, []))[1]
        if line is not None and len(lines) < _MOST_LINES and line not in lines[-1:]:
            lines.append(line)

    def _warn_of_depths(self) -> None:
        """Say it where the rows have more than one depth."""
        first_lines: dict[float, int] = {}
        for row in self.rows if self._codes.depths_differ else ():
            depth = number(row.cells, "num_draft_tokens")
            if depth:
                first_lines.setdefault(depth, row.line)
        for line in sorted(set(first_lines.values())) if len(first_lines) > 1 else ():
            message = "more than one depth in the file, one row each"
            self._warn(self._codes.depths_differ, message, line)

    def _warn_of_eras(self, era: tuple[str, ...]) -> None:
        """Say it where a file has several layouts."""
        if self._codes.eras_differ and len(era) > 1:
            message = (
                f"layouts of several releases in one file ({', '.join(era)}): runs of different "
                "builds may not be comparable"
            )
            self._warn(self._codes.eras_differ, message, None)
