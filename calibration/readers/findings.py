"""What a reader finds while it reads: rows, what was left out and why, what is to be said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibration.readers.check import number
from calibration.readers.reading import Reading, Row
from specmodel.errors import FormatError, LeftOut, Note

_MOST_LINES: Final = 10_000  # of one warning; a log may have any number
_MOST_REASONS = 3
_NOTHING = "no usable row: nothing was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCodes:
    """Codes of what can happen in any format."""

    empty: str  # of the error where no row is left
    cut_off: str  # of a record that is left out because it is not complete
    # of the warning where rows have different depths; empty where sweeps are the rule
    depths_differ: str = ""
    # of the warning where a file has several layouts; empty where it is not given
    eras_differ: str = ""


# Of the formats of SGLang and SpecForge.
SGLANG_CODES: Final = SharedCodes(
    empty="no_rows", cut_off="truncated_line", eras_differ="mixed_eras"
)

# Of those of the other engines and of their clients.
ENGINE_CODES: Final = SharedCodes(
    empty="no_points", cut_off="malformed", depths_differ="depth_changed"
)


class Findings:
    """Rows, reasons and warnings of one file, each code once."""

    def __init__(
        self, path: Path, messages: Mapping[str, str], codes: SharedCodes = ENGINE_CODES
    ) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._messages, self._codes = messages, codes
        self._dropped: dict[str, LeftOut] = {}
        self._warned: dict[str, tuple[str, list[int]]] = {}

    def keep(self, line: int, row: Row | LeftOut, notes: Iterable[str] = ()) -> bool:
        """Keep a row and say what is to be said about it, or leave it out where it is refused."""
        if isinstance(row, LeftOut):
            self.refuse(line, row)
            return False
        self.rows.append(row)
        for code in notes:
            self.warn(code, line)
        return True

    def refuse(self, line: int, refusal: LeftOut) -> None:
        """Leave something out for the reason of a check."""
        self.drop(refusal.code, line, refusal.message, column=refusal.column)

    def drop(self, code: str, line: int, message: str, *, column: str = "") -> None:
        """Leave something out; the first message of a code is the one that is shown."""
        seen = self._dropped.get(code)
        self._dropped[code] = LeftOut(
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
        """Return everything that was found."""
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
                Note(code=code, message=message, path=self.path, lines=tuple(lines))
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
