"""Draws of the speed-up at accept lengths that are themselves drawn."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specmodel.calibration import Calibration
from specmodel.constants import NUM_CONSTANTS, slope
from specmodel.errors import ParameterError
from specmodel.optimum import covariance_root
from specmodel.posterior import Posterior, Rows
from specmodel.prediction import question_rows
from specmodel.question import AcceptLength, Question

Array = NDArray[np.float64]

_NODES = 65  # of the accept length; a straight line between them is right to 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeedupDraws:
    r"""Equally likely systems: the speed-up of each as a function of the accept length.

    .. math:: \ln S^{(d)}(\tau) = \ln\hat S(\tau) + \sqrt{\nu/\chi^2_\nu}\; L(\tau) z^{(d)}

    Made by `draw_speedups`. The errors of one draw belong together at all accept lengths, so
    differences along a row keep what its ends have in common.
    """

    log_nodes: Array  # logarithms of accept lengths, rising
    log_speedup: Array  # logarithm of the speed-up of each draw there

    def at(self, accept_length: Array) -> Array:
        """Return the speed-up of each draw at its own accept lengths."""
        count = len(self.log_speedup)
        asked = np.asarray(accept_length, dtype=np.float64)
        place = np.log(asked.reshape(count, -1))
        right = np.clip(np.searchsorted(self.log_nodes, place), 1, self.log_nodes.size - 1)
        low, high = self.log_nodes[right - 1], self.log_nodes[right]
        share = np.clip((place - low) / (high - low), 0.0, 1.0)
        rows = np.arange(count)[:, None]
        below, above = self.log_speedup[rows, right - 1], self.log_speedup[rows, right]
        gain = np.exp(below + share * (above - below)).reshape(asked.shape)
        return np.asarray(np.minimum(gain, asked))


def draw_speedups(
    calibration: Calibration,
    question: Question,
    *,
    longest: float,
    num_draws: int,
    rng: np.random.Generator,
) -> SpeedupDraws:
    """Return draws of what a new measurement of a configuration may show.

    Each draw at one accept length is one of `specmodel.posterior.Posterior.predict`: the same centre,
    scale and degrees of freedom, so that intervals agree with those of `specmodel.prediction`.
    What is drawn: constants and effects that the points taught, effects of a configuration or a run
    that they do not hold, and measurement noise. The accept length has no part in it.
    """
    if not longest > 1.0:
        raise ParameterError("longest", f"{longest:g}", "above 1")
    nodes = np.exp(np.linspace(0.0, np.log(longest), _NODES))
    rows = question_rows(
        calibration,
        [replace(question, accept_length=AcceptLength.exact(float(length))) for length in nodes],
    )
    posterior = calibration.posterior
    predicted = posterior.predict(rows)
    root = _roots(posterior, rows)
    normal = _balanced_normal(rng, num_draws, root.shape[1])
    freedom = max(float(np.median(predicted.degrees_of_freedom)), 1.0)
    heavy = np.sqrt(freedom / rng.chisquare(freedom, (num_draws, 1)))
    return SpeedupDraws(
        log_nodes=np.log(nodes), log_speedup=predicted.location + heavy * (normal @ root.T)
    )


def _roots(posterior: Posterior, rows: Rows) -> Array:
    """Square root L of the covariance of ln S over the rows, shape (rows, sources of error).

    All rows have one configuration and one run.
    """
    constants = posterior.constants
    linear = rows.linearised(constants)
    decode = linear.by_accept_length
    one, split = np.ones(len(rows)), NUM_CONSTANTS + posterior.num_configurations
    effects = posterior.effects(rows.take(np.arange(1)))
    weights = np.concatenate([effects.by_configuration[0], effects.by_run[0]])
    touched = NUM_CONSTANTS + np.flatnonzero(weights)
    used = np.concatenate([np.arange(NUM_CONSTANTS), touched])
    by_effect = np.where(touched < split, -decode[:, None], 1.0) * weights[touched - NUM_CONSTANTS]
    jacobian = np.hstack([linear.gradient * slope(constants), by_effect])
    learned = jacobian @ covariance_root(posterior.covariance[np.ix_(used, used)])
    drawn = [
        posterior.noise_scale * posterior.noise.row_log_sd * one,
        np.sqrt(effects.cost_covariance[0, 0]) * decode,
        np.sqrt(effects.run_covariance[0, 0]) * one,
    ]
    return np.concatenate([learned, np.stack(drawn, axis=1)], axis=1)


def _balanced_normal(rng: np.random.Generator, num_draws: int, width: int) -> Array:
    """Standard normal draws in pairs of opposite sign: medians settle with fewer of them."""
    half = rng.standard_normal((-(-num_draws // 2), width))
    return np.concatenate([half, -half])[:num_draws]
