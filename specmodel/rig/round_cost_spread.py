"""How far a round cost from names alone may be off: multipliers, and what the form leaves out."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.cost.allreduce_prior import QUANTILE_90
from specmodel.errors import ParameterError

FORM_LOG_SD: Final = 0.20
"""Spread of a round cost around the physical form, on the log scale: root mean square error over 13
packaged tables, each counted once. Dispatch of experts, unfused kernels, sampling and host gaps are in
it. Not independent of these tables; left out one by one, the others give nearly the same. [-]"""


def round_cost_interval(
    draws: ArrayLike, form_log_sd: float = FORM_LOG_SD
) -> tuple[float, float, float]:
    r"""Central 90 % of a round cost, with the error of the form.

    .. math:: \exp\left(m \pm 1.645 \sqrt{s^2 + e^2}\right)

    Parameters
    ----------
    draws : array-like, shape (d,)
        Round costs under draws of the multipliers, positive; :math:`m` and :math:`s` are the median
        and the standard deviation of their logarithm, [baseline steps].
    form_log_sd : float
        :math:`e`, at least 0, [-].

    Returns
    -------
    low, median, high : float
        [baseline steps].

    Raises
    ------
    ParameterError
        If there is no draw, one is not positive, or the spread is negative.

    Notes
    -----
    A ratio of two times on one rig: what both share cancels, what only a round has does not. On the
    log scale the form is one part, the same for all configurations of a rig.

    Examples
    --------
    >>> [round(value, 2) for value in round_cost_interval([2.0])]
    [1.44, 2.0, 2.78]
    """
    values = np.asarray(draws, dtype=np.float64).ravel()
    if not values.size or not np.all(np.isfinite(values) & (values > 0)):
        raise ParameterError("draws", f"{values.size} values", "finite and positive, at least one")
    if not form_log_sd >= 0:
        raise ParameterError("form_log_sd", f"{form_log_sd:g}", "at least 0")
    logarithm = np.log(values)
    half = QUANTILE_90 * float(np.hypot(np.std(logarithm), form_log_sd))
    middle = float(np.median(logarithm))
    return float(np.exp(middle - half)), float(np.exp(middle)), float(np.exp(middle + half))
