"""Summaries of an evaluation: errors, coverage and regret of one system and over all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CENTRAL = 0.90
"""Probability inside every interval. [-]"""

LEAST_CLUSTERS = 3
"""Fewer target models than this do not tell how the coverage varies between them."""

NUM_RESAMPLES = 2000
"""Bootstrap samples of the coverage."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions of one system under one split, row by row.

    Parameters
    ----------
    error : numpy.ndarray
        Predicted over measured speed-up, minus 1, [-].
    covered : numpy.ndarray of bool
        Whether the measurement is inside its 90 % interval.
    half_width : numpy.ndarray
        Of the intervals, relative, [-].
    constant_error, textbook_error : numpy.ndarray
        Errors of the simple baselines, [-].
    regret : float
        Mean throughput lost by the choice that the predictions call best, [-].
    """

    error: Array
    covered: Mask
    half_width: Array
    constant_error: Array
    textbook_error: Array
    regret: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one system under one split: relative errors of the speed-up.

    Parameters
    ----------
    system, split : str
        What was evaluated.
    num_predictions : int
        Rows predicted, draws included.
    mape, median, p90, worst : float
        Of the absolute relative error, [-].
    coverage : float
        Share of predictions inside their 90 % interval, [-].
    half_width : float
        Mean half width of the intervals, relative, [-].
    constant_mape, textbook_mape : float
        Mean absolute error of one round cost for all, and of the textbook formula; NaN without
        calibration rows for the first, [-].
    regret : float
        Mean throughput lost by choosing the configuration that the predictions call best; NaN where
        no group holds two configurations, [-].
    """

    system: str
    split: str
    num_predictions: int
    mape: float
    median: float
    p90: float
    worst: float
    coverage: float
    half_width: float
    constant_mape: float
    textbook_mape: float
    regret: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """A split over all systems.

    Parameters
    ----------
    split : str
        Which one.
    num_systems, num_predictions : int
        What went in.
    mape, constant_mape, textbook_mape, regret : float
        Means of the systems' values, [-].
    median : float
        Of all errors pooled, [-].
    coverage : float
        Of all predictions pooled, [-].
    coverage_low, coverage_high : float
        Central 90 % interval of the coverage: bootstrap over target models; NaN below
        `LEAST_CLUSTERS` of them, [-].
    """

    split: str
    num_systems: int
    num_predictions: int
    mape: float
    median: float
    constant_mape: float
    textbook_mape: float
    regret: float
    coverage: float
    coverage_low: float
    coverage_high: float


def _mean_absolute(error: Array) -> float:
    """Mean absolute error; NaN where there is none."""
    finite = np.abs(error[np.isfinite(error)])
    return float(finite.mean()) if finite.size else np.nan


def score_of(system: str, split: str, found: Predictions) -> Score:
    """Summary of one system."""
    error = np.abs(found.error)
    return Score(
        system=system,
        split=split,
        num_predictions=int(error.size),
        mape=float(error.mean()),
        median=float(np.median(error)),
        p90=float(np.quantile(error, 0.9)),
        worst=float(error.max()),
        coverage=float(found.covered.mean()),
        half_width=float(found.half_width.mean()),
        constant_mape=_mean_absolute(found.constant_error),
        textbook_mape=_mean_absolute(found.textbook_error),
        regret=found.regret,
    )


def overall_of(
    split: str,
    pairs: Sequence[tuple[str, str, Predictions]],
    generator: np.random.Generator,
) -> Overall:
    """Summary of one split: means of systems; coverage pooled, with a bootstrap over targets.

    A pair is a system's name, its target model (or again its name), and its predictions.
    """
    scores = [score_of(system, split, found) for system, _, found in pairs]
    clusters: dict[str, list[Mask]] = {}
    for _, target, found in pairs:
        clusters.setdefault(target, []).append(found.covered)
    inside = np.array([sum(int(mask.sum()) for mask in masks) for masks in clusters.values()])
    total = np.array([sum(mask.size for mask in masks) for masks in clusters.values()])
    low = high = np.nan
    if total.size >= LEAST_CLUSTERS:
        drawn = generator.integers(0, total.size, size=(NUM_RESAMPLES, total.size))
        resampled = inside[drawn].sum(axis=1) / total[drawn].sum(axis=1)
        low, high = np.quantile(resampled, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2]).tolist()
    return Overall(
        split=split,
        num_systems=len(pairs),
        num_predictions=int(total.sum()),
        mape=float(np.mean([score.mape for score in scores])),
        median=float(np.median(np.concatenate([np.abs(found.error) for _, _, found in pairs]))),
        constant_mape=_finite_mean([score.constant_mape for score in scores]),
        textbook_mape=_finite_mean([score.textbook_mape for score in scores]),
        regret=_finite_mean([score.regret for score in scores]),
        coverage=float(inside.sum() / total.sum()),
        coverage_low=low,
        coverage_high=high,
    )


def _finite_mean(values: list[float]) -> float:
    """Mean of the finite ones; NaN where there is none."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else np.nan
