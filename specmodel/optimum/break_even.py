"""The accept length at which speculation starts to pay."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.speedup import accept_length_for_speedup


def break_even_accept_length(
    round_cost: ArrayLike, *, non_decode_share: ArrayLike = 0.0, run_effect: ArrayLike = 0.0
) -> NDArray[np.float64]:
    r"""Accept length at which speculation is as fast as the baseline.

    .. math:: \tau^* = \frac{(1-f) R}{e^{v} - f}, \qquad \tau^*(v = 0) = R

    Parameters
    ----------
    round_cost : array-like
        :math:`R`, positive, effect of the configuration included, [-].
    non_decode_share : array-like
        :math:`f`, in [0, 1), [-].
    run_effect : array-like
        :math:`v`, what a run's speed-up has beyond the formula, on its logarithm, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\tau^*`, infinite where the run never breaks even, [tokens].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Solves ``speedup(...) * exp(run_effect) = 1``. Without a run effect it is the round cost itself,
    whatever the non-decode share: theory.md E6.

    Examples
    --------
    >>> float(break_even_accept_length(2.2965, non_decode_share=0.1))
    2.2965
    >>> float(break_even_accept_length(2.2965, run_effect=-0.02).round(3))
    2.343
    """
    needed = np.exp(-np.asarray(run_effect, dtype=np.float64))
    return accept_length_for_speedup(needed, round_cost, non_decode_share)
