"""Serving at an arrival rate: Little's law closes the loop between batch and latency."""

from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLoad:
    r"""What one request asks of a server, with a decode step that is linear in the batch.

    .. math:: T(B) = t_0 + t_1 B

    Parameters
    ----------
    output_tokens : float
        :math:`N`, tokens decoded per request, positive, [tokens].
    fixed_step_time_s : float
        :math:`t_0`, part of a step that does not depend on the batch, positive, [s].
    step_time_per_request_s : float
        :math:`t_1`, what each running request adds to a step, positive, [s].
    prefill_time_s : float
        :math:`P`, time per request during which its prefill keeps decoding waiting, [s].

    Raises
    ------
    ParameterError
        If a quantity is outside its range.

    Notes
    -----
    Mean values only: no tails, no limit on running requests, no admission queue. theory.md B8,
    [kong2026]_. An arrival finds :math:`B` requests running and is one more: without prefill the means
    are exact where :math:`t_0` is the step of one request alone and :math:`t_1` what each further one
    adds. `specmodel.arrival` takes steps of any form.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> float(max_arrival_rate_per_s(load).round(2))
    13.02
    """

    output_tokens: float
    fixed_step_time_s: float
    step_time_per_request_s: float
    prefill_time_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_zero = field.name == "prefill_time_s"
            if not np.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
                allowed = "finite and not negative" if may_be_zero else "finite and positive"
                raise ParameterError(field.name, f"{value:g}", allowed)


def max_arrival_rate_per_s(
    load: ServingLoad, *, accept_length: ArrayLike = 1.0, marginal_round_cost: ArrayLike = 1.0
) -> Array:
    r"""Arrival rate beyond which requests pile up without end.

    .. math:: \lambda_\max = \frac{1}{N R_1 t_1/\tau + P}

    Parameters
    ----------
    load : ServingLoad
        :math:`N, t_1, P`.
    accept_length : array-like
        :math:`\tau`, at least 1; 1 without speculation, [tokens].
    marginal_round_cost : array-like
        :math:`R_1`, what a running request adds to a round over what it adds to a step, positive; 1
        without speculation, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\lambda_\max`, positive, [requests/s].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    theory.md B8 with prefill. Speculation raises it only if :math:`\tau > R_1`.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> float(max_arrival_rate_per_s(load, accept_length=2.75, marginal_round_cost=3.6).round(2))
    9.95
    """
    tokens, marginal = (
        _accept_length(accept_length),
        _positive("marginal_round_cost", marginal_round_cost),
    )
    return np.asarray(1.0 / _busy_time_s(load, tokens, marginal))


def decode_latency_s(
    arrival_rate_per_s: ArrayLike,
    load: ServingLoad,
    *,
    accept_length: ArrayLike = 1.0,
    fixed_round_cost: ArrayLike = 1.0,
    marginal_round_cost: ArrayLike = 1.0,
) -> Array:
    r"""Time a request spends decoding when requests arrive at a given rate.

    .. math:: L = \frac{N R_0 t_0/\tau}{1 - \lambda (N R_1 t_1/\tau + P)}

    Parameters
    ----------
    arrival_rate_per_s : array-like
        :math:`\lambda`, not negative, [requests/s].
    load : ServingLoad
        :math:`N, t_0, t_1, P`.
    accept_length : array-like
        :math:`\tau`, at least 1; 1 without speculation, [tokens].
    fixed_round_cost, marginal_round_cost : array-like
        :math:`R_0, R_1`: a round takes :math:`R_0 t_0 + R_1 t_1 B`; both 1 without speculation,
        positive, [-].

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`L`, infinite from `max_arrival_rate_per_s` on, [s].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    From :math:`B = \lambda L` and :math:`L = \frac{N}{\tau} \frac{R_0 t_0 + R_1 t_1 B}{1 - \lambda P}`:
    prefill leaves decoding the share :math:`1-\rho_P = 1 - \lambda P` of the time. theory.md B8
    stretches only :math:`t_0` by that share; then prefill would not lower the maximum rate, so here
    the whole step is stretched. Without prefill the two are one.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> decode_latency_s([0, 4, 14], load).round(2).tolist()
    [5.12, 7.39, inf]
    """
    rate = _arrival_rate(arrival_rate_per_s)
    tokens = _accept_length(accept_length)
    fixed = _positive("fixed_round_cost", fixed_round_cost)
    marginal = _positive("marginal_round_cost", marginal_round_cost)
    alone_s = load.output_tokens / tokens * fixed * load.fixed_step_time_s
    idle = 1.0 - rate * _busy_time_s(load, tokens, marginal)
    alone_s, idle = np.broadcast_arrays(alone_s, idle)
    latency_s: Array = np.full(idle.shape, np.inf)
    np.divide(alone_s, idle, out=latency_s, where=idle > 0)
    return latency_s


def running_requests(
    arrival_rate_per_s: ArrayLike,
    load: ServingLoad,
    *,
    accept_length: ArrayLike = 1.0,
    fixed_round_cost: ArrayLike = 1.0,
    marginal_round_cost: ArrayLike = 1.0,
) -> Array:
    r"""Mean number of requests that decode at once: the batch that an arrival rate makes.

    .. math:: B = \lambda L

    Parameters
    ----------
    arrival_rate_per_s : array-like
        :math:`\lambda`, not negative, [requests/s].
    load : ServingLoad
        As in `decode_latency_s`.
    accept_length, fixed_round_cost, marginal_round_cost : array-like
        As in `decode_latency_s`.

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`B`, 0 without arrivals, infinite from `max_arrival_rate_per_s` on, [requests].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    Little's law. A faster server runs a smaller batch at the same arrival rate.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> float(running_requests(4, load).round(1))
    29.6
    """
    return np.asarray(
        _arrival_rate(arrival_rate_per_s)
        * decode_latency_s(
            arrival_rate_per_s,
            load,
            accept_length=accept_length,
            fixed_round_cost=fixed_round_cost,
            marginal_round_cost=marginal_round_cost,
        )
    )


def speedup_at_rate(
    arrival_rate_per_s: ArrayLike,
    load: ServingLoad,
    *,
    accept_length: ArrayLike,
    fixed_round_cost: ArrayLike,
    marginal_round_cost: ArrayLike,
) -> Array:
    r"""Decode latency without speculation over with it, at one arrival rate.

    .. math:: S = \frac{L(\lambda; 1, 1, 1)}{L(\lambda; \tau, R_0, R_1)}

    Parameters
    ----------
    arrival_rate_per_s : array-like
        :math:`\lambda`, not negative, [requests/s].
    load : ServingLoad
        As in `decode_latency_s`.
    accept_length, fixed_round_cost, marginal_round_cost : array-like
        :math:`\tau, R_0, R_1` as in `decode_latency_s`.

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\tau/R_0` without load; 0 where only speculation is overloaded, infinite where only the
        baseline is, [-].

    Raises
    ------
    ParameterError
        If an argument is outside its range, or both ways are overloaded.

    Notes
    -----
    At one arrival rate both ways emit the same tokens per second; the gain is latency.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> speedup_at_rate(
    ...     [0.2, 4, 8], load, accept_length=2.75, fixed_round_cost=1.35, marginal_round_cost=3.6
    ... ).round(2).tolist()
    [2.03, 1.76, 1.03]
    """
    without_s, with_s = np.broadcast_arrays(
        decode_latency_s(arrival_rate_per_s, load),
        decode_latency_s(
            arrival_rate_per_s,
            load,
            accept_length=accept_length,
            fixed_round_cost=fixed_round_cost,
            marginal_round_cost=marginal_round_cost,
        ),
    )
    overloaded = np.isinf(without_s) & np.isinf(with_s)
    if np.any(overloaded):
        rates = np.broadcast_to(np.asarray(arrival_rate_per_s, dtype=np.float64), overloaded.shape)
        limit = max_arrival_rate_per_s(
            load, accept_length=accept_length, marginal_round_cost=marginal_round_cost
        )
        highest = max(float(max_arrival_rate_per_s(load)), float(np.max(limit)))
        raise ParameterError(
            "arrival_rate_per_s",
            f"{rates[overloaded][0]:g}",
            f"below {highest:.4g}, where the server keeps up with or without speculation",
            "spread the requests over more servers",
        )
    return np.asarray(without_s / with_s)


def crossover_rate_per_s(
    load: ServingLoad,
    *,
    accept_length: ArrayLike,
    fixed_round_cost: ArrayLike,
    marginal_round_cost: ArrayLike,
) -> Array:
    r"""Arrival rate at which latency is equal with and without speculation.

    .. math:: \lambda^* = \frac{\tau - R_0}{N t_1 (R_1 - R_0) + P (\tau - R_0)}

    Parameters
    ----------
    load : ServingLoad
        :math:`N, t_1, P`.
    accept_length, fixed_round_cost, marginal_round_cost : array-like
        :math:`\tau, R_0, R_1` as in `decode_latency_s`.

    Returns
    -------
    numpy.ndarray, broadcast shape
        :math:`\lambda^*`. Where :math:`\tau > R_0`, speculation pays below it: infinite if it pays at
        every rate. Where :math:`\tau \le R_0`, it pays above it: infinite if it pays at none,
        [requests/s].

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    theory.md B8 with prefill. A crossover exists if tau lies between :math:`R_0` and :math:`R_1`; it is
    always below both maximum rates. The second case is a costly drafter on a server whose step grows
    by KV reads, which a round shares among its tokens.

    Examples
    --------
    >>> load = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=150e-6)
    >>> float(crossover_rate_per_s(
    ...     load, accept_length=2.75, fixed_round_cost=1.35, marginal_round_cost=3.6
    ... ).round(2))
    8.1
    """
    tokens = _accept_length(accept_length)
    fixed = _positive("fixed_round_cost", fixed_round_cost)
    marginal = _positive("marginal_round_cost", marginal_round_cost)
    gain = tokens - fixed
    growth_s = load.output_tokens * load.step_time_per_request_s * (marginal - fixed)
    crosses = (gain * (marginal - tokens) > 0) | ((gain == 0) & (marginal < tokens))
    gain, needed_s, crosses = np.broadcast_arrays(
        gain, growth_s + load.prefill_time_s * gain, crosses
    )
    rate: Array = np.full(gain.shape, np.inf)
    np.divide(gain, needed_s, out=rate, where=crosses)
    return np.abs(rate)


def _busy_time_s(load: ServingLoad, tokens: Array, marginal: Array) -> Array:
    """Server time that one request takes for itself, which decides the maximum rate."""
    decode_s = load.output_tokens / tokens * marginal * load.step_time_per_request_s
    return np.asarray(decode_s + load.prefill_time_s)


def _arrival_rate(value: ArrayLike) -> Array:
    """Array of arrival rates."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise ParameterError("arrival_rate_per_s", f"{np.min(array):g}", "finite and not negative")
    return array


def _accept_length(value: ArrayLike) -> Array:
    """Array of accept lengths."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array) & (array >= 1)):
        raise ParameterError("accept_length", f"{np.min(array):g}", "finite and at least 1")
    return array


def _positive(name: str, value: ArrayLike) -> Array:
    """Array of a quantity that must be positive."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ParameterError(name, f"{np.min(array):g}", "finite and positive")
    return array
