"""Published speed-up formulas, to compare with: what a reader of the papers would compute."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.acceptance import geometric_accept_length
from specmodel.errors import ParameterError

Array = NDArray[np.float64]


def _bounded(name: str, value: ArrayLike, lowest: float, *, inclusive: bool = True) -> Array:
    """Finite array that is not below a bound."""
    array = np.asarray(value, dtype=np.float64)
    wrong = ~np.isfinite(array) | (array < lowest if inclusive else array <= lowest)
    if np.any(wrong):
        relation = "at least" if inclusive else "above"
        raise ParameterError(name, f"{array[wrong].flat[0]:g}", f"finite and {relation} {lowest:g}")
    return array


def leviathan_speedup(
    acceptance_rate: ArrayLike, num_steps: ArrayLike, draft_cost_ratio: ArrayLike
) -> Array:
    r"""Walltime factor of a chain when every draft token is accepted equally often.

    .. math:: S = \frac{1-\alpha^{k+1}}{(1-\alpha)(kc+1)}

    Parameters
    ----------
    acceptance_rate : array-like
        :math:`\alpha`, in [0, 1], [-].
    num_steps : array-like of int
        :math:`k`, draft depth, at least 0, [tokens].
    draft_cost_ratio : array-like
        :math:`c`, time of one draft step over one target step, not negative, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`S`, at most k + 1; exactly 1 at depth 0, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Theorem 3.8 of [leviathan2023]_. Verification costs one target step whatever its number of tokens, the
    host costs nothing, acceptance is equal at every depth: 18 % off on its own paper's measurements
    (theory.md A1).

    Examples
    --------
    >>> float(leviathan_speedup(0.8, 7, 0.04).round(4))
    3.2509
    """
    return textbook_speedup(
        geometric_accept_length(acceptance_rate, num_steps), num_steps, draft_cost_ratio
    )


def textbook_speedup(
    accept_length: ArrayLike, num_steps: ArrayLike, draft_cost_ratio: ArrayLike
) -> Array:
    r"""Speed-up when a round costs its draft steps and exactly one target step.

    .. math:: S = \frac{\tau}{kc+1}

    Parameters
    ----------
    accept_length : array-like
        :math:`\tau`, tokens per request and round, bonus token included, at least 1, [tokens].
    num_steps : array-like
        :math:`k`, draft depth, at least 0, [tokens].
    draft_cost_ratio : array-like
        :math:`c`, time of one draft step over one target step, not negative, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`S`, positive, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Theorem 3.8 of [leviathan2023]_ with a measured accept length in place of the constant-rate sum, so
    that only its cost side is tested.

    Examples
    --------
    >>> float(textbook_speedup(2.75, 3, 0.05).round(4))
    2.3913
    """
    tokens = _bounded("accept_length", accept_length, 1.0)
    steps = _bounded("num_steps", num_steps, 0.0)
    ratio = _bounded("draft_cost_ratio", draft_cost_ratio, 0.0)
    return np.asarray(tokens / (steps * ratio + 1.0))


def moesd_speedup(
    accept_length: ArrayLike,
    num_steps: ArrayLike,
    draft_cost_ratio: ArrayLike,
    target_efficiency: ArrayLike,
    rejection_cost_ratio: ArrayLike = 0.0,
) -> Array:
    r"""Speed-up of a batch when verification of the drafted tokens costs more than one target step.

    .. math:: S = \frac{\tau}{k\,\frac{T_D(B,1)}{T_T(B,1)} + \frac{T_T(B,k)}{T_T(B,1)}
              + \frac{T_\text{rej}}{T_T(B,1)}}

    Parameters
    ----------
    accept_length : array-like
        :math:`\tau = \sigma (k+1)`, tokens per request and round, bonus token included, at least 1,
        [tokens].
    num_steps : array-like
        :math:`k`, draft depth, at least 0, [tokens].
    draft_cost_ratio : array-like
        :math:`T_D(B,1)/T_T(B,1)`, one draft step over one target step at this batch, not negative, [-].
    target_efficiency : array-like
        :math:`T_T(B,1)/T_T(B,k)`, one target step over one verification, positive, [-].
    rejection_cost_ratio : array-like
        :math:`T_\text{rej}/T_T(B,1)`, sampling of a round over one target step, not negative, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`S`, positive, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Speed-up equation of [moesd2025]_. With target efficiency 1 and no rejection cost it is
    `textbook_speedup`. The ratios are measured; the paper's own roofline for them has about ten
    fitted constants and is not reproduced.

    Examples
    --------
    >>> float(moesd_speedup(3.2, 4, 0.05, 0.8).round(4))
    2.2069
    """
    efficiency = _bounded("target_efficiency", target_efficiency, 0.0, inclusive=False)
    rejection = _bounded("rejection_cost_ratio", rejection_cost_ratio, 0.0)
    tokens = _bounded("accept_length", accept_length, 1.0)
    steps = _bounded("num_steps", num_steps, 0.0)
    ratio = _bounded("draft_cost_ratio", draft_cost_ratio, 0.0)
    return np.asarray(tokens / (steps * ratio + 1.0 / efficiency + rejection))
