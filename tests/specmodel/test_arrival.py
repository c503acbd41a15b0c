"""Running requests at an arrival rate: the closed form of linear steps, and simulated servers."""

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specmodel.arrival import BatchServer, paying_rates_per_s, speedup_at_rate
from specmodel.errors import ParameterError
from tests.extent import sample

Array = NDArray[np.float64]
Table = list[dict[str, str]]

TOKENS, ACCEPT, FIXED, MARGINAL = 512, 2.75, 1.35, 3.6
STEP_S, MORE_S = 0.010, 0.15e-3


def linear(alone_s: float, more_s: float, most: int = 5000) -> Array:
    """Step that every further request makes longer by as much."""
    return np.asarray(alone_s + more_s * np.arange(most))


def worked_servers(most: int = 5000) -> tuple[BatchServer, BatchServer]:
    """Both ways of theory.md B8: t0 is the step of one request, t1 what each further one adds."""
    return (
        BatchServer(linear(STEP_S, MORE_S, most), output_tokens=TOKENS),
        BatchServer(
            linear(FIXED * STEP_S, MARGINAL * MORE_S, most),
            output_tokens=TOKENS,
            accept_length=ACCEPT,
        ),
    )


# --- the closed form ---


class LinearLoad(NamedTuple):
    """Requests on a server whose step is linear in the batch: the means of theory.md B8 [kong2026]."""

    output_tokens: float
    fixed_step_time_s: float
    step_time_per_request_s: float
    prefill_time_s: float = 0.0

    def busy_s(self, accept: float, marginal: float) -> float:
        """Server time that one request takes for itself, which decides the largest rate."""
        decode_s = self.output_tokens / accept * marginal * self.step_time_per_request_s
        return decode_s + self.prefill_time_s

    def latency_s(self, rate: float, accept: float = 1.0) -> float:
        """L = N t0 / tau / (1 - lambda (N t1 / tau + P))."""
        alone_s = self.output_tokens / accept * self.fixed_step_time_s
        return alone_s / (1.0 - rate * self.busy_s(accept, 1.0))

    def crossover_per_s(self, accept: float, fixed: float, marginal: float) -> float:
        """Rate at which latency is equal with and without speculation, where it pays below."""
        gain = accept - fixed
        growth_s = self.output_tokens * self.step_time_per_request_s * (marginal - fixed)
        return gain / (growth_s + self.prefill_time_s * gain)


def test_the_worked_example(cost_table: Callable[[str], Table]) -> None:
    step, spec = worked_servers()
    limitless = [server.max_rate_per_s for server in worked_servers(most=1_000_000)]
    for row in cost_table("kong2026"):
        if row["quantity"] == "speedup":
            found = speedup_at_rate(float(row["arrival_rate_per_s"]), step, spec)
        elif row["quantity"] == "crossover_rate_per_s":
            starts, found = paying_rates_per_s(step, spec)
            assert float(starts) == 0.0
        else:
            found = limitless[row["quantity"] != "max_rate_baseline_per_s"]
        assert float(found) == pytest.approx(float(row["value"]), abs=0.005), row


@given(
    tokens=st.floats(1, 5000),
    alone_s=st.floats(1e-3, 0.1),
    growth=st.floats(0.01, 1.0),
    accept=st.floats(1, 8),
    utilisation=st.floats(0.01, 0.85),
)
def test_linear_steps_give_the_closed_form(
    tokens: float, alone_s: float, growth: float, accept: float, utilisation: float
) -> None:
    load = LinearLoad(
        output_tokens=tokens, fixed_step_time_s=alone_s, step_time_per_request_s=growth * alone_s
    )
    rate = utilisation / load.busy_s(accept, 1.0)
    server = BatchServer(
        linear(alone_s, growth * alone_s), output_tokens=tokens, accept_length=accept
    )
    found = server.at(rate)
    expected_s = load.latency_s(rate, accept)
    assert float(found.decode_latency_s) == pytest.approx(expected_s, rel=1e-6)
    assert float(found.running_requests) == pytest.approx(rate * expected_s, rel=1e-6)
    assert float(found.waiting_s) == pytest.approx(0.0, abs=1e-9 * expected_s)


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_a_little_prefill_gives_the_closed_form(rate: float) -> None:
    prefill_s = 0.002
    load = LinearLoad(
        output_tokens=TOKENS,
        fixed_step_time_s=STEP_S,
        step_time_per_request_s=MORE_S,
        prefill_time_s=prefill_s,
    )
    server = BatchServer(linear(STEP_S, MORE_S), output_tokens=TOKENS, prefill_time_s=prefill_s)
    without = load.latency_s(rate) - float(worked_servers()[0].at(rate).latency_s)
    found = float(server.at(rate).latency_s) - float(worked_servers()[0].at(rate).latency_s)
    assert found == pytest.approx(without, rel=0.02)


@pytest.mark.parametrize(
    ("accept", "fixed", "marginal"), [(2.0, 1.2, 2.5), (3.5, 1.9, 4.5), (1.6, 1.5, 3.0)]
)
def test_the_crossover_is_the_closed_form_s(accept: float, fixed: float, marginal: float) -> None:
    load = LinearLoad(output_tokens=200, fixed_step_time_s=0.02, step_time_per_request_s=1e-3)
    step = BatchServer(linear(0.02, 1e-3), output_tokens=200)
    spec = BatchServer(
        linear(fixed * 0.02, marginal * 1e-3), output_tokens=200, accept_length=accept
    )
    _, stops = paying_rates_per_s(step, spec)
    assert float(stops) == pytest.approx(load.crossover_per_s(accept, fixed, marginal), rel=1e-3)


# --- a simulated server ---


class Simulated(NamedTuple):
    """Mean times of a request."""

    decoding_s: float
    waiting_s: float


def simulate(
    times_s: Array,
    rate: float,
    rounds: Callable[[np.random.Generator], int],
    *,
    prefill_s: float = 0.0,
    count: int = 100_000,
    seed: int = 0,
) -> Simulated:
    """A server that prefills whoever has a place, then makes a step for all of them together."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / rate, count)).tolist()
    steps_s, most = times_s.tolist(), times_s.size
    first, last = count // 10, count - count // 10  # neither an empty server nor one that runs dry
    clock, step, arrived, admitted = 0.0, 0, 0, 0
    running: list[tuple[int, int, float]] = []  # its last step, its number, when its decoding began
    decoding_s = waiting_s = 0.0
    while admitted < count or running:
        if not running and admitted == arrived:
            clock = max(clock, arrivals[arrived])
        while arrived < count and arrivals[arrived] <= clock:
            arrived += 1
        while admitted < arrived and len(running) < most:
            if first <= admitted < last:
                waiting_s += clock - arrivals[admitted]
            clock += prefill_s
            heapq.heappush(running, (step + rounds(rng), admitted, clock))
            admitted += 1
            while arrived < count and arrivals[arrived] <= clock:
                arrived += 1
        clock += steps_s[len(running) - 1]
        step += 1
        while running and running[0][0] <= step:
            _, number, began = heapq.heappop(running)
            if first <= number < last:
                decoding_s += clock - began
    return Simulated(decoding_s / (last - first), waiting_s / (last - first))


def fixed_length(tokens: int) -> Callable[[np.random.Generator], int]:
    """Every request decodes as many tokens, one a step."""
    return lambda rng: tokens  # noqa: ARG005 - the same for all


def any_length(mean: float) -> Callable[[np.random.Generator], int]:
    """Requests of very different lengths."""
    return lambda rng: int(np.ceil(rng.exponential(mean)))


def drafted(tokens: int, chance: float, depth: int) -> Callable[[np.random.Generator], int]:
    """Rounds of a chain whose drafts are each accepted with a chance, until the first that is not."""

    def rounds(rng: np.random.Generator) -> int:
        emitted = 1 + np.minimum(rng.geometric(1.0 - chance, tokens) - 1, depth)
        return int(np.searchsorted(np.cumsum(emitted), tokens) + 1)

    return rounds


BENT = 0.010 * (1.0 + 0.08 * np.minimum(np.arange(300), 15)) + 1e-4 * np.arange(300)
"""Experts: steep at small batches, then flat."""
JUMP = np.where(np.arange(300) < 8, 0.010, 0.018) + 1e-4 * np.arange(300)
"""No captured graph above 8 requests."""


@sample(3)
@pytest.mark.parametrize("rounds", [fixed_length(100), any_length(99.5)], ids=["equal", "any"])
@pytest.mark.parametrize(
    ("times_s", "rate"),
    [(linear(0.01, 1e-3, 300), 5.0), (BENT, 2.0), (BENT, 20.0), (JUMP, 5.0), (JUMP, 12.0)],
    ids=["linear", "bent", "bent, busy", "jump", "jump, busy"],
)
def test_decoding_takes_as_long_as_on_a_simulated_server(
    times_s: Array, rate: float, rounds: Callable[[np.random.Generator], int]
) -> None:
    found = BatchServer(times_s, output_tokens=100).at(rate)
    simulated = simulate(times_s, rate, rounds)
    assert float(found.decode_latency_s) == pytest.approx(simulated.decoding_s, rel=0.025)
    assert float(found.running_requests) == pytest.approx(rate * simulated.decoding_s, rel=0.025)


@sample(2)
@pytest.mark.parametrize("rate", [2.0, 8.0, 12.0])
def test_rounds_of_drafts_take_as_long_as_on_a_simulated_server(rate: float) -> None:
    chance, depth, tokens = 0.7, 4, 300
    accept = (1.0 - chance ** (depth + 1)) / (1.0 - chance)
    times_s = 1.4 * BENT
    found = BatchServer(times_s, output_tokens=tokens, accept_length=accept).at(rate)
    simulated = simulate(times_s, rate, drafted(tokens, chance, depth), count=30_000)
    assert float(found.decode_latency_s) == pytest.approx(simulated.decoding_s, rel=0.025)


@pytest.mark.parametrize(
    ("prefill_s", "rate", "within"), [(0.01, 12.0, 0.02), (0.05, 4.0, 0.03), (0.05, 9.0, 0.05)]
)
def test_prefill_keeps_a_simulated_server_as_busy(
    prefill_s: float, rate: float, within: float
) -> None:
    found = BatchServer(BENT, output_tokens=100, prefill_time_s=prefill_s).at(rate)
    simulated = simulate(BENT, rate, any_length(99.5), prefill_s=prefill_s)
    assert float(found.decode_latency_s) == pytest.approx(simulated.decoding_s, rel=within)


def test_whoever_finds_no_place_waits_as_on_a_simulated_server() -> None:
    times_s = linear(0.01, 1e-4, 12)
    server = BatchServer(times_s, output_tokens=100)
    rate = 0.85 * float(server.max_rate_per_s)
    found = server.at(rate)
    simulated = simulate(times_s, rate, any_length(99.5))
    assert float(found.decode_latency_s) == pytest.approx(simulated.decoding_s, rel=0.02)
    assert float(found.waiting_s) == pytest.approx(simulated.waiting_s, rel=0.15)
    assert float(found.waiting_s) > 0.1 * float(found.decode_latency_s)


# --- limits ---


def test_a_lone_request_takes_its_steps_alone() -> None:
    server = BatchServer(BENT, output_tokens=100, accept_length=2.5)
    assert float(server.at(1e-6).decode_latency_s) == pytest.approx(100 / 2.5 * BENT[0], rel=1e-4)


def test_the_largest_rate_is_the_throughput_of_a_full_server_over_the_tokens_of_a_request() -> None:
    server = BatchServer(JUMP[:64], output_tokens=100, accept_length=2.0)
    assert float(server.max_rate_per_s) == pytest.approx(2.0 * 64 / JUMP[63] / 100)
    prefilling = BatchServer(JUMP[:64], output_tokens=100, accept_length=2.0, prefill_time_s=0.3)
    assert 1 / float(prefilling.max_rate_per_s) == pytest.approx(
        1 / float(server.max_rate_per_s) + 0.3
    )


def test_an_overloaded_server_has_no_place_free_and_no_end_of_waiting() -> None:
    server = BatchServer(JUMP[:64], output_tokens=100)
    largest = float(server.max_rate_per_s)
    found = server.at([0.99 * largest, largest, 2 * largest])
    assert np.isinf(found.waiting_s).tolist() == [False, True, True]
    assert found.running_requests[1:].tolist() == [64.0, 64.0]
    assert found.decode_latency_s[2] == pytest.approx(100 * JUMP[63])
    assert np.isinf(found.latency_s[2])


def test_speculation_that_is_faster_at_every_batch_always_pays() -> None:
    step = BatchServer(BENT, output_tokens=100)
    spec = BatchServer(1.4 * BENT, output_tokens=100, accept_length=2.0)
    starts, stops = paying_rates_per_s(step, spec)
    assert float(starts) == 0.0
    assert np.isinf(stops)


def test_speculation_that_is_slower_at_every_batch_never_pays() -> None:
    step = BatchServer(BENT, output_tokens=100)
    spec = BatchServer(2.5 * BENT, output_tokens=100, accept_length=2.0)
    starts, stops = paying_rates_per_s(step, spec)
    assert np.isinf(starts)
    assert float(stops) == 0.0


def test_a_costly_drafter_may_pay_only_under_load() -> None:
    step = BatchServer(linear(0.01, 2e-3), output_tokens=100)
    spec = BatchServer(linear(0.025, 2.4e-3), output_tokens=100, accept_length=2.2)
    starts, stops = paying_rates_per_s(step, spec)
    below, above = speedup_at_rate([0.9 * starts, 1.1 * starts], step, spec)
    assert below < 1 < above
    assert np.isinf(stops)


def test_of_two_overloaded_servers_neither_is_faster() -> None:
    step, spec = worked_servers(most=100)
    rates = [float(step.max_rate_per_s), 2 * float(spec.max_rate_per_s)]
    carried = speedup_at_rate(1.01 * min(rates), step, spec)
    assert float(carried) in {0.0, np.inf}
    assert np.isnan(speedup_at_rate(10 * max(rates), step, spec))


def test_draws_together_are_draws_one_by_one() -> None:
    rng = np.random.default_rng(0)
    factors = rng.lognormal(0, 0.2, 5)
    accept = 1 + rng.random(5) * 3
    step = BatchServer(factors[:, None] * BENT[:64], output_tokens=100, prefill_time_s=0.01)
    spec = BatchServer(
        1.3 * factors[:, None] * JUMP[:64],
        output_tokens=100,
        accept_length=accept,
        prefill_time_s=0.01,
    )
    together = [*paying_rates_per_s(step, spec), spec.at(4.0).latency_s, spec.max_rate_per_s]
    for draw in range(5):
        one = BatchServer(factors[draw] * BENT[:64], output_tokens=100, prefill_time_s=0.01)
        other = BatchServer(
            1.3 * factors[draw] * JUMP[:64],
            output_tokens=100,
            accept_length=accept[draw],
            prefill_time_s=0.01,
        )
        alone = [*paying_rates_per_s(one, other), other.at(4.0).latency_s, other.max_rate_per_s]
        for first, second in zip(together, alone, strict=True):
            assert first[draw] == pytest.approx(float(second), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("step_time_s", {"step_time_s": []}),
        ("step_time_s", {"step_time_s": 0.01}),
        ("step_time_s", {"step_time_s": [0.01, 0.0]}),
        ("step_time_s", {"step_time_s": [0.01, np.nan]}),
        ("output_tokens", {"output_tokens": 0}),
        ("accept_length", {"accept_length": 0.9}),
        ("prefill_time_s", {"prefill_time_s": -1.0}),
    ],
)
def test_impossible_servers_are_refused(name: str, wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"step_time_s": [0.01], "output_tokens": 100}
    with pytest.raises(ParameterError) as refused:
        BatchServer(**(arguments | wrong))  # type: ignore[arg-type]
    assert refused.value.name == name


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ParameterError, match="arrival_rate_per_s"):
        BatchServer([0.01], output_tokens=100).at(rate)
