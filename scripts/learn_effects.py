"""What near loads have in common, by the evidence of packaged systems; prints, and writes nothing.

Run as ``python scripts/learn_effects.py`` when the effects or the growth of a step change their form, then
put what it prints, rounded, into `calibration.fit.prior_learning.OVER_LOADS`. Every other target model is
left out, so that what was chosen can be judged on the others.
"""

import sys
from dataclasses import replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from calibration.fit.posterior_mode import fit_rows
from calibration.fit.prior_learning import OVER_LOADS, learning_targets, public_systems
from calibration.points.arrays import SystemRows
from specmodel.constants import NUM_CONSTANTS, slope, to_natural
from specmodel.effects import Seen, prior_covariances
from specmodel.prior import Noise, Prior, load_prior, target_key

Array = NDArray[np.float64]

LEVELS = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])  # of a system's noise, as a variance
NAMES = [name for name in OVER_LOADS if name != "growth_share"]


def log_evidence(system: SystemRows, mode: Array, prior: Prior, noise: Noise) -> float:
    """Logarithm of the probability of a system's rows, its constants and its level of noise summed out."""
    rows = system.rows
    constants = to_natural(mode)
    linear = rows.linearised(constants)
    jacobian = linear.gradient * slope(constants)
    seen = Seen(
        terms=rows.terms.take(np.unique(rows.configuration, return_index=True)[1]),
        runs=rows.runs.take(np.unique(rows.run, return_index=True)[1]),
        curve=system.curve,
    )
    cost, run = prior_covariances(seen, noise, 1.0, constants)
    decode = linear.by_accept_length
    shared = decode[:, None] * decode * cost[np.ix_(rows.configuration, rows.configuration)]
    shared += run[np.ix_(rows.run, rows.run)] + noise.row_log_sd**2 * np.eye(len(rows))
    believed = jacobian @ prior.covariance @ jacobian.T
    away = system.log_speedup - linear.log_speedup + jacobian @ (mode - prior.mean)
    freedom, found = noise.degrees_of_freedom, []
    for level in LEVELS:
        root = np.linalg.cholesky(believed + level * shared)
        whitened = np.linalg.solve(root, away)
        weight = -freedom / 2 * (np.log(level) + 1 / level)
        found.append(weight - 0.5 * whitened @ whitened - np.log(np.diag(root)).sum())
    return float(np.logaddexp.reduce(found))


def main() -> None:
    """Learn on every other target model, and print what is best and what it is worth."""
    teachers = [one for one in public_systems() if one.teaches]
    chosen = learning_targets(teachers)[::2]
    systems = [one.rows for one in teachers if target_key(one.target_model) in chosen]
    prior = load_prior(experts_known=True)
    fits = [fit_rows(one.rows, one.log_speedup, prior, curve=one.curve) for one in systems]
    modes = [fit.posterior.mean[:NUM_CONSTANTS] for fit in fits]

    def loss(logs: Array) -> float:
        noise = replace(prior.noise, **dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))
        return -sum(map(log_evidence, systems, modes, repeat(prior), repeat(noise)))

    start = np.log([OVER_LOADS[name] for name in NAMES])
    found = minimize(loss, start, method="Powell", options={"maxiter": 3})
    sys.stdout.write(f"{', '.join(chosen)}: log evidence {-loss(start):.1f} -> {-found.fun:.1f}\n")
    for name, before, value in zip(NAMES, np.exp(start), np.exp(found.x), strict=True):
        sys.stdout.write(f"  {name:16s} {before:.3f} -> {value:.3f}\n")


if __name__ == "__main__":
    main()
