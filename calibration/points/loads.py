"""Loads that were measured, not asked for: equal ones come out a little different in every run.

A sweep states its batches and contexts, and a baseline has the same ones as the runs beside it. A log
or a client measures them (the mean number in flight, the mean context), so no two rows agree. Here such
values are taken for the load that they stand for, before loads are compared.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.table import numbers, speculative_rows, warn_rows
from specmodel.cost.growth import SAME_CONTEXT_OCTAVES, context_octaves
from specmodel.errors import Note
from specmodel.units import MILLI

Array = NDArray[np.float64]

BATCH_BAND: Final = 1.2
"""Mean numbers of requests in flight within this factor are one load. [-]"""

ALL_THE_TIME: Final = 0.95
"""Share of the wall time that prefills would take, from which a time to the first token is a queue. [-]"""

MOST_OF_THEM: Final = 0.6
"""Share of the requests sent that decode at once, below which the others wait. [-]"""

_MOST_STATED = 0.5  # share of runs at a baseline's very value from which on it was stated


def with_common_loads(frame: pd.DataFrame) -> pd.DataFrame:
    """Return points in which contexts of one load, and batches that were measured, are equal.

    A batch was measured where most runs with speculation are not at the very value of a run without.
    Values of one load then become their median. Points without runs at ``num_steps`` 0 state the batch of
    their baselines in their own rows.
    """
    drafts = frame["num_steps"].to_numpy() != 0
    batch = np.maximum(frame["batch_size"].to_numpy(dtype=np.float64), 1.0)
    context = frame["context_tokens"].to_numpy(dtype=np.float64)
    if _measured(batch, drafts):
        batch = _common(batch, np.log, np.log(BATCH_BAND))
    return frame.assign(
        batch_size=batch, context_tokens=_common(context, context_octaves, SAME_CONTEXT_OCTAVES)
    )


def without_waiting(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Note, ...]]:
    r"""Return points whose batch is that of the requests that decode, not of those that wait as well.

    .. math:: B = X \cdot t_\text{token}, \qquad \frac{X}{N}\, t_\text{first} \ge 0.95

    Throughput times the time per token is the mean number that decode. Where it is far below the batch that
    is stated, and prefills that take all the time to the first token would keep the server busy all the time
    or longer, requests waited: for KV memory, or for the cap on running requests. Such a time is no prefill.
    """
    output, batch = numbers(frame, "output_tokens_per_s"), numbers(frame, "batch_size")
    emitted = np.where(speculative_rows(frame), numbers(frame, "accept_length"), 1.0)
    decoding = output * numbers(frame, "step_time_ms") * MILLI / emitted
    busy = output / numbers(frame, "output_tokens") * numbers(frame, "ttft_ms") * MILLI
    aggregate = frame["throughput_scope"].isin(["", "aggregate"]).to_numpy()
    waiting = aggregate & (busy >= ALL_THE_TIME) & (decoding < MOST_OF_THEM * batch)
    if not waiting.any():
        return frame, ()
    rows = np.flatnonzero(waiting)
    found = _common(
        np.where(waiting, np.maximum(decoding, 1.0), np.nan), np.log, np.log(BATCH_BAND)
    )
    loads = frame["_load"].to_numpy(dtype=object, copy=True)
    loads[rows] = None  # what was asked for is not what ran
    notes = tuple(
        note
        for row in rows.tolist()
        for note in warn_rows(
            frame,
            np.arange(len(frame)) == row,
            "waiting",
            f"only {decoding[row]:.3g} of {batch[row]:g} requests decode at once (throughput x time per "
            f"token); the others wait {frame['ttft_ms'].iloc[row] * MILLI:.3g} s for KV memory, or for "
            "the cap on running requests: the batch is those that decode, and only runs at the same one "
            "are compared",
        )
    )
    return frame.assign(
        batch_size=np.where(waiting, found, batch),
        ttft_ms=frame["ttft_ms"].mask(waiting),
        _load=pd.Series(loads, dtype=object),
    ), notes


def _measured(values: Array, drafts: NDArray[np.bool_]) -> bool:
    """Whether values were measured, not stated."""
    known = np.isfinite(values)
    runs, baselines = values[known & drafts], values[known & ~drafts]
    stated = np.isin(runs, baselines)
    return bool(runs.size and baselines.size and np.mean(stated) < _MOST_STATED)


def _common(values: Array, scale: Callable[[Array], Array], band: float) -> Array:
    """Return values with those of one load made equal."""
    common = values.copy()
    rising = np.unique(values[np.isfinite(values)])
    while rising.size:
        inside = scale(rising) <= scale(rising[:1]) + band
        members = np.isin(values, rising[inside])
        common[members] = float(np.median(values[members]))
        rising = rising[~inside]
    return common
