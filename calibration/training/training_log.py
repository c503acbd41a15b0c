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
from specmodel.errors import FormatError, Note


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasDefect:
    """A double reduction of speculators 0.6.0 to 0.6.0.2 in one split, training_logs.md section 6.1."""

    num_processes: int  # world size W of the run
    divisor: float  # what joint and conditional accuracies were multiplied by
    corrected: bool = False  # whether they have been divided by it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportedLengths:
    """Accept lengths that the trainer printed, one for each record."""

    values: Array  # as printed; nan where a record has none, [tokens]
    bonus: Bonus  # whether they count the bonus token

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
    """

    split: Split  # which data
    line: Array  # line on which a record begins
    # optimiser step. Counted from 1 where the trainer prints none but one record a step; of
    # validation, the step of the last train record before it; nan where not known
    step: Array
    epoch: Array  # as printed
    learning_rate: Array
    total_loss: Array
    mean_marginal: Array
    losses: Array  # by depth; no columns where not printed
    accuracies: Mapping[Kind, Array]  # by depth, as fractions
    reported: Mapping[str, ReportedLengths]  # accept lengths printed by the trainer, by their key
    # false where an accuracy, a depth loss or the total loss is nan or infinite
    finite: NDArray[np.bool_]
    rounding: float  # half a unit of the last printed digit of the accuracies

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
    """A run, as far as its log tells it."""

    paths: tuple[Path, ...]  # the files
    # number that the first line of each file has; lines are counted through all files
    first_lines: tuple[int, ...]
    # project, reader family, and what the layout implies; training_logs.md sections 1 and 2
    framework: str
    family: str
    versions: str
    feeding: str
    oov: str
    aggregation: str
    formats: tuple[str, ...]  # ids of the layouts whose records are used, sorted
    kinds: Mapping[str, str]  # key pattern of an accuracy to what it is the probability of
    depths: int  # how many drafted depths have an accuracy; 0 where only their mean is printed
    first_position: int | None  # index that is printed for the first depth; None without depths
    # distinct steps that carry a train record; None where there are no steps
    unique_steps: int | None
    first_step: int | None  # smallest and largest of them; None where none is printed
    last_step: int | None
    step_source: str  # ``logged``, ``bar``, ``counted`` or ``none``
    epochs: tuple[float, ...]  # distinct values as printed, sorted
    total_steps: int | None  # the trainer's own total of steps; None where it prints none
    series: Mapping[Split, SplitSeries]  # by split
    warnings: tuple[Note, ...] = ()  # what was found, sorted by code, each code once
    # splits whose accuracies were multiplied by a defect; empty in sound logs
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
        """Return where a line stands, for a person: its number in its file, and which file."""
        return place_of_line(line, self.paths, self.first_lines)


def place_of_line(line: int, paths: Sequence[Path], first_lines: Sequence[int]) -> str:
    """Return where a line that is counted through some files stands."""
    if len(paths) < 2:
        return f"line {line}"
    number = max(int(np.searchsorted(np.asarray(first_lines), line, side="right")) - 1, 0)
    return f"{paths[number].name}, line {line - first_lines[number] + 1}"


class TrainingLogError(FormatError):
    """A training log that may not be used: a refusal of training_logs.md section 6.2."""

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
