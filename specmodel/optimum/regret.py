"""What a decision lost, once the candidates were measured."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError


def decision_regret(
    measured_speedup: ArrayLike, predicted_speedup: ArrayLike
) -> NDArray[np.float64]:
    r"""Throughput lost by choosing the configuration that was predicted best.

    .. math:: 1 - \frac{S_{j}}{\max_i S_i}, \quad j = \arg\max_i \hat S_i

    Parameters
    ----------
    measured_speedup, predicted_speedup : array-like, shape (..., n)
        :math:`S, \hat S` of the candidate configurations, positive, [-].

    Returns
    -------
    numpy.ndarray, shape (...)
        In [0, 1); 0 if the best configuration was chosen, [-].

    Raises
    ------
    ParameterError
        If a speed-up is not positive or there is no candidate.

    Notes
    -----
    Of configurations predicted equal the first is chosen. A model may be wrong in level and still lose
    nothing: only the order near the top counts.

    Examples
    --------
    >>> float(decision_regret([1.4, 1.5, 1.45], [1.2, 1.3, 1.35]).round(4))
    0.0333
    """
    measured, predicted = np.broadcast_arrays(
        np.asarray(measured_speedup, dtype=np.float64),
        np.asarray(predicted_speedup, dtype=np.float64),
    )
    if measured.ndim == 0 or measured.shape[-1] == 0:
        raise ParameterError("measured_speedup", "none", "an array with at least one configuration")
    for name, values in (("measured_speedup", measured), ("predicted_speedup", predicted)):
        if not np.all(np.isfinite(values) & (values > 0)):
            raise ParameterError(name, f"{np.min(values):g}", "finite and positive")
    chosen = np.argmax(predicted, axis=-1)[..., None]
    got = np.take_along_axis(measured, chosen, axis=-1)[..., 0]
    return np.asarray(1.0 - got / measured.max(axis=-1))
