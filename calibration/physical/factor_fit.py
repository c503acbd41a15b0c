"""Fit the physical form to measured times: factors with priors at 1, and what they leave over."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.physical.measured_times import MeasuredTimes
from specmodel.form_error import FormError, Loads
from specmodel.physical_fit import PhysicalFit, Priced, measured_covariance
from specmodel.rig import Rig
from specmodel.rig.factors import FACTORS, factor_sd, priced

Array = NDArray[np.float64]

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
    form: FormError | None = None,
) -> PhysicalFit:
    r"""Fit the factors of the physical form to measured steps and rounds.

    .. math:: \max_z \; \mathcal N(y; h(z), K)\, \mathcal N(z; 0, \Sigma_0)

    Parameters
    ----------
    rig : Rig
        What was measured, with its draft model.
    times : MeasuredTimes
        :math:`y`.
    record : mapping, optional
        Of the rig, kept in the fit.
    form : FormError, optional
        Spreads of what the form misses; the packaged ones without it.

    Returns
    -------
    PhysicalFit

    Raises
    ------
    ParameterError
        If the rig cannot be priced at their loads.

    Notes
    -----
    Gauss-Newton, whose moves are bounded and halved until they fit better; the posterior is that of
    the linear form at the end.

    Examples
    --------
    >>> from specmodel.form_error import Loads
    >>> rig = Rig(target="Llama-3.1-8B", device="H100")
    >>> loads = Loads.of(num_steps=[0, 0], batch_size=[1, 8])
    >>> slower = priced(rig, loads, np.zeros(9)).log_time + 0.2
    >>> found = fit_physical(rig, MeasuredTimes(
    ...     loads=loads, depth_unknown=np.zeros(2, dtype=bool), log_time=slower, counts=np.ones(2),
    ...     spread_sd=np.zeros(2), shared_sd=np.zeros(2), non_decode_share=0.0))
    >>> bool(found.mean[FACTORS.index("bandwidth")] < 0)
    True
    """
    spreads = form or FormError()
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
