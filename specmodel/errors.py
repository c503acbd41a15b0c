"""Exceptions, warnings and notes: every one carries its facts as attributes.

A message says what is wrong, what was found, what is allowed and what to do.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_MOST_LINES = 8
_UNNAMED = Path()


class Note(NamedTuple):
    """Something to know beside rows or an answer, for machines and for people.

    A named tuple, not a dataclass: it is made in a tenth of the time when a cold command starts.
    """

    code: str
    message: str = ""
    path: Path | None = None  # the file, where it concerns one
    lines: tuple[int, ...] = ()  # its lines, 1-based, where it concerns some

    def __str__(self) -> str:
        return self.message if self.path is None else f"{self.path}{self.places}: {self.message}"

    @property
    def places(self) -> str:
        """``", line 3"`` or ``", lines 3, 5 and 9 more"``; nothing without lines."""
        if not self.lines:
            return ""
        shown = ", ".join(map(str, self.lines[:_MOST_LINES]))
        more = len(self.lines) - _MOST_LINES
        rest = f" and {more} more" if more > 0 else ""
        return f", line{'s' if len(self.lines) > 1 else ''} {shown}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was left out, a row or a number of lines for one reason."""

    code: str  # the reason, for machines
    message: str = ""  # the reason, for people: what was found and what is allowed
    column: str = ""  # the column at fault; empty where it is the row as a whole
    path: Path = _UNNAMED
    line: int = 0  # 1-based; the first where there are several
    count: int = 1
    looks_like_percent: bool = False  # accuracies that, read as percent, fit the accept length

    def __str__(self) -> str:
        return f"{self.path}, {self.within_file}"

    @property
    def within_file(self) -> str:
        """The same without the path."""
        where = f"line {self.line}" + (f", column {self.column}" if self.column else "")
        where += f" and {self.count - 1} more" if self.count > 1 else ""
        return f"{where}: {self.message}"


class SpecModelError(Exception):
    """Base of every error a user can cause; the command line prints it as one line and leaves so."""

    exit_code = 1


class ParameterError(SpecModelError, ValueError):
    """A value is outside what is possible."""

    def __init__(self, name: str, value: object, allowed: str, hint: str = "") -> None:
        self.name, self.value, self.allowed, self.hint = name, value, allowed, hint
        super().__init__(f"{name} must be {allowed}, got {value}" + (f"; {hint}" if hint else ""))


class UsageError(SpecModelError):
    """Something must be given that was not; the command line exits with 2.

    Parameters
    ----------
    option : str
        The option to give.
    reason : str
        Why it cannot be guessed.
    """

    exit_code = 2

    def __init__(self, option: str, reason: str) -> None:
        self.option, self.reason = option, reason
        super().__init__(f"{reason}; give {option}")


class UnknownKeyError(SpecModelError, KeyError):
    """A name is not in a catalogue (a packaged system, a source, a constant); it comes from an option."""

    exit_code = 2

    def __init__(self, what: str, key: str, known: list[str]) -> None:
        self.what, self.key, self.known = what, key, known
        super().__init__(f"unknown {what} {key!r}; known: {', '.join(known) or 'none'}")

    def __str__(self) -> str:  # KeyError would print the repr of its message
        return str(self.args[0])


class FormatError(SpecModelError, ValueError):
    """A file cannot be read as what it should be."""

    def __init__(
        self, path: Path | str, reason: str, *, line: int | None = None, code: str = ""
    ) -> None:
        self.path, self.reason, self.line, self.code = Path(path), reason, line, code
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {reason}")


class IncompatiblePointsError(SpecModelError, ValueError):
    """Rows that cannot be one fit: they differ in a field that must be equal."""

    def __init__(self, field: str, values: list[str], hint: str = "") -> None:
        self.field, self.values, self.hint = field, values, hint
        end = f". {hint}" if hint else ""
        super().__init__(f"points differ in {field}: {'; '.join(values)}{end}")


class FitError(SpecModelError, RuntimeError):
    """The points do not allow a fit."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ImpossibleAnswerError(SpecModelError, ValueError):
    """What is known implies rounds that take less than a step without speculation, which cannot be."""

    def __init__(self, round_cost: float, cause: str) -> None:
        self.round_cost, self.cause = round_cost, cause
        would = f"a round would take {round_cost:.2f} steps without speculation"
        super().__init__(f"no answer: {would}, and none can take less than one; {cause}")


class MissingExtraError(SpecModelError, ImportError):
    """Something needs packages that come with an extra of the distribution, and they are not there."""

    def __init__(self, what: str, packages: list[str], extra: str) -> None:
        self.what, self.packages, self.extra = what, packages, extra
        missing = " and ".join(packages)
        verb = "is" if len(packages) == 1 else "are"
        super().__init__(
            f"{what} needs {missing}, which {verb} not installed; pip install 'specmodel[{extra}]'"
        )


class ExtrapolationWarning(UserWarning):
    """A value is outside the range that the constants were fitted on."""

    def __init__(self, axis: str, value: float, low: float, high: float) -> None:
        self.axis, self.value, self.low, self.high = axis, value, low, high
        super().__init__(f"{axis} {value:g} is outside the measured range {low:g} to {high:g}")
