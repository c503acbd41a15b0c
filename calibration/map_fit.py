"""The fit itself: maximum a posteriori with a joint covariance, from arrays to a posterior."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NUM_CONSTANTS, slope, to_natural
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Prior
from specmodel.speedup import log_speedup_gradient

Array = NDArray[np.float64]

_MAX_ITERATIONS = 60
_MAX_MOVE = 1.5
_TOLERANCE = 1e-6


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MapFit:
    """Posterior of one system and what its rows say about it.

    Parameters
    ----------
    posterior : Posterior
        Constants, effects, covariance, noise.
    residual : numpy.ndarray, shape (n,)
        Measured minus fitted ln S, effects included, [-].
    fitted_variance : numpy.ndarray, shape (n,)
        Variance of the fitted ln S from constants and effects, [-].
    marginal_residual : numpy.ndarray, shape (n,)
        Measured minus fitted ln S from the constants alone, [-].
    learned : float
        Number of constants' worth of information that the rows added, [0, NUM_CONSTANTS].
    chi_square : float
        Weighted sum of squares of residuals and effects before the noise was rescaled, [-].
    """

    posterior: Posterior
    residual: Array
    fitted_variance: Array
    marginal_residual: Array
    learned: float
    chi_square: float


def fit_rows(
    rows: Rows,
    log_speedup: Array,
    prior: Prior,
    *,
    spread_log_sd: Array | None = None,
    num_configurations: int | None = None,
    num_runs: int | None = None,
) -> MapFit:
    r"""Maximum a posteriori constants and effects with their joint covariance.

    .. math:: \min_{x,u} \sum_i \frac{(y_i - m_i(x) - D_i u)^2}{\lambda^2 s_i^2}
              + \sum_j \frac{u_j^2}{\lambda^2\sigma_j^2} + (x-\mu)^\top\Sigma^{-1}(x-\mu)

    Parameters
    ----------
    rows : Rows
        The measured rows; every configuration and run index is at least 0.
    log_speedup : numpy.ndarray, shape (n,)
        :math:`y`, logarithm of measured speed-up, [-].
    prior : Prior
        :math:`\mu, \Sigma`, the noise and its degrees of freedom :math:`\nu_0`.
    spread_log_sd : numpy.ndarray, shape (n,), optional
        Known replicate spread of each row, added to the row noise, [-].
    num_configurations, num_runs : int, optional
        Sizes of the effects; by default one more than the largest index.

    Returns
    -------
    MapFit

    Notes
    -----
    Gauss-Newton with a bounded move; the covariance is the inverse of the Gauss-Newton Hessian. The
    noise scale solves :math:`\lambda^2 = (\nu_0 + \chi^2)/(\nu_0 + n - p)` with p the constants'
    worth of information learned, and intervals have :math:`\nu_0 + n - p` degrees of freedom.
    theory.md part D.
    """
    count = len(rows)
    if num_configurations is None:
        num_configurations = int(rows.configuration.max(initial=-1)) + 1
    if num_runs is None:
        num_runs = int(rows.run.max(initial=-1)) + 1
    noise = prior.noise
    effect_variance = np.concatenate(
        [
            np.full(num_configurations, noise.configuration_log_sd**2),
            np.full(num_runs, noise.run_log_sd**2),
        ]
    )
    spread = np.zeros(count) if spread_log_sd is None else np.nan_to_num(spread_log_sd)
    at_run = num_configurations + rows.run
    each = np.arange(count)
    design = np.zeros((count, effect_variance.size))
    design[each, at_run] = 1.0
    prior_precision = np.linalg.inv(prior.covariance)
    size = NUM_CONSTANTS + effect_variance.size
    internal, effects = prior.mean.copy(), np.zeros(effect_variance.size)
    scale = 1.0
    hessian = np.zeros((size, size))
    residual = marginal = np.zeros(count)
    learned = chi_square = 0.0
    covariance: Array = np.zeros((size, size))
    jacobian: Array = np.zeros((count, size))
    for iteration in range(_MAX_ITERATIONS):
        constants = to_natural(internal)
        fitted, gradient, decode, _ = log_speedup_gradient(
            constants, rows.terms, rows.accept_length, rows.baseline_deficit, rows.measured_share
        )
        gradient *= slope(constants)
        design[each, rows.configuration] = -decode
        marginal = log_speedup - fitted
        residual = marginal - design @ effects
        row_variance = scale * noise.row_log_sd**2 + spread**2 + (decode * rows.terms.carried) ** 2
        jacobian = np.concatenate([gradient, design], axis=1)
        weighted = jacobian / row_variance[:, None]
        hessian = jacobian.T @ weighted
        hessian[:NUM_CONSTANTS, :NUM_CONSTANTS] += prior_precision
        diagonal = np.arange(NUM_CONSTANTS, size)
        hessian[diagonal, diagonal] += 1.0 / (scale * effect_variance)
        step_from = weighted.T @ residual
        step_from[:NUM_CONSTANTS] -= prior_precision @ (internal - prior.mean)
        step_from[NUM_CONSTANTS:] -= effects / (scale * effect_variance)
        covariance = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
        move = covariance @ step_from
        largest = float(np.max(np.abs(move[:NUM_CONSTANTS]), initial=0.0))
        if largest > _MAX_MOVE:
            move *= _MAX_MOVE / largest
        internal = internal + move[:NUM_CONSTANTS]
        effects = effects + move[NUM_CONSTANTS:]
        shrink = np.einsum("ij,ji->", prior_precision, covariance[:NUM_CONSTANTS, :NUM_CONSTANTS])
        learned = float(np.clip(NUM_CONSTANTS - shrink, 0.0, NUM_CONSTANTS))
        chi_square = float(
            np.sum(residual**2 / row_variance) * scale + np.sum(effects**2 / effect_variance)
        )
        free = noise.degrees_of_freedom + max(count - learned, 0.0)
        rescaled = (noise.degrees_of_freedom + chi_square) / free
        settled = largest < _TOLERANCE and abs(rescaled / scale - 1.0) < 1e-4
        if settled and iteration > 1:
            break
        scale = rescaled
    return MapFit(
        posterior=Posterior(
            mean=np.concatenate([internal, effects]),
            covariance=covariance,
            num_configurations=num_configurations,
            noise=noise,
            noise_scale=float(np.sqrt(scale)),
            degrees_of_freedom=noise.degrees_of_freedom + max(count - learned, 0.0),
            prior_covariance=prior.covariance,
        ),
        residual=residual,
        fitted_variance=np.einsum("ij,ij->i", jacobian @ covariance, jacobian),
        marginal_residual=marginal,
        learned=learned,
        chi_square=chi_square,
    )
