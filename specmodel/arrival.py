"""A server at an arrival rate: how many requests run, from the time of a step at every batch."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

Array = NDArray[np.float64]

NUM_RATES: Final = 16
"""Rates between which a crossover is first looked for. [-]"""

NEARLY_FULL: Final = 0.999
"""Share of the largest rate up to which servers are compared. [-]"""

_MOST_TRIES = 6


class ArrivalLoad(NamedTuple):
    """What an arrival rate makes of a server: means over time and over requests."""

    # requests that decode at once, also while a prefill stops them, [requests]
    running_requests: Array
    decode_latency_s: Array  # time from the end of a request's own prefill to its last token, [s]
    # time that a request waits for a place among the running ones; infinite where more arrive
    # than the server keeps up with, [s]
    waiting_s: Array

    @property
    def latency_s(self) -> Array:
        """Waiting and decoding together in seconds."""
        return np.asarray(self.waiting_s + self.decode_latency_s)


class BatchServer:
    r"""A server that gives every running request the same number of tokens in each step or round.

    .. math:: \mu(b) = \frac{\tau}{N} \frac{b}{T(b)}

    `step_time_s` is :math:`T(b)` along its last axis, while b = 1 to M requests run (later ones wait);
    `output_tokens` is :math:`N` per request, `accept_length` :math:`\tau`, `prefill_time_s` :math:`P`, the
    time per request during which its prefill keeps decoding waiting.

    Requests arrive independently of each other at rate :math:`\lambda`. A prefill stops decoding, so on
    the clock of decoding it takes no time, and what arrives during prefills comes in groups: of
    :math:`1/(1-q)` requests on average with :math:`q = \lambda P`, taken as geometric (a judgement). With
    :math:`r_b = \lambda \frac{N}{\tau} \frac{T(b)}{b}`, arrivals over departures, the stationary probability
    of b requests is proportional to :math:`r_b \prod_{i<b} (q + r_i)`. Without prefill that is :math:`\prod_{i \le b} r_i`, which holds for
    every distribution of output lengths: the server is one of state-dependent processor sharing
    [brandt2009]_. With prefill, or where requests wait for a place, it holds for exponential
    lengths and nearly for others. Then Little's law, :math:`L = B/\lambda`, and the prefills of others
    that a request finds at its own (a queue of constant service).

    For a step :math:`T(b) = t_0 + t_1 (b - 1)` without limit and prefill it is the law of theory.md B8
    [kong2026]_: an arrival finds B requests running and is one more, so that
    :math:`L = \frac{N}{\tau} T(B + 1)`. Prefill divides this by :math:`1 - \lambda P` to first order. Where steps are not linear, a law of the mean batch alone errs by how much the
    step bends over the batches that occur, and may have several solutions; this has one.
    """

    __slots__ = (
        *("_growth", "_log_share", "output_tokens", "prefill_time_s"),
        *("step_time_s", "tokens_per_step"),
    )

    def __init__(
        self,
        step_time_s: ArrayLike,
        *,
        output_tokens: float,
        accept_length: ArrayLike = 1.0,
        prefill_time_s: float = 0.0,
    ) -> None:
        times = np.asarray(step_time_s, dtype=np.float64)
        tokens = np.asarray(accept_length, dtype=np.float64)
        if times.ndim < 1 or not times.shape[-1]:
            raise ParameterError("step_time_s", times.shape, "times for 1 running request or more")
        tiny = np.finfo(np.float64).tiny
        for name, values, least in (
            ("step_time_s", times, tiny),
            ("output_tokens", np.asarray(output_tokens), tiny),
            ("accept_length", tokens, 1.0),
            ("prefill_time_s", np.asarray(prefill_time_s), 0.0),
        ):
            sound = np.isfinite(values) & (values >= least)
            if not np.all(sound):
                allowed = "finite and positive" if 0 < least < 1 else f"finite, at least {least:g}"
                raise ParameterError(name, f"{values[~sound].flat[0]:g}", allowed)
        self.step_time_s = times
        self.output_tokens = float(output_tokens)
        self.tokens_per_step = tokens
        self.prefill_time_s = float(prefill_time_s)
        running = np.arange(1.0, times.shape[-1] + 1.0)
        self._log_share = np.log(times / running)
        self._growth = np.cumsum(self._log_share, axis=-1)

    @property
    def most_running(self) -> int:
        """Most requests that run at once, [requests]."""
        return int(self.step_time_s.shape[-1])

    @property
    def max_rate_per_s(self) -> Array:
        r"""Arrival rate from which on requests pile up without end, [requests/s].

        .. math:: \lambda_\max = \frac{1}{\frac{N}{\tau} \frac{T(M)}{M} + P}
        """
        steps = self.output_tokens / self.tokens_per_step
        busy_s = steps * self.step_time_s[..., -1] / self.most_running
        return np.asarray(1.0 / (busy_s + self.prefill_time_s))

    def at(self, arrival_rate_per_s: ArrayLike) -> ArrivalLoad:
        r"""Running requests and what a request takes, in the long run.

        .. math:: B = \lambda L,\quad L = \frac{1}{\lambda} \sum_b \min(b, M) \pi(b)
                  + \frac{P}{1-q} \left(q + \frac{q^2}{2(1-q)}\right)
        """
        rate = np.asarray(arrival_rate_per_s, dtype=np.float64)
        if not np.all(np.isfinite(rate) & (rate > 0)):
            raise ParameterError("arrival_rate_per_s", f"{np.min(rate):g}", "finite and positive")
        largest = self.max_rate_per_s
        stable = rate < largest
        calm = np.where(stable, rate, 0.5 * largest)  # numbers that are not used, but are numbers
        group = np.asarray(calm * self.prefill_time_s)
        steps_per_s = np.asarray(calm * self.output_tokens / self.tokens_per_step)
        running = np.arange(1.0, self.most_running + 1.0)
        last = steps_per_s * self.step_time_s[..., -1] / self.most_running
        if self.prefill_time_s > 0:
            log_ratio = np.log(steps_per_s)[..., None] + self._log_share
            growth = np.log(group[..., None] + np.exp(log_ratio))
            logs = np.cumsum(growth, axis=-1) - growth + log_ratio
        else:
            logs = np.log(steps_per_s)[..., None] * running + self._growth
        top = np.maximum(np.max(logs, axis=-1, keepdims=True), 0.0)
        weights = np.exp(logs - top)
        most = self.most_running
        beyond = group + last
        full = weights[..., -1] / (1.0 - beyond)  # all places taken, however many wait
        total = np.exp(-top[..., 0]) + np.sum(weights[..., :-1], axis=-1) + full
        mean = (np.sum(weights[..., :-1] * running[:-1], axis=-1) + most * full) / total
        waiting = full * beyond / (1.0 - beyond) / total
        # Of a queue of prefills, one leaves this many behind, and all that come until it is empty.
        behind = (group + group**2 / 2.0 / (1.0 - group)) * self.prefill_time_s / (1.0 - group)
        decoding_s = np.where(stable, mean / rate + behind, most / largest)
        return ArrivalLoad(
            running_requests=np.asarray(decoding_s * np.minimum(rate, largest)),
            decode_latency_s=np.asarray(decoding_s),
            waiting_s=np.where(stable, waiting / rate, np.inf),
        )


def speedup_at_rate(
    arrival_rate_per_s: ArrayLike, without: BatchServer, speculative: BatchServer
) -> Array:
    r"""Latency without speculation over latency with it, at one arrival rate.

    .. math:: S(\lambda) = L(\lambda) / L_\text{spec}(\lambda)
    """
    before_s = without.at(arrival_rate_per_s).latency_s
    after_s = speculative.at(arrival_rate_per_s).latency_s
    with np.errstate(invalid="ignore"):
        return np.asarray(before_s / after_s)


def paying_rates_per_s(without: BatchServer, speculative: BatchServer) -> tuple[Array, Array]:
    r"""Arrival rates between which speculation makes requests faster.

    .. math:: S(\lambda) > 1,\quad \lambda_\text{from} < \lambda < \lambda_\text{to}

    Where it pays in several ranges, the first start and the last stop. theory.md B8 has the linear
    case in closed form.
    """
    largest = np.minimum(without.max_rate_per_s, speculative.max_rate_per_s)
    carries_more = speculative.max_rate_per_s >= without.max_rate_per_s
    part = np.linspace(0.0, 1.0, NUM_RATES + 1)
    shares = NEARLY_FULL * (1.0 - (1.0 - part) ** 1.5)  # closer where latencies rise steeply
    shares[0] = 1e-4

    def gain(share: Array | float) -> Array:
        """Logarithm of the speed-up at a share of the rate that both servers keep up with."""
        return np.asarray(np.log(speedup_at_rate(share * largest, without, speculative)))

    gains = np.stack([gain(share) for share in shares])
    pays = gains > 0.0

    def change(index: NDArray[np.intp], needed: NDArray[np.bool_]) -> Array:
        """Rate of the change between a share and the next, by false position (Illinois)."""
        index = np.where(needed, np.minimum(index, NUM_RATES - 1), 0)
        if not np.any(needed):
            return np.zeros(index.shape)
        low, high = shares[index], shares[index + 1]
        below, above = (np.take_along_axis(gains, at[None], axis=0)[0] for at in (index, index + 1))
        for _ in range(_MOST_TRIES):
            apart = np.where(needed, above - below, 1.0)
            middle = np.where(needed, (low * above - high * below) / apart, low)
            value = gain(middle)
            left = (value > 0.0) == (below > 0.0)
            low, high = np.where(left, middle, low), np.where(left, high, middle)
            below, above = (np.where(left, value, 0.5 * below), np.where(left, 0.5 * above, value))
        return np.asarray(middle * largest)

    ever = np.any(pays, axis=0)
    first = np.argmax(pays, axis=0)
    last = NUM_RATES - np.argmax(pays[::-1], axis=0)
    starts = change(np.maximum(first - 1, 0), ever & (first > 0))
    starts = np.where(first == 0, 0.0, starts)
    stops = np.where(
        last == NUM_RATES,
        np.where(carries_more, np.inf, speculative.max_rate_per_s),
        change(last, ever & (last < NUM_RATES)),
    )
    # Beyond what the other server keeps up with, the one that carries more pays in any case.
    late = ~ever & (speculative.max_rate_per_s > without.max_rate_per_s)
    starts = np.where(ever, starts, np.where(late, without.max_rate_per_s, np.inf))
    return starts, np.where(ever, stops, np.where(late, np.inf, 0.0))


class AskedArrival(NamedTuple):
    """Requests that arrive, and the server's limit.

    `output_tokens` is the mean per request. `prefill_s` is the time for which the prefill of one
    request keeps decoding waiting; None: what is not decoding takes the share that it takes in the
    points. `max_running` is the most requests that run at once; None where the user does not say.
    """

    arrival_rate_per_s: float
    output_tokens: float
    prefill_s: float | None = None
    max_running: int | None = None


class ServerTimes(NamedTuple):
    """Times of a server while 1, 2, ... requests run: columns; at the medians first, then draws: rows.

    `form` is ``relative`` or ``physical``. `limit` says where the largest batch comes from.
    `largest_measured` is the largest batch of the points, `non_decode_share` that of the baseline.
    """

    step_s: Array
    round_s: Array
    form: str
    limit: str
    largest_measured: float | None
    non_decode_share: float


def between_batches(batches: Array, values: Array, most_running: int) -> Array:
    r"""Values at every number of running requests, from those at some batches.

    .. math:: y(\ln b)

    Linear between batches in their logarithm, beyond them as at the last. Batches (k,) rise; values are (d, k).
    """
    running = np.log(np.arange(1.0, most_running + 1.0))
    at = np.interp(running, np.log(batches), np.arange(batches.size, dtype=np.float64))
    left = np.minimum(at.astype(np.intp), max(batches.size - 2, 0))
    right = np.minimum(left + 1, batches.size - 1)
    share = at - left
    return np.asarray(values[:, left] * (1.0 - share) + values[:, right] * share)
