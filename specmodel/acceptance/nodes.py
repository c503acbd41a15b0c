"""A fixed set of standard normal points, and quantiles of weighted values."""

from functools import lru_cache

import numpy as np

from specmodel.acceptance.bounds import FloatArray

_SEED = 20


@lru_cache(maxsize=64)
def normal_nodes(pairs: int, dimensions: int) -> FloatArray:
    """Return 2 * pairs antithetic points with mean 0 and variance 1 in each dimension.

    Always the same points, so a spread is a function of its inputs.
    """
    half = np.random.default_rng(_SEED).standard_normal((dimensions, pairs)).T
    points = np.concatenate([half, -half])
    points /= np.sqrt((points**2).mean(axis=0))
    points.setflags(write=False)
    return points


def weighted_quantiles(
    values: FloatArray, weights: FloatArray, probabilities: tuple[float, ...]
) -> FloatArray:
    """Return quantiles over axis 0 of weighted values, shape (probabilities, columns)."""
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    share = weights[order] / weights.sum()
    middle = np.cumsum(share, axis=0) - 0.5 * share
    columns = [
        np.interp(probabilities, middle[:, i], ordered[:, i]) for i in range(values.shape[1])
    ]
    return np.stack(columns, axis=-1)
