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

_MAX_ITERATIONS = 200
_MAX_MOVE = 1.5
_MAX_HALVINGS = 20
_TOLERANCE = 1e-5
_LOOSE = 10.0  # how much wider, in variance, constants may be where noise is judged
_ROUNDING = 1e-9


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
    prior_width : float
        Factor on the prior's covariance, above 1 where the system is unlike those it was learned
        from, [-].
    redundant : float
        Rows' worth of information about the noise, [0, n].
    chi_square : float
        Weighted sum of squares that no choice of constants removes, before the noise was rescaled, [-].
    """

    posterior: Posterior
    residual: Array
    fitted_variance: Array
    marginal_residual: Array
    learned: float
    prior_width: float
    redundant: float
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
    Gauss-Newton with a bounded move, halved until it lowers the sum: without that, a share that does
    nothing near 0 may swing for ever. The covariance is the inverse of the Gauss-Newton Hessian.

    Two scales are learned with it. The noise, from what no choice of constants explains:
    :math:`\lambda^2 = (\nu_0 + \chi^2)/(\nu_0 + m)` with m rows' worth of redundancy; a single
    point says nothing of its own noise. And the prior, where the points pull the constants away from
    it: its covariance is widened by :math:`(\nu + d^2)/(\nu + p)`, d the distance, p the constants'
    worth of information learned and :math:`\nu` the number of systems it was learned from, which is a
    Student-t prior: a rig unlike all public ones moves the constants instead of being taken for noise.
    Intervals have :math:`\nu_0 + m` degrees of freedom. theory.md part D.
    """
    count, noise = len(rows), prior.noise
    if num_configurations is None:
        num_configurations = int(rows.configuration.max(initial=-1)) + 1
    if num_runs is None:
        num_runs = int(rows.run.max(initial=-1)) + 1
    effect_variance = np.concatenate(
        [
            np.full(num_configurations, noise.configuration_log_sd**2),
            np.full(num_runs, noise.run_log_sd**2),
        ]
    )
    spread = np.zeros(count) if spread_log_sd is None else np.nan_to_num(spread_log_sd)
    each = np.arange(count)
    design = np.zeros((count, effect_variance.size))
    design[each, num_configurations + rows.run] = 1.0
    centre = np.concatenate([prior.mean, np.zeros(effect_variance.size)])
    at_effects = np.arange(NUM_CONSTANTS, centre.size)
    precision = np.zeros((centre.size, centre.size))
    base = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    freedom = float(len(prior.learned_from)) or np.inf  # a prior from no systems is taken as it is
    state, scale, width = centre, 1.0, 1.0
    fitted, gradient, decode = _model(rows, state)
    for iteration in range(_MAX_ITERATIONS):
        precision[:NUM_CONSTANTS, :NUM_CONSTANTS] = base / width
        precision[at_effects, at_effects] = 1.0 / (scale * effect_variance)
        design[each, rows.configuration] = -decode
        residual = log_speedup - fitted - design @ state[NUM_CONSTANTS:]
        row_variance = scale * noise.row_log_sd**2 + spread**2 + (decode * rows.terms.carried) ** 2
        jacobian = np.concatenate([gradient, design], axis=1)
        weighted = jacobian / row_variance[:, None]
        covariance = np.asarray(np.linalg.inv(jacobian.T @ weighted + precision), dtype=np.float64)
        move = covariance @ (weighted.T @ residual - precision @ (state - centre))
        largest = float(np.max(np.abs(move[:NUM_CONSTANTS])))
        move *= min(1.0, _MAX_MOVE / max(largest, _TOLERANCE))
        before = _half_sum(residual, row_variance, state - centre, precision)
        for _ in range(_MAX_HALVINGS):
            moved = state + move
            fitted, gradient, decode = _model(rows, moved)
            residual = log_speedup - fitted - design @ moved[NUM_CONSTANTS:]
            after = _half_sum(residual, row_variance, moved - centre, precision)
            if after <= before + _ROUNDING * (1.0 + before):
                break
            move *= 0.5
        state = moved
        tension = float((state - centre)[:NUM_CONSTANTS] @ base @ (state - centre)[:NUM_CONSTANTS])
        shrink = float(np.sum(base * covariance[:NUM_CONSTANTS, :NUM_CONSTANTS]))
        learned = float(np.clip(NUM_CONSTANTS - shrink, 0.0, NUM_CONSTANTS))
        widened = 1.0
        if np.isfinite(freedom):
            widened = max(1.0, (freedom + tension) / (freedom + learned))
        chi_square, redundant = _redundancy(
            jacobian, log_speedup - fitted, row_variance / scale, effect_variance, base
        )
        rescaled = (noise.degrees_of_freedom + chi_square) / (noise.degrees_of_freedom + redundant)
        still = largest < _TOLERANCE and abs(rescaled / scale - 1.0) < 1e-4
        if still and abs(widened / width - 1.0) < 1e-3 and iteration > 1:
            break
        scale, width = rescaled, widened
    return MapFit(
        posterior=Posterior(
            mean=state,
            covariance=covariance,
            num_configurations=num_configurations,
            noise=noise,
            noise_scale=float(np.sqrt(scale)),
            degrees_of_freedom=noise.degrees_of_freedom + redundant,
            prior_covariance=width * prior.covariance,
        ),
        residual=residual,
        fitted_variance=np.einsum("ij,ij->i", jacobian @ covariance, jacobian),
        marginal_residual=log_speedup - fitted,
        learned=learned,
        prior_width=width,
        redundant=redundant,
        chi_square=chi_square,
    )


def _model(rows: Rows, state: Array) -> tuple[Array, Array, Array]:
    """Fitted ln S of the constants alone, its gradient on the internal scale, and its elasticity."""
    constants = to_natural(state[:NUM_CONSTANTS])
    fitted, gradient, decode, _ = log_speedup_gradient(
        constants, rows.terms, rows.accept_length, rows.baseline_deficit, rows.measured_share
    )
    return fitted, gradient * slope(constants), decode


def _half_sum(residual: Array, row_variance: Array, away: Array, precision: Array) -> float:
    """Half of what the fit minimises, its variances held."""
    return 0.5 * float(np.sum(residual**2 / row_variance) + away @ precision @ away)


def _redundancy(
    jacobian: Array,
    marginal: Array,
    row_variance: Array,
    effect_variance: Array,
    prior_precision: Array,
) -> tuple[float, float]:
    """Chi square that no choice of constants removes, and how many rows it rests on.

    What a few points have in common against the prior is about the constants, not about the noise: a
    single point says nothing of its own noise. So constants are nearly free here.
    """
    loose = np.zeros((jacobian.shape[1], jacobian.shape[1]))
    loose[:NUM_CONSTANTS, :NUM_CONSTANTS] = prior_precision / _LOOSE
    at_effects = np.arange(NUM_CONSTANTS, loose.shape[0])
    loose[at_effects, at_effects] = 1.0 / effect_variance
    weighted = jacobian / row_variance[:, None]
    inverse = np.linalg.inv(jacobian.T @ weighted + loose)
    gathered = weighted.T @ marginal
    chi_square = float(marginal @ (marginal / row_variance) - gathered @ inverse @ gathered)
    kept = np.sum(loose[:NUM_CONSTANTS, :NUM_CONSTANTS] * inverse[:NUM_CONSTANTS, :NUM_CONSTANTS])
    used = float(np.clip(NUM_CONSTANTS - kept, 0.0, NUM_CONSTANTS))
    return max(chi_square, 0.0), max(marginal.size - used, 0.0)
