"""Student's t distribution in numpy: what intervals and probabilities are read from."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

NORMAL_95 = 1.6448536269514722
"""Quantile 0.95 of the standard normal: half of a central 90 % interval. [-]"""

_HALF_CELLS = 4096


_FAR = 12.0
"""Value beyond which a Student-t variable with 40 degrees of freedom or more practically never lies."""


@lru_cache(maxsize=64)
def _table(degrees_of_freedom: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Angles arctan(t / sqrt(nu)) and the cumulative probability there."""
    # With t = sqrt(nu) tan(a) the density becomes cos(a)^(nu - 1), smooth and bounded on (-pi/2, pi/2).
    root = np.sqrt(degrees_of_freedom)
    end = np.pi / 2 if degrees_of_freedom < 40 else np.arctan(_FAR / root)
    angle = np.linspace(-end, end, 2 * _HALF_CELLS + 1)
    middle = 0.5 * (angle[1:] + angle[:-1])
    power = degrees_of_freedom - 1.0
    ends, centre = np.cos(angle) ** power, np.cos(middle) ** power
    ends[[0, -1]] = 1.0 if power == 0 else 0.0
    cells = (ends[1:] + ends[:-1] + 4 * centre) / 6  # Simpson's rule
    cumulative = np.concatenate([[0.0], np.cumsum(cells)])
    return angle, cumulative / cumulative[-1]


_NODES = np.array([1, 1.2, 1.5, 2, 2.2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20, 30, 60, 1e5])


def _neighbours(
    degrees_of_freedom: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Node below each value, and the weight of the node above, linear in 1/nu."""
    if not np.all(degrees_of_freedom >= 1):
        raise ParameterError("degrees_of_freedom", np.min(degrees_of_freedom), "at least 1")
    inverse = 1.0 / np.minimum(degrees_of_freedom, _NODES[-1])
    below = np.clip(np.searchsorted(-1.0 / _NODES, -inverse, side="right") - 1, 0, _NODES.size - 2)
    low, high = 1.0 / _NODES[below], 1.0 / _NODES[below + 1]
    return below, (low - inverse) / (low - high)


def student_t_cdf(value: ArrayLike, degrees_of_freedom: ArrayLike) -> NDArray[np.float64]:
    r"""Probability that a Student-t variable is below a value.

    .. math:: F(t) \propto \int_{-\pi/2}^{\arctan(t/\sqrt\nu)} \cos^{\nu-1} a \, da
    """
    t_value, freedom = np.broadcast_arrays(
        np.asarray(value, dtype=np.float64), np.asarray(degrees_of_freedom, dtype=np.float64)
    )
    flat_t, (below, above_weight) = t_value.ravel(), _neighbours(freedom.ravel())
    probability = np.zeros(flat_t.size)
    for node in np.flatnonzero(np.bincount(np.append(below, below + 1))).tolist():
        weight = np.where(below == node, 1.0 - above_weight, 0.0)
        weight += np.where(below + 1 == node, above_weight, 0.0)
        used = weight > 0
        angle = np.arctan(flat_t[used] / np.sqrt(_NODES[node]))
        probability[used] += weight[used] * np.interp(angle, *_table(float(_NODES[node])))
    return probability.reshape(t_value.shape)


def student_t_quantile(probability: float, degrees_of_freedom: ArrayLike) -> NDArray[np.float64]:
    r"""Value below which a Student-t variable lies with a given probability.

    .. math:: t = F^{-1}(\text{probability})
    """
    if not 0 < probability < 1:
        raise ParameterError("probability", probability, "inside (0, 1)")
    freedom = np.asarray(degrees_of_freedom, dtype=np.float64)
    below, above_weight = _neighbours(freedom.ravel())
    at_node = np.zeros(_NODES.size)
    for node in np.flatnonzero(np.bincount(np.append(below, below + 1))).tolist():
        angle, cumulative = _table(float(_NODES[node]))
        at_node[node] = np.sqrt(_NODES[node]) * np.tan(np.interp(probability, cumulative, angle))
    quantile = at_node[below] * (1.0 - above_weight) + at_node[below + 1] * above_weight
    return quantile.reshape(freedom.shape)
