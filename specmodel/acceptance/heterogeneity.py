"""Requests differ: a Beta distribution of acceptance, and what throughput averages."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import ConditionalAccuracy, FullAccuracy
from specmodel.acceptance.bounds import FloatArray, at_least, unit_interval, whole
from specmodel.errors import ParameterError


def beta_conditional_accuracy(
    mean_acceptance_rate: ArrayLike, correlation: ArrayLike, depth: ArrayLike
) -> FloatArray:
    r"""Conditional accuracy at a depth when every request has its own acceptance rate.

    .. math:: a_i = \frac{A + i - 1}{A + B + i - 1}
        = \frac{m (1-\rho) + (i-1) \rho}{1 - \rho + (i-1) \rho}

    Parameters
    ----------
    mean_acceptance_rate : array-like
        :math:`m = A/(A+B)`, mean over requests, in [0, 1], [-].
    correlation : array-like
        :math:`\rho = 1/(A+B+1)`, intra-class correlation of acceptance within a request, in
        [0, 1]; 0 means equal requests, [-].
    depth : array-like of int
        :math:`i`, 1-based, [tokens].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`a_i`, rising with depth: the requests that get deep are the easy ones, [-].

    Raises
    ------
    ParameterError
        If a probability is outside [0, 1] or a depth is below 1.

    Notes
    -----
    Moments of a Beta distribution. Acceptance is constant within each request; see `heterogeneous_full_accuracy` for a decay on top.

    Examples
    --------
    >>> beta_conditional_accuracy(0.7, 0.1, [1, 2, 3]).tolist()
    [0.7, 0.73, 0.7545]
    """
    mean = unit_interval("mean_acceptance_rate", mean_acceptance_rate)
    share = unit_interval("correlation", correlation)
    before = whole("depth", depth, 1) - 1.0
    weight = 1.0 - share + before * share
    with np.errstate(divide="ignore", invalid="ignore"):
        later = (mean * (1.0 - share) + before * share) / weight
    return np.where(before == 0.0, mean, later)


def beta_accept_length(
    mean_acceptance_rate: ArrayLike, correlation: ArrayLike, num_steps: int
) -> FloatArray:
    r"""Accept length per round when every request has its own acceptance rate.

    .. math:: \tau = 1 + \sum_{i \le k} \prod_{j<i} \frac{A+j}{A+B+j}

    Parameters
    ----------
    mean_acceptance_rate : array-like
        :math:`m`, mean over requests, in [0, 1], [-].
    correlation : array-like, broadcast with `mean_acceptance_rate`
        :math:`\rho`, intra-class correlation, in [0, 1], [-].
    num_steps : int
        :math:`k`, draft depth, [tokens].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\tau`, at least that of equal requests with the same mean (Jensen), [tokens].

    Raises
    ------
    ParameterError
        If a probability is outside [0, 1] or the depth is negative.

    Notes
    -----
    A mean over *rounds*; a mean over requests of equal output length is
    harmonic, see `throughput_accept_length`.

    Examples
    --------
    >>> beta_accept_length(0.7, [0.0, 0.1, 0.2], 5).tolist()
    [2.941, 3.132, 3.310]
    """
    depth = np.arange(1, int(whole("num_steps", num_steps)) + 1)
    mean, share = np.broadcast_arrays(
        unit_interval("mean_acceptance_rate", mean_acceptance_rate),
        unit_interval("correlation", correlation),
    )
    conditional = beta_conditional_accuracy(mean[..., None], share[..., None], depth)
    return np.asarray(1.0 + np.cumprod(conditional, axis=-1).sum(axis=-1))


def heterogeneous_full_accuracy(
    mean_acceptance_rate: float, correlation: float, decay: ArrayLike
) -> FullAccuracy:
    r"""Full accuracy of requests that differ, times a decay with depth that all share.

    .. math:: S_i = E_r\Big[\prod_{j \le i} \alpha_r h_j\Big] = E[\alpha^i] \prod_{j \le i} h_j

    Parameters
    ----------
    mean_acceptance_rate : float
        :math:`m`, mean of :math:`\alpha_r` over requests, in [0, 1], [-].
    correlation : float
        :math:`\rho`, intra-class correlation of :math:`\alpha_r`, in [0, 1], [-].
    decay : array-like, shape (num_steps,)
        :math:`h_1, h_2, \dots`, in [0, 1]; usually h_1 = 1, [-].

    Returns
    -------
    FullAccuracy
        As deep as `decay`.

    Raises
    ------
    ParameterError
        If a number is outside [0, 1] or `decay` is empty.

    Notes
    -----
    The common decay factors out of the mean over requests. Separating the two needs accept
    lengths at three depths or more.

    Examples
    --------
    >>> heterogeneous_full_accuracy(0.7, 0.1, [1.0, 0.9]).values.tolist()
    [0.7, 0.4599]
    """
    shared = ConditionalAccuracy(unit_interval("decay", decay))
    depth = np.arange(1, shared.num_steps + 1)
    rising = beta_conditional_accuracy(mean_acceptance_rate, correlation, depth)
    return ConditionalAccuracy(rising * shared.values).to_full()


def throughput_accept_length(
    accept_lengths: ArrayLike, output_tokens: ArrayLike | None = None
) -> float:
    r"""Accept length that the whole load sees: the harmonic mean over requests.

    .. math:: \tau_{eff} = \frac{\sum_r N_r}{\sum_r N_r / \tau_r} \le \overline{\tau}

    Parameters
    ----------
    accept_lengths : array-like, shape (requests,)
        :math:`\tau_r`, accept length of each request or domain, at least 1, [tokens].
    output_tokens : array-like, shape (requests,), optional
        :math:`N_r`, output length of each; equal when left out, [tokens].

    Returns
    -------
    float
        :math:`\tau_{eff}`, tokens over rounds, [tokens].

    Raises
    ------
    ParameterError
        If there is no request, an accept length is below 1 or an output length is not positive.

    Notes
    -----
    A ratio of sums: slow requests take more rounds, so they weigh more.

    Examples
    --------
    >>> throughput_accept_length([2.0, 4.0])
    2.667
    """
    length = at_least("accept_lengths", accept_lengths, 1.0)
    if length.size == 0:
        raise ParameterError("accept_lengths", "none", "one per request")
    tokens = np.ones(length.shape)
    if output_tokens is not None:
        tokens = np.broadcast_to(at_least("output_tokens", output_tokens, 0.0), length.shape)
        if np.any(tokens == 0.0):
            raise ParameterError("output_tokens", 0, "positive", "leave empty requests out")
    return float(tokens.sum() / (tokens / length).sum())
