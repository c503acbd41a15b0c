"""Profile-likelihood (MINOS) intervals of the constants, for what the normal form would miss."""

from collections.abc import Sequence

import numpy as np
from iminuit import Minuit
from numpy.typing import NDArray

from calibration.fit.posterior_mode import MapFit
from specmodel.constants import NAMES, NUM_CONSTANTS, slope, to_natural
from specmodel.posterior import Rows
from specmodel.prior import Prior

Array = NDArray[np.float64]

CONFIDENCE = 0.90


class _Objective:
    """-2 ln posterior of the constants, effects integrated out, noise held at its estimate."""

    def __init__(self, rows: Rows, log_speedup: Array, prior: Prior, fitted: MapFit) -> None:
        self.rows, self.log_speedup, self.prior = rows, log_speedup, prior
        posterior = fitted.posterior
        decode = rows.linearised(to_natural(posterior.mean[:NUM_CONSTANTS])).by_accept_length
        self.row_variance = fitted.row_variance
        self.decode = decode
        self.num_configurations = posterior.num_configurations
        size = posterior.mean.size - NUM_CONSTANTS
        each = np.arange(len(rows))
        design = np.zeros((len(rows), size))
        design[each, rows.configuration] = -decode
        design[each, self.num_configurations + rows.run] = 1.0
        inner = (design / self.row_variance[:, None]).T @ design + fitted.effect_precision
        self.inner_inverse = np.linalg.inv(inner)
        self.prior_precision = np.linalg.inv(posterior.prior_covariance)

    def _gathered(self, weighted: Array) -> Array:
        """Design transposed times a vector: each row touches two effects."""
        rows, count = self.rows, self.num_configurations
        size = self.inner_inverse.shape[0]
        by_configuration = np.bincount(
            rows.configuration, weights=-self.decode * weighted, minlength=count
        )
        by_run = np.bincount(rows.run, weights=weighted, minlength=size - count)
        return np.concatenate([by_configuration, by_run])

    def __call__(self, internal: Array) -> float:
        """Value: Woodbury form of the marginal residuals plus the prior."""
        residual = self.log_speedup - self.rows.log_speedup(to_natural(internal))
        weighted = residual / self.row_variance
        gathered = self._gathered(weighted)
        away = internal - self.prior.mean
        return float(
            residual @ weighted
            - gathered @ self.inner_inverse @ gathered
            + away @ self.prior_precision @ away
        )

    def grad(self, internal: Array) -> Array:
        """Exact gradient."""
        constants = to_natural(internal)
        found = self.rows.linearised(constants)
        jacobian = found.gradient * slope(constants)
        residual = self.log_speedup - found.log_speedup
        solved = self.inner_inverse @ self._gathered(residual / self.row_variance)
        rows, count = self.rows, self.num_configurations
        explained = -self.decode * solved[rows.configuration] + solved[count + rows.run]
        clean = (residual - explained) / self.row_variance
        return np.asarray(
            -2.0 * jacobian.T @ clean + 2.0 * self.prior_precision @ (internal - self.prior.mean)
        )


def profile_intervals(
    rows: Rows, log_speedup: Array, prior: Prior, fitted: MapFit, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    r"""Central 90 % intervals of constants from the profile of the posterior.

    .. math:: \{x_j : \min_{x_{-j}} Q(x) \le Q_\min + z_{0.95}^2\}

    MINOS of iminuit on the internal scale, effects integrated out. theory.md part D.
    """
    objective = _Objective(rows, log_speedup, prior, fitted)
    minuit = Minuit(objective, fitted.posterior.mean[:NUM_CONSTANTS], grad=objective.grad)
    minuit.errordef = 1.0
    minuit.strategy = 0
    minuit.errors = np.sqrt(np.diag(fitted.posterior.covariance)[:NUM_CONSTANTS])
    minuit.migrad(ncall=500)
    intervals = {}
    for name in names:
        index = NAMES.index(name)
        try:
            minuit.minos(f"x{index}", cl=CONFIDENCE, ncall=500)
        except RuntimeError:  # the minimum is not good enough for a profile
            continue
        error = minuit.merrors[f"x{index}"]
        if error.is_valid:
            ends = np.repeat(np.array(minuit.values)[None, :], 2, axis=0)
            ends[:, index] += (error.lower, error.upper)
            low, high = to_natural(ends)[:, index].tolist()
            intervals[name] = (low, high)
    return intervals
