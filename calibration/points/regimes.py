"""Rows that are not what they seem: totals of the others, and two regimes under one name."""

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.table import (
    DRAFT_COLUMNS,
    LOAD_COLUMNS,
    PROVENANCE_COLUMNS,
    SYSTEM_COLUMNS,
    numbers,
    row_groups,
    speculative_rows,
)
from calibration.points.unsound import implied_round_cost
from calibration.readers import CANONICAL_NAMES

REGIME_LOG_SD: Final = 0.12
"""Spread of the round costs of one configuration from which a column that explains it tells regimes
apart: two regimes a quarter apart. Workloads and noise make less. [-]"""

EXPLAINED: Final = 0.9
"""Share of that spread, as a variance, that such a column explains. [-]"""

MOST_REGIMES: Final = 6
"""Values that a column of regimes may have: more are names of single rows. [-]"""

_TOTALS: Final = frozenset(
    {"overall", "total", "totals", "all", "average", "avg", "mean", "aggregate", "sum"}
    | {"总体", "平均", "合计", "总计"}
)
_TOTAL_TOLERANCE = 3e-3  # three printed digits
_DIFFERENT = 0.05  # spread of rates from which a mean of them is told from a repeat


def total_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows that sum up the others of their configuration, one a workload.

    By the name of their workload; or below the others by their numbers: the throughput is their mean,
    arithmetic or harmonic, and so is the accept length.
    """
    if len(frame) < 3:
        return np.zeros(len(frame), dtype=np.bool_)
    columns = [
        name for name in (*SYSTEM_COLUMNS, *LOAD_COLUMNS, *DRAFT_COLUMNS) if name != "workload"
    ]
    groups = row_groups(frame, columns)
    names = frame["workload"].str.strip().str.casefold()
    named = names.isin(_TOTALS).to_numpy()
    size = np.bincount(groups)[groups]
    others = size - np.bincount(groups, weights=named)[groups]
    distinct = names.groupby(groups).transform("nunique").to_numpy() == size
    accept, rate = numbers(frame, "accept_length"), numbers(frame, "output_tokens_per_s")
    spread = pd.Series(rate).groupby(groups).transform("std").to_numpy() / rate
    by_numbers = distinct & (size >= 4) & (spread > _DIFFERENT)
    by_numbers &= (others == size) & _is_mean(rate, groups) & _is_mean(accept, groups)
    below = ~pd.Series(groups).duplicated(keep="last").to_numpy()  # where totals stand
    return np.asarray((named & (others >= 2)) | (by_numbers & below))


def _is_mean(values: NDArray[np.float64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each value is the arithmetic or harmonic mean of the others of its group."""
    count = np.bincount(groups)[groups] - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.bincount(groups, weights=values)[groups] - values) / count
        harmonic = count / (np.bincount(groups, weights=1.0 / values)[groups] - 1.0 / values)
        near = [np.abs(one / values - 1.0) < _TOTAL_TOLERANCE for one in (mean, harmonic)]
    return np.asarray(near[0] | near[1])


def regime_columns(frame: pd.DataFrame) -> tuple[str, ...]:
    """The column, known or not, that tells regimes of one configuration apart; none where none does.

    A column that follows from the workload does not: workloads have baselines of their own.
    """
    known = {*CANONICAL_NAMES, *PROVENANCE_COLUMNS}
    candidates = [name for name in frame.columns if name not in known]
    candidates += ["draft_model", "algorithm"]
    candidates = [name for name in candidates if len(frame[name].unique()) > 1]
    cost = implied_round_cost(frame)
    usable = np.isfinite(cost) & speculative_rows(frame)
    if not candidates or usable.sum() < 4:
        return ()
    used, log_cost = frame.loc[usable], np.log(cost[usable])
    configuration = (
        *SYSTEM_COLUMNS,
        *("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens"),
    )
    before, freedom = _within(log_cost, row_groups(used, configuration))
    if not freedom or before < freedom * REGIME_LOG_SD**2:
        return ()
    left = {}
    for name in candidates:
        values, workload = used[name].astype(str), used["workload"].astype(str)
        of_workload = values.groupby(workload.to_numpy()).nunique().max() == 1
        most = min(len(used) // 2, MOST_REGIMES)
        if len(values.unique()) > most or (of_workload and len(workload.unique()) > 1):
            continue
        after, free = _within(
            log_cost, row_groups(used.assign(**{name: values}), (*configuration, name))
        )
        if free and after <= (1.0 - EXPLAINED) * before:
            left[name] = after
    return (min(left, key=left.__getitem__),) if left else ()


def _within(values: NDArray[np.float64], groups: NDArray[np.intp]) -> tuple[float, int]:
    """Sum of squares around the means of groups, and its degrees of freedom."""
    means = pd.Series(values).groupby(groups).transform("mean").to_numpy()
    return float(np.sum((values - means) ** 2)), values.size - np.unique(groups).size
