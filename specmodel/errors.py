"""Exceptions and warnings: every one carries its facts as attributes.

A message says what is wrong, what was found, what is allowed and what to do.
"""

from pathlib import Path
from typing import Any


class SpecModelError(Exception):
    """Base of every error a user can cause; the command line prints it as one line."""


class ParameterError(SpecModelError, ValueError):
    """A value is outside what is possible."""

    def __init__(self, name: str, value: object, allowed: str, hint: str = "") -> None:
        self.name, self.value, self.allowed, self.hint = name, value, allowed, hint
        super().__init__(f"{name} must be {allowed}, got {value}" + (f"; {hint}" if hint else ""))


class UnknownKeyError(SpecModelError, KeyError):
    """A name is not in a catalogue (a packaged system, a source, a constant)."""

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
        super().__init__(
            f"points differ in {field}: {'; '.join(values)}" + (f". {hint}" if hint else "")
        )


class FitError(SpecModelError, RuntimeError):
    """The points do not allow a fit."""

    def __init__(self, reason: str, result: Any = None) -> None:
        self.reason, self.result = reason, result
        super().__init__(reason)


class ImpossibleAnswerError(SpecModelError, ValueError):
    """What is known implies rounds that take less than a step without speculation, which cannot be.

    Parameters
    ----------
    round_cost : float
        What it implies, [baseline steps].
    cause : str
        What is likely wrong, and what to do.
    """

    def __init__(self, round_cost: float, cause: str) -> None:
        self.round_cost, self.cause = round_cost, cause
        super().__init__(
            f"no answer: a round would take {round_cost:.2f} steps without speculation, and none can "
            f"take less than one; {cause}"
        )


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
