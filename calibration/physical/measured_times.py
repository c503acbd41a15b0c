"""Times of steps and rounds that points measured, without what is not decoding: one per load."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.physical.round_shape import round_shape
from calibration.system_rows import SystemRows, numbers, texts
from specmodel.constants import index_of
from specmodel.errors import FitError
from specmodel.form_error import Loads
from specmodel.posterior import Posterior

Array = NDArray[np.float64]

MOST_LOADS: Final = 300
"""Measured loads that are kept; more are thinned evenly. Each costs a row of a matrix. [-]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTimes:
    """Decoding times by load.

    Parameters
    ----------
    loads : Loads
        Of length n; rounds whose depth the points do not state are as `round_shape` completes them.
    depth_unknown : numpy.ndarray, shape (n,)
        Which they are.
    log_time : numpy.ndarray, shape (n,)
        Mean over what was measured at the load, [ln s].
    spread_sd : numpy.ndarray, shape (n,)
        Of the replicates and of counted accept lengths, as the points state them, [-].
    counts : numpy.ndarray, shape (n,)
        Measurements of the load, [-].
    shared_sd : numpy.ndarray, shape (n,)
        What one standard deviation of the non-decode share moves, with its sign, [-].
    non_decode_share, non_decode_sd : float
        Medians over the measurements of the share and of its standard deviation, [-].
    """

    loads: Loads
    depth_unknown: NDArray[np.bool_]
    log_time: Array
    spread_sd: Array
    counts: Array
    shared_sd: Array
    non_decode_share: float
    non_decode_sd: float = 0.0


class _Load(NamedTuple):
    """Key of a load; the last is 1 where the depth is not stated."""

    num_steps: float
    topk: float
    num_draft_tokens: float
    batch_size: float
    context_tokens: float
    depth_unknown: float


class _Time(NamedTuple):
    """One measured time: ln s, its error from the non-decode share, its stated spread."""

    log_time: float
    shared_sd: float
    spread_sd: float


def measured_times(rows: SystemRows, posterior: Posterior) -> MeasuredTimes:
    r"""Times of steps and rounds of a system.

    .. math:: T_1 = (1 - f) \frac{B}{y_0},\quad T_r = \tau \left(\frac{B}{y} - f \frac{B}{y_0}\right)

    Parameters
    ----------
    rows : SystemRows
        Baselines :math:`y_0`, throughputs :math:`y`, accept lengths :math:`\tau`.
    posterior : Posterior
        Of the relative fit: it tells :math:`f`.

    Returns
    -------
    MeasuredTimes

    Raises
    ------
    FitError
        If no time can be read from the points.

    Notes
    -----
    What is not stated is one request and no context. A throughput per GPU is a part of a batch that
    is not known, so it gives no time.
    """
    share, share_sd = _non_decode(rows, posterior)
    found: dict[_Load, list[_Time]] = {}
    for load, time in (*_steps(rows, share, share_sd), *_rounds(rows, share, share_sd)):
        found.setdefault(load, []).append(time)
    if not found:
        raise FitError(
            "the points hold no time of a step or round: throughputs per GPU do not say of how many "
            "requests; give those of the whole batch as throughput_scope aggregate"
        )
    keys = sorted(found)
    kept = np.unique(np.linspace(0, len(keys) - 1, min(MOST_LOADS, len(keys))).round().astype(int))
    keys = [keys[at] for at in kept]
    table = np.array(keys, dtype=np.float64)
    means = np.array([np.mean(found[key], axis=0) for key in keys])
    return MeasuredTimes(
        loads=Loads(*table.T[:-1]),
        depth_unknown=table[:, -1] > 0,
        log_time=means[:, 0],
        shared_sd=means[:, 1],
        spread_sd=means[:, 2],
        counts=np.array([len(found[key]) for key in keys], dtype=np.float64),
        non_decode_share=float(np.median(share)),
        non_decode_sd=float(np.median(share_sd)),
    )


def _non_decode(rows: SystemRows, posterior: Posterior) -> tuple[Array, Array]:
    """Non-decode share of each row's baseline and its standard deviation."""
    share = np.asarray(posterior.predict(rows.rows).non_decode_share, dtype=np.float64)
    at = index_of("non_decode_share")
    logit_sd = float(np.sqrt(posterior.covariance[at, at]))
    measured = np.isfinite(rows.rows.measured_share)
    return share, np.where(measured, 0.0, logit_sd * share * (1.0 - share))


def _steps(rows: SystemRows, share: Array, share_sd: Array) -> Iterator[tuple[_Load, _Time]]:
    """Base steps: of the fastest workload at each load, whose share is the system's own."""
    part, sd = float(np.min(share)), float(np.median(share_sd))
    loads = {(entry.batch_size, entry.context_tokens): None for entry in rows.baselines.entries}
    for batch, context in dict.fromkeys(_stated(*load) for load in loads):
        times = [
            entry.step_time_s
            for entry in rows.baselines.entries
            if _stated(entry.batch_size, entry.context_tokens) == (batch, context)
            and np.isfinite(entry.step_time_s)
        ]
        if times:
            log_time = float(np.log(min(times) * (1.0 - part)))
            yield (
                _Load(0.0, 1.0, 1.0, batch, context, 0.0),
                _Time(log_time, -sd / (1.0 - part), 0.0),
            )


def _rounds(rows: SystemRows, share: Array, share_sd: Array) -> Iterator[tuple[_Load, _Time]]:
    """Rounds of every row."""
    frame = rows.frame
    names = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
    table = np.array([numbers(frame, name) for name in names]).T
    scopes = texts(frame, "throughput_scope")
    accept, rate, base = (
        numbers(frame, name)
        for name in ("accept_length", "output_tokens_per_s", "baseline_tokens_per_s")
    )
    for index, (depth, branches, verified, batch, context) in enumerate(table.tolist()):
        load_batch, load_context = _stated(batch, context)
        requests = {"per_user": 1.0, "per_gpu": np.nan}.get(scopes[index], load_batch)
        whole_s = accept[index] * requests / rate[index]
        idle_s = accept[index] * requests / base[index]
        time_s = whole_s - share[index] * idle_s
        if not 0 < time_s < np.inf:
            continue
        shape = round_shape(depth, branches, verified)
        load = _Load(
            shape.num_steps,
            shape.topk,
            shape.num_draft_tokens,
            load_batch,
            load_context,
            float(shape.depth_unknown),
        )
        moved = -share_sd[index] * idle_s / time_s
        yield load, _Time(float(np.log(time_s)), float(moved), float(rows.spread_log_sd[index]))


def _stated(batch_size: float, context_tokens: float) -> tuple[float, float]:
    """A load with what is not stated filled in."""
    batch = 1.0 if np.isnan(batch_size) else max(float(batch_size), 1.0)
    return batch, 0.0 if np.isnan(context_tokens) else float(context_tokens)
