"""The accuracy curves of a whole log: which split and kind of accuracy carries a projection."""

import numpy as np
from numpy.typing import NDArray

from calibration.training.curves import AccuracyCurves, accuracy_curves
from calibration.training.projection import FEWEST_POINTS
from calibration.training.records import Kind, Split
from calibration.training.training_log import SplitSeries, TrainingLog

Array = NDArray[np.float64]

_CHAINED = (Kind.CONDITIONAL, Kind.JOINT, Kind.MARGINAL, Kind.OVERLAP)


def curves_of(log: TrainingLog, *, response_length: float | None = None) -> AccuracyCurves | None:
    """Return the accuracy curves of a log; None where it has no steps or no accuracy by depth."""
    validation = None if "eval-equals-train" in log.codes else log.series.get(Split.VAL)
    choices = (validation, log.training, validation or log.training)
    for series, fewest in zip(choices, (FEWEST_POINTS, FEWEST_POINTS, 1), strict=True):
        if series is None:
            continue
        curves = _curves(log, series, response_length)
        if curves is not None and curves.num_points >= fewest:
            return curves
    return None


def _curves(
    log: TrainingLog, series: SplitSeries, response_length: float | None
) -> AccuracyCurves | None:
    """Return the curves of one split."""
    kind = _carrying_kind(series)
    if kind is None or not series.depths:
        return None
    rows = series.usable_rows()
    rows = rows[np.isfinite(series.step[rows])]
    rows = rows[np.isfinite(series.accuracies[kind][rows]).all(axis=1)]
    if not rows.size:
        return None
    rates = _learning_rates(log)
    return accuracy_curves(
        series.step[rows],
        series.accuracies[kind][rows],
        kind=kind,
        split=series.split,
        joint=_weights(series, rows) if kind is Kind.CONDITIONAL else None,
        rounding=series.rounding,
        learning_rate=None if rates is None else rates[1],
        rate_steps=None if rates is None else rates[0],
        total_steps=log.total_steps,
        response_length=response_length,
    )


def _carrying_kind(series: SplitSeries) -> Kind | None:
    """Return the kind of accuracy to follow: joint only where it is known to a greater depth."""
    known = [kind for kind in _CHAINED if kind in series.accuracies]
    if known[:2] == [Kind.CONDITIONAL, Kind.JOINT]:
        return max(known[:2], key=lambda kind: series.accuracies[kind].shape[1])
    return next(iter(known), None)


def _weights(series: SplitSeries, rows: NDArray[np.intp]) -> Array | None:
    """Return the joint accuracies of as many depths as the conditional ones have, None if it has fewer."""
    joint, depths = series.accuracies.get(Kind.JOINT), series.accuracies[Kind.CONDITIONAL].shape[1]
    return None if joint is None or joint.shape[1] < depths else joint[rows, :depths]


def _learning_rates(log: TrainingLog) -> tuple[Array, Array] | None:
    """Return the steps and learning rates of all train records; None where none is printed."""
    training = log.training
    if training is None:
        return None
    known = np.isfinite(training.learning_rate) & np.isfinite(training.step)
    if not known.any():
        return None
    return training.step[known], training.learning_rate[known]
