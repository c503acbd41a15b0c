"""Speed-up from accept length and round cost: the only place that knows both."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.cost import RoundTerms, round_cost_gradient
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

ROUND_COST_NOISE = 0.03
"""How far below 1 an implied round cost may be by noise alone, [-].

Throughputs of repeated runs differ by one to two per cent, so the ratio of two by up to three.
"""

_SHARES = "in [0, 1)"
_SHARE, _BASELINE = NAMES.index("non_decode_share"), NAMES.index("baseline_share")


def _inside(name: str, value: ArrayLike, allowed: str = "positive") -> Array:
    """Array of a quantity that must be positive, or of shares, which lie in [0, 1)."""
    array = np.asarray(value, dtype=np.float64)
    good = array > 0 if allowed == "positive" else (array >= 0) & (array < 1)
    if not np.all(good):
        raise ParameterError(name, f"{array[~good][0]:g}", allowed)
    return array


def speedup(
    accept_length: ArrayLike, round_cost: ArrayLike, non_decode_share: ArrayLike = 0.0
) -> Array:
    r"""Throughput with speculation over throughput without, at the same load.

    .. math:: \frac{1}{S} = f + (1-f)\frac{R}{\tau}

    Amdahl's law over the decoding part; theory.md parts C and 2. With f = 0 it is accept length over
    round cost.
    """
    tokens, cost = _inside("accept_length", accept_length), _inside("round_cost", round_cost)
    share = _inside("non_decode_share", non_decode_share, _SHARES)
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
    tokens = _inside("accept_length", accept_length)
    with_speculation = _inside("output_tokens_per_s", output_tokens_per_s)
    without = _inside("baseline_tokens_per_s", baseline_tokens_per_s)
    share = _inside("non_decode_share", non_decode_share, _SHARES)
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
    target, cost = _inside("target_speedup", target_speedup), _inside("round_cost", round_cost)
    share = _inside("non_decode_share", non_decode_share, _SHARES)
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

    Notes
    -----
    Exact derivatives of `speedup`.

    Examples
    --------
    >>> {key: float(value.round(3)) for key, value in elasticities(2.75, 2.2965).items()}
    {'accept_length': 1.0, 'round_cost': -1.0, 'non_decode_share': -0.0}
    """
    value = speedup(accept_length, round_cost, non_decode_share)
    share, ratio = (
        _inside("non_decode_share", non_decode_share, _SHARES),
        np.asarray(round_cost) / np.asarray(accept_length),
    )
    decode = (1.0 - share) * ratio * value
    return {
        "accept_length": decode,
        "round_cost": -decode,
        "non_decode_share": -share * (1.0 - ratio) * value,
    }


def non_decode_share_from_baselines(
    non_decode_share: ArrayLike, baseline_share: ArrayLike, baseline_deficit: ArrayLike
) -> Array:
    r"""Non-decode share of a workload from how much slower its baseline is.

    .. math:: f_w = f_0 + \kappa (1 - f_0) \left(1 - \frac{y_w}{y_\max}\right)

    One target at one batch and context has one decode step, so slower baselines hold time that is
    not decoding. theory.md B9.
    """
    base = np.asarray(non_decode_share, dtype=np.float64)
    extra = np.asarray(baseline_share, dtype=np.float64) * np.asarray(baseline_deficit)
    return np.asarray(base + (1.0 - base) * extra)


class LinearSpeedup(NamedTuple):
    """Logarithm of the speed-up of some rows, and what it is made of and changes with."""

    log_speedup: Array
    gradient: Array  # of it with respect to each constant in natural units
    by_accept_length: Array  # elasticity of the speed-up with respect to accept length, [-]
    non_decode_share: Array  # used for each row, [-]
    round_cost: Array  # [baseline steps]
    cost_gradient: Array  # of it with respect to each constant in natural units


def log_speedup_gradient(
    constants: Array,
    terms: RoundTerms,
    accept_length: Array,
    baseline_deficit: Array,
    measured_share: Array,
) -> LinearSpeedup:
    r"""Logarithm of the speed-up and its derivatives: what fits and intervals are made of.

    .. math:: \ln S = -\ln\left(f_w + (1-f_w)\frac{R}{\tau}\right)
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
    return LinearSpeedup(-np.log(inverse), gradient, decode, share, cost, cost_gradient)


def textbook_speedup(
    accept_length: ArrayLike, num_steps: ArrayLike, draft_cost_ratio: ArrayLike
) -> Array:
    r"""Speed-up when a round costs its draft steps and exactly one target step, to compare with.

    .. math:: S = \frac{\tau}{kc+1}

    Theorem 3.8 of [leviathan2023]_ with a measured accept length in place of the constant-rate sum, so
    that only its cost side is tested: 18 % off on its own paper's measurements (theory.md A1).
    """
    least = {"accept_length": 1.0, "num_steps": 0.0, "draft_cost_ratio": 0.0}
    given = (accept_length, num_steps, draft_cost_ratio)
    for (name, bound), value in zip(least.items(), given, strict=True):
        if not np.all(np.isfinite(value) & (np.asarray(value) >= bound)):
            raise ParameterError(name, value, f"finite and at least {bound:g}")
    steps, ratio = np.asarray(num_steps), np.asarray(draft_cost_ratio)
    return np.asarray(np.asarray(accept_length) / (steps * ratio + 1.0))
