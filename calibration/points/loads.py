"""Loads that were measured, not asked for: equal ones come out a little different in every run.

A sweep states its batches and contexts, and a baseline has the same ones as the runs beside it. A log
or a client measures them (the mean number in flight, the mean context), so no two rows agree. Here such
values are taken for the load that they stand for, before loads are compared.
"""

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.calibration import Calibration

Array = NDArray[np.float64]

CONTEXT_BAND: Final = 3.0
"""Contexts within this factor are one load, as in the bands of a server log. [-]"""

BATCH_BAND: Final = 1.2
"""The same for mean numbers of requests in flight. [-]"""

_MOST_STATED = 0.5  # share of runs at a baseline's very value from which on it was stated


def with_common_loads(frame: pd.DataFrame) -> pd.DataFrame:
    """Return points in which measured batches and contexts of one load are equal.

    A value was measured where most runs with speculation are not at the very value of a run without.
    Values within a band then become their median. Points without runs at ``num_steps`` 0 state their
    baselines in their own rows, so they need none of this.
    """
    drafts = frame["num_steps"].to_numpy() != 0
    batch = np.maximum(frame["batch_size"].to_numpy(dtype=np.float64), 1.0)
    context = frame["context_tokens"].to_numpy(dtype=np.float64)
    return frame.assign(
        batch_size=_common(batch, drafts, BATCH_BAND),
        context_tokens=_common(context, drafts, CONTEXT_BAND),
    )


def at_calibrated_loads(frame: pd.DataFrame, calibration: Calibration) -> pd.DataFrame:
    """Return rows in which batches and contexts of a calibrated load have its value."""
    return frame.assign(
        **{
            name: _nearest(frame[name].to_numpy(dtype=np.float64), calibration, name, band)
            for name, band in (("batch_size", BATCH_BAND), ("context_tokens", CONTEXT_BAND))
        }
    )


def _nearest(values: Array, calibration: Calibration, name: str, band: float) -> Array:
    """Return values with those that a calibrated one stands for replaced by it."""
    stated = {getattr(one, name) for one in calibration.configurations} - {None, 0.0}
    low, high = calibration.hull.get(name, (np.nan, np.nan))
    if not stated or {low, high} <= stated:
        return values
    known = np.array(sorted(stated))
    inside = np.flatnonzero((values > 0) & (low <= values) & (values <= high))
    away = np.abs(np.log(values[inside, None] / known))
    close = away.min(axis=1) <= np.log(band)
    found = values.copy()
    found[inside[close]] = known[away.argmin(axis=1)[close]]
    return found


def _common(values: Array, drafts: NDArray[np.bool_], band: float) -> Array:
    """Return values with those of one load made equal, where they were measured."""
    known = np.isfinite(values)
    runs, baselines = values[known & drafts], values[known & ~drafts]
    if not runs.size or not baselines.size or np.mean(np.isin(runs, baselines)) >= _MOST_STATED:
        return values
    common = values.copy()
    rising = np.sort(np.unique(values[known & (values > 0)]))
    while rising.size:
        inside = rising <= rising[0] * band
        members = np.isin(values, rising[inside])
        common[members] = float(np.median(values[members]))
        rising = rising[~inside]
    return common
