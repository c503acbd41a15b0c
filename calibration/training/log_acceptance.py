"""The accept length that a whole log implies now: which of its records count, and their conversion.

Section 7 of the reference of training logs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import Bonus, accept_length_with_bonus
from calibration.training.offline_acceptance import (
    ROUTES,
    OfflineAcceptance,
    chained_accept_length,
    offline_acceptance,
    within_depth,
)
from calibration.training.pooling import pooled
from calibration.training.reading import read_training_log
from calibration.training.records import Kind, Split
from calibration.training.training_log import SplitSeries, TrainingLog
from specmodel.acceptance import carry_accept_length
from specmodel.ask import Ask
from specmodel.errors import FormatError, ParameterError


# ---
# The accept length that a trainer prints, where it prints no accuracy by depth.
def printed_acceptance(
    accept_length: float | None,
    num_steps: int | None = None,
    *,
    printed_depth: int | None = None,
    sd: float = 0.0,
) -> OfflineAcceptance:
    """Return the accept length that a trainer printed, where it prints no accuracy by depth."""
    if accept_length is None:
        return OfflineAcceptance(None, None, num_steps, 0, codes=("mean-only", "bonus-unknown"))
    most = math.inf if printed_depth is None else printed_depth + 1.0
    if not 1.0 <= accept_length <= most:
        raise ParameterError(
            "accept length",
            f"{accept_length:g}",
            f"between 1 and {most:g}",
            "every round emits the target's own token; if the trainer leaves it out, add 1",
        )
    if printed_depth is None or num_steps in {None, printed_depth}:
        known = within_depth(accept_length, accept_length, accept_length, sd=sd, most=most)
        unknown = () if printed_depth is not None else ("printed-depth-unknown",)
    else:
        carried = carry_accept_length(accept_length, printed_depth, [num_steps])
        median, low, high = (float(one[0]) for one in (carried.value, carried.low, carried.high))
        known = within_depth(median, low, high, sd=sd, most=float(num_steps or 0) + 1.0)
        unknown = ("beyond-trained-depth",) if (num_steps or 0) > printed_depth else ()
    depth = num_steps if printed_depth is not None and num_steps else printed_depth
    return OfflineAcceptance(known, None, depth, 0, codes=("mean-only", *unknown))


Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Train records are pooled over the last of so many parts of the log.
LAST_PARTS: Final = 10

# Train records that are pooled at least, where the log has them: one is a single batch.
FEWEST_RECORDS: Final = 5

# Steps without a record, over the last step, before which records are of another drafter. A judgement.
_APART: Final = 0.5

# Epochs over which validation is pooled where no record of it is whole. A judgement.
LAST_EPOCHS: Final = 3


_ALL_TRAIN: Final = (Split.TRAIN, Split.UNKNOWN, Split.VAL)


class Selection(StrEnum):
    """How many records were used."""

    LAST = "last"
    POOLED = "pooled"


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

    `accept_length` has the bonus token in it; None where its convention is not known. It is the last
    one of validation, or the mean of the last ones of training; `sd` is its standard error by the
    scatter of the records, 0 where they are too few to show it.
    """

    key: str
    bonus: Bonus
    accept_length: float | None
    sd: float = 0.0
    num_records: int = 1


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
        found = printed_acceptance(
            printed.accept_length, num_steps, printed_depth=trained_depth, sd=printed.sd
        )
    else:
        found = offline_acceptance({}, num_steps)
    return LogAcceptance(found, source, printed)


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
            rows = np.flatnonzero(known.finite & np.isfinite(lengths.values))
            if rows.size:
                last = rows[-1:] if split is Split.VAL else _last_part(known, rows)
                mean = float(lengths.values[last].mean())
                value = accept_length_with_bonus(mean, lengths.bonus)
                sd = _standard_error(lengths.values[rows], last.size)
                rank = 2 if value is None else int(lengths.bonus is not Bonus.MEASURED)
                found.append((rank, PrintedLength(key, lengths.bonus, value, sd, last.size)))
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
        rows = _last_part(series, rows if rows.size else series.usable_rows())
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


def _standard_error(values: Array, pooled: int) -> float:
    """Standard error of the mean of the last records; of a single one, by all about their neighbours."""
    if pooled > 1:
        return float(values[-pooled:].std(ddof=1) / math.sqrt(pooled))
    return float(np.sqrt(np.mean(np.diff(values, 2) ** 2) / 6.0)) if values.size > 2 else 0.0


def _last_part(series: SplitSeries, rows: Rows) -> Rows:
    """The last tenth of some records, but not fewer than can be pooled, none from far before."""
    number = max(rows.size // LAST_PARTS, min(FEWEST_RECORDS, rows.size))
    rows = rows[rows.size - number :]
    step = series.step[rows]
    apart = np.flatnonzero(np.diff(step) > _APART * step[-1:])
    return rows[apart[-1] + 1 :] if apart.size else rows


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


# ---
# The acceptance of a training log as `specmodel predict` asks for it.
def asked_by_log(path: Path, asked: Ask) -> Ask:
    """Return the question with the acceptance that a log last shows."""
    log = read_training_log(path)
    found = log_acceptance(log)
    source, printed = found.source, found.printed
    if source is not None and "depth0-only" not in log.codes:
        joint = source.accuracies.get(Kind.JOINT)
        if joint is not None:
            return asked._replace(full_accuracy=joint)
        for kind in (Kind.CONDITIONAL, Kind.MARGINAL, Kind.OVERLAP):
            if kind in source.accuracies:
                return asked._replace(conditional_accuracy=source.accuracies[kind])
    if printed is not None and printed.accept_length is not None:
        return asked._replace(accept_length=printed.accept_length)
    raise FormatError(
        path,
        f"this log implies no accept length ({', '.join(sorted(log.codes)) or 'no accuracy'}); log an "
        "accuracy for each depth",
        code="no-accept-length",
    )
