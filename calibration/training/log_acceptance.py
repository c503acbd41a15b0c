"""The accept length that a whole log implies now: which of its records count, and their conversion.

Section 7 of the reference of training logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import Bonus, accept_length_with_bonus
from calibration.training.offline_acceptance import (
    ROUTES,
    OfflineAcceptance,
    chained_accept_length,
    offline_acceptance,
)
from calibration.training.pooling import pooled
from calibration.training.printed_acceptance import printed_acceptance
from calibration.training.records import Kind, Split
from calibration.training.training_log import SplitSeries, TrainingLog

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Train records are pooled over the last of so many parts of the log.
LAST_PARTS: Final = 10

# Train records that are pooled at least, where the log has them: one is a single batch.
FEWEST_RECORDS: Final = 5

# Epochs over which validation is pooled where no record of it is whole. A judgement.
LAST_EPOCHS: Final = 3


_ALL_TRAIN: Final = (Split.TRAIN, Split.UNKNOWN, Split.VAL)


class Selection(StrEnum):
    """How many records were used."""

    LAST = "last"
    POOLED = "pooled"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracySource:
    """Accuracies of a drafter as its log last shows them."""

    split: Split  # which data
    selection: Selection  # the last record, or the last ones pooled
    num_records: int  # records that were used
    accuracies: Mapping[Kind, tuple[float, ...]]  # by depth, as fractions
    rounding: float  # half a unit of the last printed digit
    # standard error of the accept length from the scatter of the records that were pooled; 0 for a
    # single one, which does not show it, [tokens]
    scatter_sd: float = 0.0
    step: int | None = None  # of the last record; None where none is known
    codes: tuple[str, ...] = ()  # ``train-only``, ``split-unknown``


class PrintedLength(NamedTuple):
    """An accept length that the trainer printed last, by its key.

    `accept_length` has the bonus token in it; None where its convention is not known.
    """

    key: str
    bonus: Bonus
    accept_length: float | None


class LogAcceptance(NamedTuple):
    """What a log says of the accept length, and from what; either source may be missing."""

    acceptance: OfflineAcceptance
    source: AccuracySource | None
    printed: PrintedLength | None


def log_acceptance(
    log: TrainingLog,
    num_steps: int | None = None,
    *,
    sampled: bool = False,
    trained_depth: int | None = None,
) -> LogAcceptance:
    """Return the accept length that a log implies at its last records."""
    source = accuracy_source(log.series, use_validation="eval-equals-train" not in log.codes)
    printed = last_printed_length(log.series)
    if source is not None:
        found = offline_acceptance(
            source.accuracies,
            num_steps,
            sampled=sampled,
            rounding=source.rounding,
            num_records=source.num_records,
            scatter_sd=source.scatter_sd,
            depth_is_whole="depth0-only" not in log.codes,
        )
    elif printed is not None:
        found = printed_acceptance(printed.accept_length, num_steps, printed_depth=trained_depth)
    else:
        found = offline_acceptance({}, num_steps)
    return LogAcceptance(acceptance=found, source=source, printed=printed)


def accuracy_source(
    series: Mapping[Split, SplitSeries], *, use_validation: bool = True
) -> AccuracySource | None:
    """Return the accuracies to convert into an accept length.

    The last whole validation record; where none is whole, validation pooled over the last epochs;
    without validation the last tenth of the train records, pooled.

    A train record is one batch for each process; pooled as in `calibration.training.pooling`. A split that is
    not known counts as train.
    """
    splits = (Split.VAL, Split.TRAIN, Split.UNKNOWN) if use_validation else _ALL_TRAIN
    for split in splits:
        known = series.get(split)
        last = split is Split.VAL and use_validation
        found = _of_series(known, last=last) if known is not None else None
        if found is not None:
            return found
    return None


def last_printed_length(series: Mapping[Split, SplitSeries]) -> PrintedLength | None:
    """Return the accept length that was printed last, of validation where it has one."""
    found: list[tuple[int, PrintedLength]] = []
    for split in (Split.VAL, Split.TRAIN, Split.UNKNOWN):
        known = series.get(split)
        if known is None:
            continue
        for key, lengths in known.reported.items():
            values = lengths.values[known.finite & np.isfinite(lengths.values)]
            if values.size:
                value = accept_length_with_bonus(float(values[-1]), lengths.bonus)
                rank = 2 if value is None else int(lengths.bonus is not Bonus.MEASURED)
                found.append((rank, PrintedLength(key, lengths.bonus, value)))
        if found:
            break
    return min(found, key=lambda one: one[0])[1] if found else None


def _of_series(series: SplitSeries, *, last: bool) -> AccuracySource | None:
    """Accuracies of one split: its last record, or its last ones pooled."""
    values = [one for one in series.accuracies.values() if one.shape[1]]
    if not values or not series.finite.any():
        return None
    whole = series.finite & np.all([np.isfinite(one).all(axis=1) for one in values], axis=0)
    rows = np.flatnonzero(whole)
    if last and rows.size:
        rows = rows[-1:]
    elif last:
        rows = _last_epochs(series)
    else:
        rows = _last_part(rows if rows.size else series.usable_rows())
    accuracies = _by_depth(pooled(series, rows))
    if not accuracies:
        return None
    step = series.step[rows[-1]]
    codes = () if last else ("train-only",)
    return AccuracySource(
        split=series.split,
        selection=Selection.LAST if rows.size == 1 else Selection.POOLED,
        num_records=int(rows.size),
        accuracies=accuracies,
        rounding=series.rounding,
        scatter_sd=_scatter_sd(series, rows),
        step=int(step) if np.isfinite(step) else None,
        codes=("split-unknown", *codes) if series.split is Split.UNKNOWN else codes,
    )


def _scatter_sd(series: SplitSeries, rows: Rows) -> float:
    """Standard error of the mean accept length of some records, by the first kind they have."""
    kind = next(one for one in ROUTES if one in series.accuracies)
    lengths = chained_accept_length(series.accuracies[kind][rows], kind)
    known = lengths[np.isfinite(lengths)]
    return float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else 0.0


def _last_part(rows: Rows) -> Rows:
    """The last tenth of some records, but not fewer than can be pooled."""
    number = max(rows.size // LAST_PARTS, min(FEWEST_RECORDS, rows.size))
    return rows[rows.size - number :]


def _last_epochs(series: SplitSeries) -> Rows:
    """Usable records of the last epochs; all where no epoch is printed."""
    rows = series.usable_rows()
    epochs = series.epoch[rows]
    known = np.unique(epochs[np.isfinite(epochs)])
    return rows[epochs >= known[-LAST_EPOCHS:][0]] if known.size else rows


def _by_depth(values: Mapping[Kind, Array]) -> dict[Kind, tuple[float, ...]]:
    """Accuracies of each kind up to the first depth that no record has."""
    found: dict[Kind, tuple[float, ...]] = {}
    for kind, means in values.items():
        depths = int(np.argmin(np.append(np.isfinite(means), False)))
        if depths:
            found[kind] = tuple(means[:depths].tolist())
    return found
