"""Checks of a clean log: ranges, the identity of joint and conditional, the aliasing defect.

training_logs.md section 6. A check warns or refuses; nothing is corrected unless it is asked for.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.training.family_facts import Bonus
from calibration.training.pooling import identity, pooled
from calibration.training.records import Array, Kind, Split
from calibration.training.training_log import AliasDefect, SplitSeries, TrainingLog
from specmodel.errors import Note

# How far the identity may be from 1, beyond rounding, training_logs.md section 6.1. [-]
IDENTITY_TOLERANCE: Final = 0.03

_FLOAT_NOISE: Final = 1e-6  # of sums in single precision
_OUTSIDE_NOISE: Final = 1e-9
_LARGEST_TRAIN_FACTOR: Final = 2.0
_SMALLEST_TRAIN_FACTOR: Final = 1.5
_EPOCH_FORMATS: Final = ("F1", "E1")


def checked(log: TrainingLog) -> TrainingLog:
    """Return a log with the warnings and the aliasing defect that its values show."""
    alias = {
        split: defect
        for split, series in log.series.items()
        if (defect := _alias_defect(log, series)) is not None
    }
    alias = _of_one_run(alias)
    warnings = {warning.code: warning for warning in log.warnings}
    for warning in (*_of_splits(log), *_of_values(log, alias)):
        warnings.setdefault(warning.code, warning)
    return replace(log, alias=alias, warnings=tuple(warnings[code] for code in sorted(warnings)))


def corrected(log: TrainingLog) -> TrainingLog:
    """Return a log with the aliasing defect divided out."""
    series = dict(log.series)
    alias: dict[Split, AliasDefect] = {}
    for split, defect in log.alias.items():
        if defect.corrected:
            continue
        alias[split] = replace(defect, corrected=True)
        accuracies = {
            kind: values / defect.divisor if kind in (Kind.JOINT, Kind.CONDITIONAL) else values
            for kind, values in series[split].accuracies.items()
        }
        rounding = series[split].rounding / defect.divisor
        series[split] = replace(series[split], accuracies=accuracies, rounding=rounding)
    found = checked(replace(log, series=series, alias={}))
    return replace(found, alias=dict(log.alias) | alias)


def first_out_of_range(log: TrainingLog) -> tuple[int, float] | None:
    """Return line and value of the first accuracy outside [0, 1]; None in a sound log."""
    found: list[tuple[int, float]] = []
    for series in log.series.values():
        columns = [series.mean_marginal]
        columns += [depth for values in series.accuracies.values() for depth in values.T]
        wrong = [~_in_range(column) & series.finite for column in columns]
        rows = [int(np.argmax(one)) if one.any() else len(series) for one in wrong]
        first = min(rows)
        if first < len(series):
            value = columns[rows.index(first)][first]
            found.append((int(series.line[first]), float(value)))
    return min(found, default=None)


def _in_range(values: Array) -> NDArray[np.bool_]:
    """Return which accuracies are from 0 to 1, or not known."""
    return ~((values < -_OUTSIDE_NOISE) | (values > 1.0 + _OUTSIDE_NOISE))


def _of_splits(log: TrainingLog) -> Iterator[Note]:
    """Yield what is to be said of the splits."""
    if len(log.series.get(Split.UNKNOWN, ())):
        yield Note(
            code="split-unknown",
            message="the log does not say whether it is train or validation data",
        )
    elif not len(log.series.get(Split.VAL, ())):
        yield Note(code="train-only", message="there is no validation")
    for split, series in log.series.items():
        gone = np.flatnonzero(~series.finite)
        if len(gone):
            lines = tuple(int(line) for line in series.line[gone])
            detail = (
                f"{len(gone)} of {len(series)} {split} records have nan or inf and are left out"
            )
            yield Note(code="non-finite", lines=lines, message=detail)
    if _evaluation_is_training(log):
        yield Note(
            code="eval-equals-train",
            message="the evaluation prints the train accuracies; it is used as train",
        )


def _of_values(log: TrainingLog, alias: dict[Split, AliasDefect]) -> Iterator[Note]:
    """Yield what is to be said of the values of each split."""
    for split, series in log.series.items():
        rows = series.usable_rows()
        if not len(rows):
            continue
        means = pooled(series, rows)
        if Kind.JOINT in means and split not in alias:
            yield from _of_joint(series, means)
        per_depth = [k for k in (Kind.MARGINAL, Kind.OVERLAP) if k in means]
        if Kind.JOINT in means or Kind.CONDITIONAL in means:
            pass
        elif per_depth:
            if log.depths > 1:
                detail = "a product of marginal accuracies is a lower-side approximation"
                yield Note(code="marginal-approximation", message=detail)
            else:
                yield Note(
                    code="depth0-only",
                    message="only the first depth has an accuracy: no accept length",
                )
        elif not log.depths:
            yield Note(code="mean-only", message="there is no accuracy by depth, only their mean")
        for key, lengths in series.reported.items():
            if lengths.bonus is Bonus.UNKNOWN and lengths.last is not None:
                detail = f"whether {key} counts the bonus token cannot be decided"
                yield Note(code="bonus-unknown", message=detail)


def _of_joint(series: SplitSeries, means: dict[Kind, Array]) -> Iterator[Note]:
    """Yield what is to be said of joint accuracies and of conditional ones beside them."""
    joint = means[Kind.JOINT]
    rounding = 2.0 * series.rounding + _FLOAT_NOISE
    rises = np.flatnonzero(np.diff(joint) > rounding)
    if len(rises):
        depth = int(rises[0]) + 1
        detail = (
            f"{series.split}: the joint accuracy rises from {joint[depth - 1]:.4g} to "
            f"{joint[depth]:.4g} at depth {depth}"
        )
        yield Note(code="not-monotone", message=detail)
    conditional = means.get(Kind.CONDITIONAL)
    if conditional is None:
        return
    if abs(conditional[0] - joint[0]) > rounding:
        detail = f"{series.split}: cond_0 {conditional[0]:.4g}, full_0 {joint[0]:.4g}"
        yield Note(code="cond0-differs", message=detail)
    ratios = identity(series, series.usable_rows())
    wrong = np.abs(ratios - 1.0) > IDENTITY_TOLERANCE + _rounding(series, means)[: len(ratios)]
    if wrong.any():
        said = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        detail = f"{series.split}: sum of full·cond over sum of full is {said}, not 1"
        yield Note(code="identity-violated", message=detail)


def _rounding(series: SplitSeries, means: dict[Kind, Array]) -> Array:
    """Return the relative half-width that printed digits leave in the identity at each depth."""
    joint, conditional = means[Kind.JOINT], means[Kind.CONDITIONAL]
    depths = min(len(joint), len(conditional))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = 1.0 / joint[: depths - 1] + 1.0 / conditional[1:depths] + 1.0 / joint[1:depths]
    return np.asarray(np.nan_to_num(series.rounding * np.abs(relative), nan=np.inf, posinf=np.inf))


def _alias_defect(log: TrainingLog, series: SplitSeries) -> AliasDefect | None:
    """Return the aliasing defect of speculators 0.6.0 in a split; None where it is not."""
    if log.family != "speculators-eagle3":
        return None
    rows = series.usable_rows()
    ratios = identity(series, rows)
    means = pooled(series, rows)
    if not len(ratios):
        return None
    tolerance = _rounding(series, means)[: len(ratios)]
    known = np.isfinite(ratios) & np.isfinite(tolerance)
    if not known.any():
        return None
    ratios, tolerance = ratios[known], tolerance[known]
    weights = 1.0 / np.maximum(tolerance, _FLOAT_NOISE) ** 2
    factor = float((ratios * weights).sum() / weights.sum())
    if not 0.0 < factor < np.inf:
        return None
    allowed = IDENTITY_TOLERANCE + tolerance
    if (np.abs(ratios / factor - 1.0) > allowed).any():
        return None
    return _defect_of(factor, series.split, float(allowed.min()))


def _defect_of(factor: float, split: Split, allowed: float) -> AliasDefect | None:
    """Return the defect whose factor is about a number: 2 - 1/W in train, W in validation."""
    if abs(factor - 1.0) <= allowed:  # as good as 1: few printed digits say no more
        return None
    if split is not Split.VAL:
        missing = _LARGEST_TRAIN_FACTOR - factor
        if factor >= _SMALLEST_TRAIN_FACTOR * (1.0 - allowed) and missing > 0.0:
            processes = max(2, round(1.0 / missing))
            divisor = _LARGEST_TRAIN_FACTOR - 1.0 / processes
            if abs(factor / divisor - 1.0) <= allowed:
                return AliasDefect(num_processes=processes, divisor=divisor)
    if split is not Split.TRAIN:
        processes = round(factor)
        if processes >= 2 and abs(factor / processes - 1.0) <= allowed:
            return AliasDefect(num_processes=processes, divisor=float(processes))
    return None


def _of_one_run(alias: dict[Split, AliasDefect]) -> dict[Split, AliasDefect]:
    """Return the defects with the world size of validation, which is the sharper one, in both."""
    train, val = alias.get(Split.TRAIN), alias.get(Split.VAL)
    if train is None or val is None or train.num_processes == val.num_processes:
        return alias
    divisor = _LARGEST_TRAIN_FACTOR - 1.0 / val.num_processes
    if abs(train.divisor / divisor - 1.0) > IDENTITY_TOLERANCE:
        return alias
    defect = AliasDefect(num_processes=val.num_processes, divisor=divisor)
    return alias | {Split.TRAIN: defect}


def _evaluation_is_training(log: TrainingLog) -> bool:
    """Return whether the evaluation of every epoch prints what training printed."""
    train, val = log.series.get(Split.TRAIN), log.series.get(Split.VAL)
    if train is None or val is None or not set(log.formats) & set(_EPOCH_FORMATS):
        return False
    one, other = train.accuracies.get(Kind.MARGINAL), val.accuracies.get(Kind.MARGINAL)
    if one is None or other is None or one.shape[1] != other.shape[1] or not len(other):
        return False
    places = {epoch: row for row, epoch in enumerate(train.epoch.tolist())}
    rows = [places.get(epoch, -1) for epoch in val.epoch.tolist()]
    return min(rows) >= 0 and bool(np.array_equal(one[rows], other, equal_nan=True))
