"""One clean training log: what is known of a run after copies, restarts and checks.

`calibration.training.reading.read_training_log` makes it; curves and reports use nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import Bonus, accept_length_with_bonus
from calibration.training.records import Array, Kind, Split
from specmodel.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWarning:
    """Something that a reader or a check found.

    Parameters
    ----------
    code : str
        Its name in training_logs.md section 6.2 (``step-restart`` ...).
    lines : tuple of int
        Where, 1-based, counted through all files; the first ones only.
    detail : str
        What exactly, for a person; may be empty.
    """

    code: str
    lines: tuple[int, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasDefect:
    """A double reduction of speculators 0.6.0 to 0.6.0.2 in one split, training_logs.md section 6.1.

    Parameters
    ----------
    num_processes : int
        World size W of the run.
    divisor : float
        What joint and conditional accuracies were multiplied by.
    corrected : bool
        Whether they have been divided by it.
    """

    num_processes: int
    divisor: float
    corrected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportedLengths:
    """Accept lengths that the trainer printed, one for each record.

    Parameters
    ----------
    values : array of float, shape (records,)
        As printed; nan where a record has none, [tokens].
    bonus : Bonus
        Whether they count the bonus token.
    """

    values: Array
    bonus: Bonus

    @property
    def last(self) -> float | None:
        """The last printed value; None where none is finite."""
        rows = np.flatnonzero(np.isfinite(self.values))
        return float(self.values[rows[-1]]) if len(rows) else None

    @property
    def last_accept_length(self) -> float | None:
        """The last one with the bonus token; None where it, or its convention, is not known."""
        return None if self.last is None else accept_length_with_bonus(self.last, self.bonus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitSeries:
    """The records of one split, in the order of steps: one row for each record that counts.

    What a record does not print, or prints as nan or infinity, is nan here; `finite` tells which
    records may be used.

    Parameters
    ----------
    split : Split
        Which data.
    line : array of float, shape (records,)
        Line on which a record begins.
    step : array of float, shape (records,)
        Optimiser step. Counted from 1 where the trainer prints none but one record a step; of
        validation, the step of the last train record before it; nan where not known.
    epoch, learning_rate, total_loss, mean_marginal : array of float, shape (records,)
        As printed.
    losses : array of float, shape (records, depths)
        By depth; no columns where not printed.
    accuracies : mapping from Kind to array of float, shape (records, depths)
        By depth, as fractions.
    reported : mapping from str to ReportedLengths
        Accept lengths printed by the trainer, by their key.
    finite : array of bool, shape (records,)
        False where an accuracy, a depth loss or the total loss is nan or infinite.
    rounding : float
        Half a unit of the last printed digit of the accuracies.
    """

    split: Split
    line: Array
    step: Array
    epoch: Array
    learning_rate: Array
    total_loss: Array
    mean_marginal: Array
    losses: Array
    accuracies: Mapping[Kind, Array]
    reported: Mapping[str, ReportedLengths]
    finite: NDArray[np.bool_]
    rounding: float

    def __len__(self) -> int:
        return len(self.line)

    @property
    def num_finite(self) -> int:
        """How many records may be used."""
        return int(self.finite.sum())

    @property
    def depths(self) -> int:
        """How many depths an accuracy was printed for."""
        return max((values.shape[1] for values in self.accuracies.values()), default=0)

    def usable_rows(self) -> NDArray[np.intp]:
        """Return the rows that are finite and say something.

        Where some records have an accuracy for each depth, those that have none (bars) are not
        among them.
        """
        rows = np.flatnonzero(self.finite)
        if not self.accuracies:
            return rows
        per_depth = np.zeros(len(self), dtype=bool)
        for values in self.accuracies.values():
            per_depth |= np.isfinite(values).any(axis=1)
        selected = rows[per_depth[rows]]
        return selected if len(selected) else rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingLog:
    """A run, as far as its log tells it.

    Parameters
    ----------
    paths : tuple of Path
        The files.
    first_lines : tuple of int
        Number that the first line of each file has; lines are counted through all files.
    framework, family, versions, feeding, oov, aggregation : str
        Project, reader family, and what the layout implies; training_logs.md sections 1 and 2.
    formats : tuple of str
        Ids of the layouts whose records are used, sorted.
    kinds : mapping from str to str
        Key pattern of an accuracy to what it is the probability of.
    depths : int
        How many drafted depths have an accuracy; 0 where only their mean is printed.
    first_position : int or None
        Index that is printed for the first depth; None without depths.
    unique_steps : int or None
        Distinct steps that carry a train record; None where there are no steps.
    first_step, last_step : int or None
        Smallest and largest of them; None where none is printed.
    step_source : str
        ``logged``, ``bar``, ``counted`` or ``none``.
    epochs : tuple of float
        Distinct values as printed, sorted.
    total_steps : int or None
        The trainer's own total of steps; None where it prints none.
    series : mapping from Split to SplitSeries
        By split.
    warnings : tuple of LogWarning
        What was found, sorted by code, each code once.
    alias : mapping from Split to AliasDefect
        Splits whose accuracies were multiplied by a defect; empty in sound logs.
    """

    paths: tuple[Path, ...]
    first_lines: tuple[int, ...]
    framework: str
    family: str
    versions: str
    feeding: str
    oov: str
    aggregation: str
    formats: tuple[str, ...]
    kinds: Mapping[str, str]
    depths: int
    first_position: int | None
    unique_steps: int | None
    first_step: int | None
    last_step: int | None
    step_source: str
    epochs: tuple[float, ...]
    total_steps: int | None
    series: Mapping[Split, SplitSeries]
    warnings: tuple[LogWarning, ...] = ()
    alias: Mapping[Split, AliasDefect] = field(default_factory=dict)

    @property
    def codes(self) -> frozenset[str]:
        """Codes of the warnings."""
        return frozenset(warning.code for warning in self.warnings)

    @property
    def training(self) -> SplitSeries | None:
        """The train records; those of unknown split where there are none."""
        return self.series.get(Split.TRAIN) or self.series.get(Split.UNKNOWN)

    def where(self, line: int) -> str:
        """Return where a line stands, for a person: its number in its file, and which file.

        Parameters
        ----------
        line : int
            Counted through all files.

        Returns
        -------
        str
            ``line 7`` of a single file, ``run.log, line 7`` of several.
        """
        return place_of_line(line, self.paths, self.first_lines)


def place_of_line(line: int, paths: Sequence[Path], first_lines: Sequence[int]) -> str:
    """Return where a line that is counted through some files stands.

    Parameters
    ----------
    line : int
        Counted through all files.
    paths : sequence of Path
        The files.
    first_lines : sequence of int
        Number that the first line of each file has, ascending.

    Returns
    -------
    str
        For a person.

    Examples
    --------
    >>> place_of_line(12, [Path("a.log"), Path("b.log")], [1, 11])
    'b.log, line 2'
    """
    if len(paths) < 2:
        return f"line {line}"
    number = max(int(np.searchsorted(np.asarray(first_lines), line, side="right")) - 1, 0)
    return f"{paths[number].name}, line {line - first_lines[number] + 1}"


class TrainingLogError(FormatError):
    """A training log that may not be used: a refusal of training_logs.md section 6.2.

    Parameters
    ----------
    path : path
        The file, or the first of several.
    reason : str
        What is wrong, what was found, what to do.
    line : int, optional
        Where, 1-based.
    code : str
        Name of the refusal (``alias-defect`` ...).
    log : TrainingLog, optional
        What was read, where it is a log; not for use as it is.
    by_family : mapping from str to (TrainingLog or TrainingLogError), optional
        With ``mixed-formats``, what each family gives once it is named.
    num_records : mapping from str to int, optional
        With ``mixed-formats``, records by family.
    companion : mapping from str to float, optional
        With ``no-metrics``, what a companion file says.
    """

    def __init__(
        self,
        path: Path | str,
        reason: str,
        *,
        line: int | None = None,
        code: str,
        log: TrainingLog | None = None,
        by_family: "Mapping[str, TrainingLog | TrainingLogError] | None" = None,
        num_records: Mapping[str, int] | None = None,
        companion: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(path, reason, line=line, code=code)
        self.log = log
        self.by_family = dict(by_family or {})
        self.num_records = dict(num_records or {})
        self.companion = dict(companion or {})
