"""Accuracies of several records as one: numerators over denominators where they are conditional.

training_logs.md sections 4.3 and 7.1. Counts are not in text logs: records weigh the same.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from calibration.training.offline_acceptance import ROUTES, chained_accept_length
from calibration.training.records import Array, Kind, Rows
from calibration.training.training_log import SplitSeries

# Records that a series needs before its last tenth is pooled.
FEWEST_FOR_TAIL: Final = 50

_TAIL_PARTS = 10
_MOST_ROWS = 1 << 15  # that are looked at together


def tail_rows(rows: Rows) -> Rows:
    """Return the last tenth of some rows, rounded down; none where there are fewer than 50."""
    return rows[-(len(rows) // _TAIL_PARTS) :] if len(rows) >= FEWEST_FOR_TAIL else rows[:0]


@np.errstate(all="ignore")  # impossible values are refused elsewhere
def pooled(series: SplitSeries, rows: Rows) -> dict[Kind, Array]:
    r"""Return the accuracies of some records pooled, by depth.

    Joint, marginal and overlap are means; conditional ones are

    .. math:: B_k = \frac{\sum A_{k-1} B_k}{\sum A_{k-1}}

    with joint accuracies A of the same records (running products of B where they are not printed).
    """
    found: dict[Kind, Array] = {}
    for kind, values in series.accuracies.items():
        if kind is Kind.CONDITIONAL:
            found[kind] = _pooled_conditional(values, series.accuracies.get(Kind.JOINT), rows)
        else:
            found[kind] = _means(values, rows)
    return found


@np.errstate(all="ignore")
def mean_of_known(values: Array) -> Array:
    """Return means over records, of those that are known."""
    known = np.isfinite(values)
    number = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.asarray(np.where(number > 0, total / np.maximum(number, 1), np.nan))


@np.errstate(all="ignore")  # impossible values are refused elsewhere
def identity(series: SplitSeries, rows: Rows) -> Array:
    r"""Return how far joint and conditional accuracies agree, from the second depth on.

    .. math:: \hat f_k = \frac{\sum A_{k-1} B_k}{\sum A_k}
    """
    joint, conditional = (series.accuracies.get(k) for k in (Kind.JOINT, Kind.CONDITIONAL))
    if joint is None or conditional is None:
        return np.empty(0)
    depths = min(joint.shape[1], conditional.shape[1])
    numerator, denominator = np.zeros(max(depths - 1, 0)), np.zeros(max(depths - 1, 0))
    for part in _parts(rows):
        reached, chance = joint[part][:, :depths], conditional[part][:, 1:depths]
        above, below = reached[:, :-1], reached[:, 1:]
        known = np.isfinite(above) & np.isfinite(below) & np.isfinite(chance)
        numerator += np.where(known, above * chance, 0.0).sum(axis=0)
        denominator += np.where(known, below, 0.0).sum(axis=0)
    positive = denominator > 0
    return np.asarray(np.where(positive, numerator / np.where(positive, denominator, 1.0), np.nan))


@np.errstate(all="ignore")  # impossible values are refused elsewhere
def accept_lengths(accuracies: Mapping[Kind, Array]) -> dict[str, float]:
    """Return the accept length that each kind of accuracy implies, bonus token included."""
    found: dict[str, float] = {}
    for kind, values in accuracies.items():
        known = values[: int(np.argmin(np.append(np.isfinite(values), False)))]
        if len(known):
            found[ROUTES[kind]] = float(chained_accept_length(known, kind))
    return found


def _pooled_conditional(values: Array, joint: Array | None, rows: Rows) -> Array:
    """Return conditional accuracies pooled as numerator over denominator."""
    found = _means(values, rows)
    numerator, denominator = np.zeros(len(found) - 1), np.zeros(len(found) - 1)
    for part in _parts(rows):
        chances = values[part]
        reached = np.cumprod(chances, axis=1)
        if joint is not None:
            shared = min(joint.shape[1], values.shape[1])
            printed = joint[part][:, :shared]
            reached[:, :shared] = np.where(np.isfinite(printed), printed, reached[:, :shared])
        above, chance = reached[:, :-1], chances[:, 1:]
        known = np.isfinite(above) & np.isfinite(chance)
        denominator += np.where(known, above, 0.0).sum(axis=0)
        numerator += np.where(known, above * chance, 0.0).sum(axis=0)
    positive = denominator > 0
    weighted = numerator / np.where(positive, denominator, 1.0)
    found[1:] = np.where(positive, weighted, found[1:])
    return found


def _means(values: Array, rows: Rows) -> Array:
    """Return the means of some rows, of what is known, depth by depth."""
    return np.array([mean_of_known(depth[rows]) for depth in values.T])


def _parts(rows: Rows) -> Iterator[Rows]:
    """Yield rows some at a time: a log may have a million of them."""
    for start in range(0, len(rows), _MOST_ROWS):
        yield rows[start : start + _MOST_ROWS]
