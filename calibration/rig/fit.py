"""Fit the physical form: times that points measured, factors with priors at 1, what they leave over."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.points.arrays import SystemRows
from calibration.points.table import numbers, texts
from calibration.rig.scenario import round_shape
from specmodel.constants import NAMES
from specmodel.errors import FitError
from specmodel.model_error import Loads, ModelError
from specmodel.physical_fit import PhysicalFit, Priced, measured_covariance
from specmodel.posterior import Posterior
from specmodel.rig import Rig
from specmodel.rig.factors import FACTORS, factor_sd, priced

Array = NDArray[np.float64]

MOST_LOADS: Final = 300
"""Measured loads that are kept; more are thinned evenly. Each costs a row of a matrix. [-]"""


@dataclass(frozen=True, kw_only=True)
class MeasuredTimes:
    """Decoding times by load."""

    loads: Loads
    depth_unknown: NDArray[np.bool_]
    log_time: Array
    spread_sd: Array
    counts: Array
    shared_sd: Array  # from the non-decode share
    non_decode_share: float
    non_decode_sd: float = 0.0


def measured_times(rows: SystemRows, posterior: Posterior) -> MeasuredTimes:
    r"""Times of steps and rounds of a system.

    .. math:: T_1 = (1 - f) \frac{B}{y_0},\quad T_r = \tau \left(\frac{B}{y} - f \frac{B}{y_0}\right)

    What is not stated is one request and no context. A throughput per GPU is a part of a batch that
    is not known, so it gives no time.
    """
    share = np.asarray(posterior.predict(rows.rows).non_decode_share, dtype=np.float64)
    at = NAMES.index("non_decode_share")
    logit_sd = float(np.sqrt(posterior.covariance[at, at]))
    measured = np.isfinite(rows.rows.measured_share)
    share_sd = np.where(measured, 0.0, logit_sd * share * (1.0 - share))
    times = np.vstack([_steps(rows, share, share_sd), _rounds(rows, share, share_sd)])
    if not len(times):
        raise FitError(
            "the points hold no time of a step or round: throughputs per GPU do not say of how many "
            "requests; give those of the whole batch as throughput_scope aggregate"
        )
    loads, at_load, counts = np.unique(
        times[:, :6], axis=0, return_inverse=True, return_counts=True
    )
    means = np.array([np.bincount(np.ravel(at_load), column) for column in times[:, 6:].T]) / counts
    kept = np.unique(
        np.linspace(0, len(loads) - 1, min(MOST_LOADS, len(loads))).round().astype(int)
    )
    return MeasuredTimes(
        loads=Loads(*loads[kept, :5].T),
        depth_unknown=loads[kept, 5] > 0,
        log_time=means[0, kept],
        shared_sd=means[1, kept],
        spread_sd=means[2, kept],
        counts=counts[kept].astype(np.float64),
        non_decode_share=float(np.median(share)),
        non_decode_sd=float(np.median(share_sd)),
    )


def _steps(rows: SystemRows, share: Array, share_sd: Array) -> Array:
    """Base steps: of the fastest workload at each load, whose share is the system's own."""
    part, sd = float(np.min(share)), float(np.median(share_sd))
    fastest: dict[tuple[float, float], float] = {}
    for entry in rows.baselines.entries:
        load = (float(np.fmax(entry.batch_size, 1.0)), float(np.nan_to_num(entry.context_tokens)))
        if np.isfinite(entry.step_time_s):
            fastest[load] = min(entry.step_time_s, fastest.get(load, np.inf))
    found = [
        (0.0, 1.0, 1.0, *load, 0.0, np.log(time_s * (1.0 - part)), -sd / (1.0 - part), 0.0)
        for load, time_s in fastest.items()
    ]
    return np.array(found).reshape(-1, 9)


def _rounds(rows: SystemRows, share: Array, share_sd: Array) -> Array:
    """Rounds: load, whether the depth is not stated, ln time, its errors from the share and by its spread."""
    names = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
    *stated, batch, context = (numbers(rows.frame, name) for name in names)
    accept, rate, base = (
        numbers(rows.frame, name)
        for name in ("accept_length", "output_tokens_per_s", "baseline_tokens_per_s")
    )
    batch = np.fmax(batch, 1.0)
    scope = np.array(texts(rows.frame, "throughput_scope"), dtype=object)
    requests = np.select(
        [scope == "per_user", (scope == "per_gpu") | (scope == "relative")], [1.0, np.nan], batch
    )
    idle_s = accept * requests / base
    time_s = accept * requests / rate - share * idle_s
    shape = round_shape(*stated)
    load = (*shape[:3], batch, np.nan_to_num(context), shape.depth_unknown)
    found = np.array([*load, time_s, -share_sd * idle_s, rows.spread_log_sd])
    found = found[:, (time_s > 0) & (time_s < np.inf)]
    found[7] /= found[6]
    found[6] = np.log(found[6])
    return found.T


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

    def information(at: Priced) -> tuple[Array, Array]:
        """Inverse covariances of the measurements and of the factors."""
        found = np.linalg.inv(measured_covariance(at, noise_sd, times.shared_sd, spreads))
        weight = np.asarray(found, dtype=np.float64)
        return weight, np.diag(prior_sd**-2.0) + at.jacobian.T @ weight @ at.jacobian

    def misfit(at: Priced, mean: Array, weight: Array) -> float:
        residual = times.log_time - at.log_time
        return float(residual @ weight @ residual + np.sum(np.square(mean / prior_sd)))

    mean = np.zeros(prior_sd.size)
    at = priced(rig, times.loads, mean)
    for _ in range(_MOST_ITERATIONS):
        weight, inverse = information(at)
        gradient = at.jacobian.T @ weight @ (times.log_time - at.log_time) - mean / prior_sd**2
        move = np.linalg.solve(inverse, gradient)
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
    return PhysicalFit(
        rig=record or {},
        factors=FACTORS,
        mean=mean,
        covariance=np.asarray(np.linalg.inv(information(at)[1]), dtype=np.float64),
        prior_sd=prior_sd,
        measured=at,
        residual=times.log_time - at.log_time,
        noise_sd=noise_sd,
        shared_sd=times.shared_sd,
        non_decode_share=times.non_decode_share,
        non_decode_sd=times.non_decode_sd,
        form=spreads,
    )


def _depth_sd(rig: Rig, times: MeasuredTimes) -> Array:
    """Spread of ln time from a depth that is not stated."""
    found = np.zeros(len(times.loads))
    if times.depth_unknown.any():
        at = times.loads.take(times.depth_unknown)
        deeper = replace(at, num_steps=at.num_steps + 1, num_draft_tokens=at.num_draft_tokens + 1)
        after, before = (
            priced(rig, each, np.zeros(len(FACTORS))).log_time for each in (deeper, at)
        )
        found[times.depth_unknown] = UNKNOWN_DEPTH_SD * np.abs(after - before)
    return found
