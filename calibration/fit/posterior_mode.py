"""The fit itself: maximum a posteriori with a joint covariance, from arrays to a posterior."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specmodel.baselines import Baselines
from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_natural
from specmodel.cost import BatchCurve
from specmodel.effects import Seen, prior_covariances
from specmodel.posterior import Posterior, Rows
from specmodel.prior import Noise, Prior
from specmodel.speedup import non_decode_share_from_baselines

Array = NDArray[np.float64]

ODD_ROW_SD = 4.0
"""Distance from which a row counts less, in standard deviations of the row noise. [-]"""

SHARE_LOGIT_SD = 0.3
"""How far the non-decode share of one load may be from another's, on the logit scale (judgement). [-]"""

_SHARE_ITERATIONS = 8
_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")
_MAX_ITERATIONS = 200
_MAX_MOVE = 1.5
_MAX_HALVINGS = 20
_TOLERANCE = 1e-5
_LOOSE = 10.0  # how much wider, in variance, constants may be where noise is judged
_ROUNDING = 1e-9
_WARM_UP = 12
_SETTLED = 25  # iterations after which a move far below the uncertainty ends the fit
_NEGLIGIBLE_MOVE = 2e-3  # in standard deviations of the posterior
_MOST_JUDGED = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFit:
    """Posterior of one system and what its rows say about it."""

    posterior: Posterior  # constants, effects, covariance, noise
    residual: Array  # measured minus fitted ln S, effects included, [-]
    fitted_variance: Array  # variance of the fitted ln S from constants and effects, [-]
    # measured minus fitted ln S without what configurations and runs have alone, [-]
    marginal_residual: Array
    weight: Array  # 1 for rows that fit, below for odd ones, (0, 1]
    row_variance: Array  # variance of the noise of each row, as fitted, [-]
    effect_precision: (
        Array  # of the effects before the points, configurations first, as fitted, [-]
    )
    # number of constants' worth of information that the rows added, [0, NUM_CONSTANTS]
    learned: float
    # factor on the prior's covariance, above 1 where the system is unlike those it was learned from,
    # [-]
    prior_width: float
    redundant: float  # rows' worth of information about the noise, [0, n]
    # weighted sum of squares that no choice of constants removes, before the noise was rescaled, [-]
    chi_square: float


def fit_rows(
    rows: Rows,
    log_speedup: Array,
    prior: Prior,
    *,
    spread_log_sd: Array | None = None,
    curve: BatchCurve | None = None,
) -> MapFit:
    r"""Maximum a posteriori constants and effects with their joint covariance.

    .. math:: \min_{x,u} \sum_i \frac{(y_i - m_i(x) - D_i u)^2}{\lambda^2 s_i^2}
              + u^\top K_\lambda^{-1} u + (x-\mu)^\top\Sigma^{-1}(x-\mu)

    Gauss-Newton with a bounded move, halved until it lowers the sum: without that, a share that does
    nothing near 0 may swing for ever; where one swings by far less than its uncertainty, the fit ends.
    The covariance is the inverse of the Gauss-Newton Hessian.

    Two scales are learned with it. The noise, from what no choice of constants explains:
    :math:`\lambda^2 = (\nu_0 + \chi^2)/(\nu_0 + m)` with m rows' worth of redundancy; a single
    point says nothing of its own noise. And the prior, where the points pull the constants away from
    it: its covariance is widened by :math:`(\nu + d^2)/(\nu + p)`, d the distance, p the constants'
    worth of information learned and :math:`\nu` the number of systems it was learned from, which is a
    Student-t prior: a rig unlike all public ones moves the constants instead of being taken for noise.
    Intervals have :math:`\nu_0 + m` degrees of freedom.

    A row more than `ODD_ROW_SD` standard deviations from what its configuration, run and the constants
    say counts with less weight, so that one bad row does not move the others; `MapFit.weight` tells
    which. K is `specmodel.effects.prior_covariances`: near loads have much in common, and what the
    baselines leave open of a step's growth is part of it, so that a measured configuration is remembered.
    theory.md part D.
    """
    count, noise = len(rows), prior.noise
    num_configurations = int(rows.configuration.max(initial=-1)) + 1
    num_runs = int(rows.run.max(initial=-1)) + 1
    seen = Seen(
        terms=rows.terms.take(np.unique(rows.configuration, return_index=True)[1]),
        runs=rows.runs.take(np.unique(rows.run, return_index=True)[1]),
        curve=curve,
    )
    spread = np.zeros(count) if spread_log_sd is None else np.nan_to_num(spread_log_sd)
    size = num_configurations + num_runs
    each = np.arange(count)
    design = np.zeros((count, size))
    design[each, num_configurations + rows.run] = 1.0
    centre = np.concatenate([prior.mean, np.zeros(size)])
    precision = np.zeros((centre.size, centre.size))
    base = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    state, scales, weight = centre, _Scales(row=1.0, effect=1.0, width=1.0), np.ones(count)
    fitted, gradient, decode = _model(rows, state)
    settled, of_effects, unscaled = np.nan, precision, precision
    for iteration in range(_MAX_ITERATIONS):
        if iteration <= _WARM_UP or scales.effect != settled:
            constants, settled = to_natural(state[:NUM_CONSTANTS]), scales.effect
            of_effects = _effect_precision(seen, noise, settled, constants)
        precision[:NUM_CONSTANTS, :NUM_CONSTANTS] = base / scales.width
        precision[NUM_CONSTANTS:, NUM_CONSTANTS:] = of_effects
        design[each, rows.configuration] = -decode
        residual = log_speedup - fitted - design @ state[NUM_CONSTANTS:]
        trusted = scales.row * noise.row_log_sd**2 + spread**2
        row_variance = trusted / weight
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
        kept = np.sum(base * covariance[:NUM_CONSTANTS, :NUM_CONSTANTS])
        learned = float(np.clip(NUM_CONSTANTS - kept, 0.0, NUM_CONSTANTS))
        chi_square = redundant = 0.0
        # First the constants and the odd rows, then what is left is noise.
        if iteration == _WARM_UP:
            unscaled = _effect_precision(seen, noise, 1.0, to_natural(state[:NUM_CONSTANTS]))
        if iteration >= _WARM_UP:
            chi_square, redundant = _redundancy(
                jacobian,
                log_speedup - fitted,
                noise.row_log_sd**2 / weight + spread**2,
                unscaled,
                base,
            )
        # Rows are judged by a noise that they cannot blow up themselves.
        judged = min(scales.row, _MOST_JUDGED) * noise.row_log_sd**2 + spread**2
        odd = np.maximum(np.abs(residual) / np.sqrt(judged), ODD_ROW_SD)
        reweighted = (ODD_ROW_SD / odd) ** 2
        rescaled = _rescaled(
            prior,
            (state - centre)[:NUM_CONSTANTS],
            learned=learned,
            chi_square=chi_square,
            redundant=redundant,
            num_effects=size,
        )
        small = np.abs(move) < _NEGLIGIBLE_MOVE * np.sqrt(np.diag(covariance))
        arrived = largest < _TOLERANCE or (iteration > _SETTLED and bool(small.all()))
        still = arrived and np.max(np.abs(reweighted - weight), initial=0.0) < 1e-3
        if still and rescaled.near(scales) and iteration > _WARM_UP:
            break
        scales, weight = rescaled, reweighted
    alone = np.repeat(
        scales.effect * np.square([noise.configuration_log_sd, noise.run_log_sd]),
        [num_configurations, num_runs],
    )
    return MapFit(
        posterior=Posterior(
            mean=state,
            covariance=covariance,
            num_configurations=num_configurations,
            noise=noise,
            noise_scale=float(np.sqrt(scales.row)),
            effect_scale=float(np.sqrt(scales.effect)),
            degrees_of_freedom=noise.degrees_of_freedom + redundant,
            prior_covariance=scales.width * prior.covariance,
            seen=seen,
        ),
        residual=residual,
        fitted_variance=np.einsum("ij,ij->i", jacobian @ covariance, jacobian),
        marginal_residual=residual + design @ (alone * (of_effects @ state[NUM_CONSTANTS:])),
        weight=weight,
        row_variance=row_variance,
        effect_precision=of_effects,
        learned=learned,
        prior_width=scales.width,
        redundant=redundant,
        chi_square=chi_square,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scales:
    """Factors on the variances of rows and effects, and on the prior's covariance."""

    row: float
    effect: float
    width: float

    def near(self, other: "_Scales") -> bool:
        """Whether they have settled."""
        return (
            abs(self.row / other.row - 1.0) < 1e-4
            and abs(self.effect / other.effect - 1.0) < 1e-4
            and abs(self.width / other.width - 1.0) < 1e-3
        )


def _rescaled(
    prior: Prior,
    away: Array,
    *,
    learned: float,
    chi_square: float,
    redundant: float,
    num_effects: int,
) -> _Scales:
    """The factors that the fit as it stands calls for."""
    freedom, systems = prior.noise.degrees_of_freedom, len(prior.learned_from)
    width = 1.0
    if systems:  # a prior from no systems is taken as it is
        tension = float(away @ np.linalg.solve(prior.covariance, away))
        width = max(1.0, (systems + tension) / (systems + learned))
    row = (freedom + chi_square) / (freedom + redundant)
    # Repeats of one run say how rows scatter, not how configurations and runs do.
    others = max(num_effects - 2, 0)
    return _Scales(row=row, effect=(freedom + others * row) / (freedom + others), width=width)


def _effect_precision(seen: Seen, noise: Noise, scale: float, constants: Array) -> Array:
    """Inverse prior covariance of the effects, configurations first."""
    cost, run = prior_covariances(seen, noise, scale, constants)
    split = len(cost)
    found = np.zeros((split + len(run), split + len(run)))
    for at, covariance in ((slice(split), cost), (slice(split, None), run)):
        diagonal = np.diag(covariance)
        alone = np.count_nonzero(covariance) == np.count_nonzero(diagonal)
        found[at, at] = np.diag(1.0 / diagonal) if alone else np.linalg.inv(covariance)
    return found


def _model(rows: Rows, state: Array) -> tuple[Array, Array, Array]:
    """Fitted ln S of the constants alone, its gradient on the internal scale, and its elasticity."""
    constants = to_natural(state[:NUM_CONSTANTS])
    found = rows.linearised(constants)
    return found.log_speedup, found.gradient * slope(constants), found.by_accept_length


def _half_sum(residual: Array, row_variance: Array, away: Array, precision: Array) -> float:
    """Half of what the fit minimises, its variances held."""
    return 0.5 * float(np.sum(residual**2 / row_variance) + away @ precision @ away)


def _redundancy(
    jacobian: Array,
    marginal: Array,
    row_variance: Array,
    effect_precision: Array,
    prior_precision: Array,
) -> tuple[float, float]:
    """Chi square that no choice of constants removes, and how many rows it rests on.

    What a few points have in common against the prior is about the constants, not about the noise: a
    single point says nothing of its own noise. So constants are nearly free here.
    """
    loose = np.zeros((jacobian.shape[1], jacobian.shape[1]))
    loose[:NUM_CONSTANTS, :NUM_CONSTANTS] = prior_precision / _LOOSE
    loose[NUM_CONSTANTS:, NUM_CONSTANTS:] = effect_precision
    weighted = jacobian / row_variance[:, None]
    inverse = np.linalg.inv(jacobian.T @ weighted + loose)
    gathered = weighted.T @ marginal
    chi_square = float(marginal @ (marginal / row_variance) - gathered @ inverse @ gathered)
    kept = np.sum(loose[:NUM_CONSTANTS, :NUM_CONSTANTS] * inverse[:NUM_CONSTANTS, :NUM_CONSTANTS])
    used = float(np.clip(NUM_CONSTANTS - kept, 0.0, NUM_CONSTANTS))
    return max(chi_square, 0.0), max(marginal.size - used, 0.0)


def with_measured_shares(posterior: Posterior, baselines: Baselines) -> Posterior:
    r"""Posterior told of the non-decode shares that were measured, for loads where none was.

    .. math:: \operatorname{logit} f_j \sim \mathcal N(\operatorname{logit} f_{w_j}(x), \sigma_f^2)
    """
    measured = baselines.column("non_decode_share")
    known = measured > 0.0  # those of decoding alone, 0, say nothing of a request
    if not known.any():
        return posterior
    deficit = baselines.deficit(
        baselines.column("tokens_per_s"),
        baselines.column("batch_size"),
        baselines.column("context_tokens"),
    )[known]
    told = np.log(measured[known]) - np.log1p(-measured[known])
    precision = np.linalg.inv(posterior.covariance)
    mean = posterior.mean
    for _ in range(_SHARE_ITERATIONS):
        constants = to_natural(mean[:NUM_CONSTANTS])
        moved = slope(constants)
        base, extra = constants[_SHARE], constants[_BASELINE] * deficit
        share = non_decode_share_from_baselines(base, constants[_BASELINE], deficit)
        jacobian = np.zeros((told.size, mean.size))
        by_logit = 1.0 / (share * (1.0 - share))
        jacobian[:, _SHARE] = by_logit * (1.0 - extra) * moved[_SHARE]
        jacobian[:, _BASELINE] = by_logit * (1.0 - base) * deficit * moved[_BASELINE]
        away = told - np.log(share) + np.log1p(-share) + jacobian @ (mean - posterior.mean)
        weighted = jacobian / SHARE_LOGIT_SD**2
        covariance = np.asarray(np.linalg.inv(precision + weighted.T @ jacobian), dtype=np.float64)
        mean = posterior.mean + covariance @ (weighted.T @ away)
    return replace(posterior, mean=mean, covariance=covariance)
