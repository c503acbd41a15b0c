"""What is left out of a fit, and how far its predictions of that are from what was measured."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.points.arrays import SystemRows
from calibration.points.table import numbers, texts

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Parts = Iterator[tuple[Mask, Mask]]

SMALL_BATCH = 8.0
"""Largest batch of the rows that calibrate in `small_loads`. [requests]"""


class Split(NamedTuple):
    """A way to part the rows of a system: pairs of masks, rows to calibrate on and rows to predict.

    It yields none where it does not apply. Where parts are drawn, each is a choice of its own.
    """

    name: str
    parts: Callable[[SystemRows], Parts]
    drawn: bool = False


def _leave_out(labels: Sequence[object]) -> Parts:
    """Leave out each label in turn; nothing where there is only one."""
    levels = list(dict.fromkeys(labels))
    if len(levels) < 2:
        return
    codes = np.array([levels.index(label) for label in labels])
    for code in range(len(levels)):
        yield codes != code, codes == code


def each_workload(rows: SystemRows) -> Parts:
    """All rows of a workload are not seen; its baselines are known."""
    return _leave_out(texts(rows.frame, "workload"))


def each_configuration(rows: SystemRows) -> Parts:
    """All rows of a depth, branching and number of verified tokens are not seen, at every load."""
    used = [rows.configurations[index] for index in rows.rows.configuration]
    return _leave_out([(one.num_steps, one.topk, one.num_draft_tokens) for one in used])


def each_row(rows: SystemRows) -> Parts:
    """One row is not seen."""
    return _leave_out(range(len(rows.rows)))


def every_row(rows: SystemRows) -> Parts:
    """Every row calibrates and is predicted: not unseen, but the decision that a user would take."""
    everything = np.ones(len(rows.rows), dtype=np.bool_)
    yield everything, everything


def few_rows(num_rows: int, draws: int, seed: int) -> Split:
    """A few random rows, drawn without replacement, calibrate; all others are predicted."""

    def parts(rows: SystemRows) -> Parts:
        count = len(rows.rows)
        if count <= num_rows:
            return
        generator = np.random.default_rng(seed)
        for _ in range(draws if num_rows else 1):  # the prior alone needs no draws
            chosen = np.zeros(count, dtype=np.bool_)
            chosen[generator.choice(count, num_rows, replace=False)] = True
            yield chosen, ~chosen

    return Split(f"{num_rows} rows" if num_rows != 1 else "1 row", parts, drawn=True)


def small_loads(*, measured: bool) -> Split:
    """Small batches at the shortest context calibrate; other batches and contexts are predicted.

    For systems with a batch curve and two rows or more to calibrate on. A load is measured where the
    baseline's own curve has a point at the number of verified rows.
    """

    def parts(rows: SystemRows) -> Parts:
        if rows.curve is None:
            return
        batch = numbers(rows.frame, "batch_size")
        context = np.nan_to_num(numbers(rows.frame, "context_tokens"))
        seen = (batch <= SMALL_BATCH) & (context == context.min())
        curve = zip(rows.curve.batch_size.tolist(), rows.curve.context_tokens.tolist(), strict=True)
        known = set(curve)
        used = [rows.configurations[index] for index in rows.rows.configuration]
        verified = batch * np.array([one.num_draft_tokens or np.nan for one in used])
        pairs = zip(verified.tolist(), context.tolist(), strict=True)
        tested = ~seen & (np.array([pair in known for pair in pairs]) == measured)
        if seen.sum() >= 2 and tested.any():
            yield seen, tested

    return Split("load, measured" if measured else "load, elsewhere", parts)


CENTRAL = 0.90
"""Probability inside every interval. [-]"""

LEAST_CLUSTERS = 3
"""Fewer target models than this do not tell how the coverage varies between them."""

NUM_RESAMPLES = 2000
"""Bootstrap samples of the coverage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions of one system under one split, row by row."""

    error: Array
    covered: Mask
    half_width: Array
    constant_error: Array
    textbook_error: Array
    regret: float
    # the same of some rows, by a user who has no baselines but those of the seen rows and the row's own
    rows_only_error: Array
    rows_only_covered: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one system under one split: relative errors of the speed-up."""

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
    rows_only_mape: float
    rows_only_coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """A split over all systems."""

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
    rows_only_mape: float
    rows_only_coverage: float


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
        rows_only_mape=_mean_absolute(found.rows_only_error),
        rows_only_coverage=_finite_mean(found.rows_only_covered.astype(np.float64).tolist()),
    )


def overall_of(
    split: str, pairs: Sequence[tuple[str, str, Predictions]], generator: np.random.Generator
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
        rows_only_mape=_finite_mean([score.rows_only_mape for score in scores]),
        rows_only_coverage=_finite_mean([score.rows_only_coverage for score in scores]),
    )


def _finite_mean(values: list[float]) -> float:
    """Mean of the finite ones; NaN where there is none."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else np.nan
