"""Speed-up from accept length and round cost: the only place that knows both."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NUM_CONSTANTS, index_of
from specmodel.cost import RoundTerms, round_cost_gradient
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

ROUND_COST_NOISE = 0.03
"""How far below 1 an implied round cost may be by noise alone, [-].

Throughputs of repeated runs differ by one to two per cent, so the ratio of two by up to three.
"""

_SHARE, _BASELINE = index_of("non_decode_share"), index_of("baseline_share")


def _positive(name: str, value: ArrayLike) -> Array:
    """Array of a quantity that must be positive."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0):
        raise ParameterError(name, f"{np.min(array):g}", "positive")
    return array


def _share(value: ArrayLike) -> Array:
    """Array of non-decode shares, inside [0, 1)."""
    array = np.asarray(value, dtype=np.float64)
    outside = ~((array >= 0) & (array < 1))
    if np.any(outside):
        raise ParameterError("non_decode_share", f"{array[outside][0]:g}", "in [0, 1)")
    return array


def speedup(
    accept_length: ArrayLike, round_cost: ArrayLike, non_decode_share: ArrayLike = 0.0
) -> Array:
    r"""Throughput with speculation over throughput without, at the same load.

    .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

    Parameters
    ----------
    accept_length : array-like
        :math:`\tau`, tokens per request and round, bonus token included, positive, [tokens].
    round_cost : array-like
        :math:`R`, round time per baseline step, positive, [-].
    non_decode_share : array-like
        :math:`f`, share of baseline wall time that is not decoding, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`S`, positive, below ``1 / non_decode_share``, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Amdahl's law over the decoding part; theory.md parts C and 2. With f = 0 it is accept length over
    round cost.

    Examples
    --------
    >>> float(speedup(2.1, 2.2965).round(4))
    0.9144
    >>> float((90.0 * speedup(2.75, 2.2965)).round(1))
    107.8
    """
    tokens, cost = _positive("accept_length", accept_length), _positive("round_cost", round_cost)
    share = _share(non_decode_share)
    return np.asarray(1.0 / (share + (1.0 - share) * cost / tokens))


def round_cost_from_throughput(
    accept_length: ArrayLike,
    output_tokens_per_s: ArrayLike,
    baseline_tokens_per_s: ArrayLike,
    non_decode_share: ArrayLike = 0.0,
) -> Array:
    r"""Round cost that one benchmark point implies: the plain identity.

    .. math:: R = \frac{\tau}{1-f}\left(\frac{y_0}{y} - f\right)

    Parameters
    ----------
    accept_length : array-like
        :math:`\tau`, [tokens].
    output_tokens_per_s, baseline_tokens_per_s : array-like
        :math:`y, y_0`, throughput with and without speculation, positive, [tokens/s].
    non_decode_share : array-like
        :math:`f`, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`R`; below 1 the baseline or the accept length is wrong, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    The reference case, theory.md E5: 2.1 x 90 / 82.3.

    Examples
    --------
    >>> float(round_cost_from_throughput(2.1, 82.3, 90.0).round(4))
    2.2965
    >>> float(round_cost_from_throughput(2.1, 82.3, 90.0, 0.1).round(3))
    2.318
    """
    tokens = _positive("accept_length", accept_length)
    with_speculation = _positive("output_tokens_per_s", output_tokens_per_s)
    without = _positive("baseline_tokens_per_s", baseline_tokens_per_s)
    share = _share(non_decode_share)
    return np.asarray(tokens * (without / with_speculation - share) / (1.0 - share))


def accept_length_for_speedup(
    target_speedup: ArrayLike, round_cost: ArrayLike, non_decode_share: ArrayLike = 0.0
) -> Array:
    r"""Accept length needed for a speed-up; infinite where no accept length reaches it.

    .. math:: \tau = \frac{(1-f) R}{1/S - f}

    Parameters
    ----------
    target_speedup : array-like
        :math:`S`, positive; 1 gives the break-even accept length, [-].
    round_cost : array-like
        :math:`R`, positive, [-].
    non_decode_share : array-like
        :math:`f`, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\tau`, infinite where ``target_speedup >= 1 / non_decode_share``, [tokens].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    At S = 1 the result is R whatever f: break-even accept length equals round cost.

    Examples
    --------
    >>> float(accept_length_for_speedup(1.0, 2.2965, 0.1).round(4))
    2.2965
    >>> float(accept_length_for_speedup(215.2 / 90, 2.2965).round(2))
    5.49
    """
    target, cost = _positive("target_speedup", target_speedup), _positive("round_cost", round_cost)
    share = _share(non_decode_share)
    room = 1.0 / target - share
    with np.errstate(divide="ignore"):
        needed = (1.0 - share) * cost / np.where(room > 0, room, np.nan)
    return np.where(room > 0, needed, np.inf)


def elasticities(
    accept_length: ArrayLike, round_cost: ArrayLike, non_decode_share: ArrayLike = 0.0
) -> dict[str, Array]:
    r"""Relative change of the speed-up per relative change of each quantity.

    .. math:: \frac{\partial\ln S}{\partial\ln\tau} = (1-f)\frac{R}{\tau}S = -\frac{\partial\ln S}{\partial\ln R},
              \quad \frac{\partial\ln S}{\partial\ln f} = -f\left(1-\frac{R}{\tau}\right)S

    Parameters
    ----------
    accept_length, round_cost, non_decode_share : array-like
        :math:`\tau, R, f` as in `speedup`.

    Returns
    -------
    dict of str to numpy.ndarray
        Keys ``accept_length``, ``round_cost``, ``non_decode_share``, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Exact derivatives of `speedup`.

    Examples
    --------
    >>> {key: float(value.round(3)) for key, value in elasticities(2.75, 2.2965).items()}
    {'accept_length': 1.0, 'round_cost': -1.0, 'non_decode_share': -0.0}
    """
    value = speedup(accept_length, round_cost, non_decode_share)
    share, ratio = _share(non_decode_share), np.asarray(round_cost) / np.asarray(accept_length)
    decode = (1.0 - share) * ratio * value
    return {
        "accept_length": decode,
        "round_cost": -decode,
        "non_decode_share": -share * (1.0 - ratio) * value,
    }


def non_decode_share_from_ttft(
    ttft_s: ArrayLike, output_tokens: ArrayLike, tpot_s: ArrayLike
) -> Array:
    r"""Share of a request's wall time before its first token.

    .. math:: f = \frac{t_\text{first}}{t_\text{first} + (N - 1)\, t_\text{token}}

    Parameters
    ----------
    ttft_s : array-like
        Time to first token, not negative, [s].
    output_tokens : array-like
        :math:`N`, tokens of a request, at least 1, [tokens].
    tpot_s : array-like
        Time per output token after the first, without speculation, positive, [s].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`f` in [0, 1], [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Direct measurement of the non-decode share where a benchmark states TTFT and output length.

    Examples
    --------
    >>> float(non_decode_share_from_ttft(1.0, 101, 0.04))
    0.2
    """
    first = np.asarray(ttft_s, dtype=np.float64)
    tokens = np.asarray(output_tokens, dtype=np.float64)
    if np.any(first < 0):
        raise ParameterError("ttft_s", f"{np.min(first):g}", "at least 0")
    if np.any(tokens < 1):
        raise ParameterError("output_tokens", f"{np.min(tokens):g}", "at least 1")
    decode_s = (tokens - 1.0) * _positive("tpot_s", tpot_s)
    total_s = first + decode_s
    return np.divide(first, total_s, out=np.zeros_like(total_s), where=total_s > 0)


def non_decode_share_from_baselines(
    non_decode_share: ArrayLike, baseline_share: ArrayLike, baseline_deficit: ArrayLike
) -> Array:
    r"""Non-decode share of a workload from how much slower its baseline is.

    .. math:: f_w = f_0 + \kappa (1 - f_0) \left(1 - \frac{y_w}{y_\max}\right)

    Parameters
    ----------
    non_decode_share : array-like
        :math:`f_0`, of the workload with the fastest baseline, in [0, 1), [-].
    baseline_share : array-like
        :math:`\kappa`, in [0, 1], [-].
    baseline_deficit : array-like
        :math:`1 - y_w/y_\max` at equal batch and context, in [0, 1), [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`f_w` in [0, 1), [-].

    Notes
    -----
    One target at one batch and context has one decode step, so slower baselines hold time that is
    not decoding. theory.md B9.

    Examples
    --------
    >>> float(non_decode_share_from_baselines(0.05, 1.0, 0.2).round(3))
    0.24
    """
    base = np.asarray(non_decode_share, dtype=np.float64)
    extra = np.asarray(baseline_share, dtype=np.float64) * np.asarray(baseline_deficit)
    return np.asarray(base + (1.0 - base) * extra)


def log_speedup_gradient(
    constants: Array,
    terms: RoundTerms,
    accept_length: Array,
    baseline_deficit: Array,
    measured_share: Array,
) -> tuple[Array, Array, Array, Array]:
    r"""Logarithm of the speed-up and its derivatives: what fits and intervals are made of.

    .. math:: \ln S = -\ln\left(f_w + (1-f_w)\frac{R}{\tau}\right)

    Parameters
    ----------
    constants : numpy.ndarray, shape (NUM_CONSTANTS,)
        In natural units.
    terms : RoundTerms
        The n configurations.
    accept_length : numpy.ndarray, shape (n,)
        :math:`\tau`, [tokens].
    baseline_deficit : numpy.ndarray, shape (n,)
        :math:`1 - y_w/y_\max`, [-].
    measured_share : numpy.ndarray, shape (n,)
        Non-decode share where it was measured directly, NaN elsewhere, [-].

    Returns
    -------
    tuple of numpy.ndarray
        :math:`\ln S` (n,); gradient in natural constants (n, NUM_CONSTANTS);
        :math:`\partial\ln S/\partial\ln\tau` (n,), which is minus that by :math:`\ln R`; and the
        non-decode share (n,).

    Notes
    -----
    Exact derivatives; checked against finite differences in the tests.

    Examples
    --------
    >>> from specmodel.cost import round_terms
    >>> constants = np.array([1.1, 0.05, 0.1, 0.3, 0.0, 0.6, 0.8, 0.7, 0.9])
    >>> zero, none = np.zeros(1), np.full(1, np.nan)
    >>> log_s, *_ = log_speedup_gradient(constants, round_terms(num_steps=4), np.array([2.6]), zero, none)
    >>> float(np.exp(log_s)[0])
    2.0
    """
    cost, cost_gradient = round_cost_gradient(constants, terms)
    modelled = non_decode_share_from_baselines(
        constants[_SHARE], constants[_BASELINE], baseline_deficit
    )
    known = np.isfinite(measured_share)
    share = np.where(known, measured_share, modelled)
    ratio = cost / accept_length
    inverse = share + (1.0 - share) * ratio
    decode = (1.0 - share) * ratio / inverse
    gradient = np.empty((accept_length.size, NUM_CONSTANTS))
    np.multiply(cost_gradient, (-decode / cost)[:, None], out=gradient)
    by_share = np.where(known, 0.0, -(1.0 - ratio) / inverse)
    gradient[:, _SHARE] = by_share * (1.0 - constants[_BASELINE] * baseline_deficit)
    gradient[:, _BASELINE] = by_share * (1.0 - constants[_SHARE]) * baseline_deficit
    return -np.log(inverse), gradient, decode, share
