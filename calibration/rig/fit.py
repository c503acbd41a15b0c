"""Fit the physical form: times that points measured, factors with priors at 1, what they leave over."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.points.arrays import SystemRows, numbers, texts
from calibration.rig.scenario import round_shape
from specmodel.constants import index_of
from specmodel.errors import FitError
from specmodel.model_error import Loads, ModelError
from specmodel.physical_fit import PhysicalFit, Priced, measured_covariance
from specmodel.posterior import Posterior
from specmodel.rig import Rig
from specmodel.rig.factors import FACTORS, factor_sd, priced

Array = NDArray[np.float64]

MOST_LOADS: Final = 300
"""Measured loads that are kept; more are thinned evenly. Each costs a row of a matrix. [-]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTimes:
    """Decoding times by load."""

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


UNKNOWN_DEPTH_SD: Final = 2.0
"""Spread of a depth that the points do not state, around 4 (judgement). [tokens]"""

_MOST_ITERATIONS = 50
_MOST_HALVINGS = 8
_MOST_MOVE = 1.0
_TOLERANCE = 1e-3  # of a prior standard deviation: intervals do not see less


def fit_physical(
    rig: Rig,
    times: MeasuredTimes,
    *,
    record: Mapping[str, Any] | None = None,
    form: ModelError | None = None,
) -> PhysicalFit:
    r"""Fit the factors of the physical form to measured steps and rounds.

    .. math:: \max_z \; \mathcal N(y; h(z), K)\, \mathcal N(z; 0, \Sigma_0)

    Gauss-Newton, whose moves are bounded and halved until they fit better; the posterior is that of
    the linear form at the end.
    """
    spreads = form or ModelError()
    prior_sd = factor_sd(rig)
    noise_sd = np.sqrt(
        (spreads.noise**2 + times.spread_sd**2) / times.counts + _depth_sd(rig, times) ** 2
    )

    def weights(at: Priced) -> Array:
        found = np.linalg.inv(measured_covariance(at, noise_sd, times.shared_sd, spreads))
        return np.asarray(found, dtype=np.float64)

    def misfit(at: Priced, mean: Array, weight: Array) -> float:
        residual = times.log_time - at.log_time
        return float(residual @ weight @ residual + np.sum(np.square(mean / prior_sd)))

    mean = np.zeros(prior_sd.size)
    at = priced(rig, times.loads, mean)
    for _ in range(_MOST_ITERATIONS):
        weight = weights(at)
        gradient = at.jacobian.T @ weight @ (times.log_time - at.log_time) - mean / prior_sd**2
        move = np.linalg.solve(_information(at, weight, prior_sd), gradient)
        move *= min(1.0, _MOST_MOVE / max(float(np.max(np.abs(move))), _MOST_MOVE))
        least = misfit(at, mean, weight)
        for _ in range(_MOST_HALVINGS):
            moved = priced(rig, times.loads, mean + move)
            if misfit(moved, mean + move, weight) <= least:
                mean, at = mean + move, moved
                break
            move = move / 2.0
        if np.max(np.abs(move) / prior_sd) < _TOLERANCE:
            break
    information = _information(at, weights(at), prior_sd)
    return PhysicalFit(
        rig=record or {},
        factors=FACTORS,
        mean=mean,
        covariance=np.asarray(np.linalg.inv(information), dtype=np.float64),
        prior_sd=prior_sd,
        measured=at,
        residual=times.log_time - at.log_time,
        noise_sd=noise_sd,
        shared_sd=times.shared_sd,
        non_decode_share=times.non_decode_share,
        non_decode_sd=times.non_decode_sd,
        form=spreads,
    )


def _information(at: Priced, weight: Array, prior_sd: Array) -> Array:
    """Inverse covariance of the factors where the form is linear."""
    return np.asarray(np.diag(prior_sd**-2.0) + at.jacobian.T @ weight @ at.jacobian)


def _depth_sd(rig: Rig, times: MeasuredTimes) -> Array:
    """Spread of ln time from a depth that is not stated."""
    found = np.zeros(len(times.loads))
    if not times.depth_unknown.any():
        return found
    at = times.loads.take(times.depth_unknown)
    deeper = Loads.of(
        num_steps=at.num_steps + 1.0,
        topk=at.topk,
        num_draft_tokens=at.num_draft_tokens + 1.0,
        batch_size=at.batch_size,
        context_tokens=at.context_tokens,
    )
    prior = np.zeros(len(FACTORS))
    slope = priced(rig, deeper, prior).log_time - priced(rig, at, prior).log_time
    found[times.depth_unknown] = UNKNOWN_DEPTH_SD * np.abs(slope)
    return found
