from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.errors import ParameterError
from specmodel.queueing import (
    ServingLoad,
    crossover_rate_per_s,
    decode_latency_s,
    max_arrival_rate_per_s,
    running_requests,
    speedup_at_rate,
)

Table = list[dict[str, str]]

WORKED = ServingLoad(output_tokens=512, fixed_step_time_s=0.010, step_time_per_request_s=0.15e-3)
ACCEPT, FIXED, MARGINAL = 2.75, 1.35, 3.6


def test_the_worked_example(cost_table: Callable[[str], Table]) -> None:
    for row in cost_table("kong2026"):
        if row["quantity"] == "speedup":
            found = speedup_at_rate(
                float(row["arrival_rate_per_s"]),
                WORKED,
                accept_length=ACCEPT,
                fixed_round_cost=FIXED,
                marginal_round_cost=MARGINAL,
            )
        elif row["quantity"] == "crossover_rate_per_s":
            found = crossover_rate_per_s(
                WORKED, accept_length=ACCEPT, fixed_round_cost=FIXED, marginal_round_cost=MARGINAL
            )
        elif row["quantity"] == "max_rate_baseline_per_s":
            found = max_arrival_rate_per_s(WORKED)
        else:
            found = max_arrival_rate_per_s(
                WORKED, accept_length=ACCEPT, marginal_round_cost=MARGINAL
            )
        assert float(found) == pytest.approx(float(row["value"]), abs=0.005), row


def simulated_latency_s(rate: float, load: ServingLoad, seed: int) -> float:
    """Poisson arrivals; a prefill stops decoding; every step gives each running request one token."""
    rng = np.random.default_rng(seed)
    count = 5000
    arrivals = np.cumsum(rng.exponential(1 / rate, count)).tolist()
    clock, arrived, finished = 0.0, 0, 0
    running: list[tuple[float, int]] = []  # start of decoding, last step
    step, total_s = 0, 0.0
    while finished < count:
        if not running and arrivals[arrived] > clock:
            clock = arrivals[arrived]
        while arrived < count and arrivals[arrived] <= clock:
            clock += load.prefill_time_s
            running.append((clock, step + int(load.output_tokens)))
            arrived += 1
        clock += load.fixed_step_time_s + load.step_time_per_request_s * len(running)
        step += 1
        while running and running[0][1] == step:  # first in, first out: all ask for as many tokens
            total_s += clock - running.pop(0)[0]
            finished += 1
    return total_s / count


@pytest.mark.parametrize(("rate", "prefill_s"), [(10, 0), (40, 0), (70, 0), (10, 0.02), (22, 0.02)])
def test_latency_is_that_of_a_simulated_server(rate: float, prefill_s: float) -> None:
    load = ServingLoad(
        output_tokens=64,
        fixed_step_time_s=0.010,
        step_time_per_request_s=0.15e-3,
        prefill_time_s=prefill_s,
    )
    simulated = simulated_latency_s(rate, load, seed=0)
    assert float(decode_latency_s(rate, load)) == pytest.approx(simulated, rel=0.07)


loads = st.builds(
    ServingLoad,
    output_tokens=st.floats(1, 5000),
    fixed_step_time_s=st.floats(1e-3, 0.1),
    step_time_per_request_s=st.floats(1e-5, 1e-2),
    prefill_time_s=st.floats(0, 1),
)
accept_lengths = st.floats(1.0, 8.0)
costs = st.floats(0.5, 10.0)


@given(loads, st.floats(0.0, 0.99), accept_lengths, st.tuples(costs, costs))
def test_latency_is_consistent_with_the_batch_that_it_makes(
    load: ServingLoad, utilisation: float, accept: float, cost: tuple[float, float]
) -> None:
    fixed, marginal = cost
    rate = utilisation * float(
        max_arrival_rate_per_s(load, accept_length=accept, marginal_round_cost=marginal)
    )
    found_s = float(
        decode_latency_s(
            rate,
            load,
            accept_length=accept,
            fixed_round_cost=fixed,
            marginal_round_cost=marginal,
        )
    )
    batch = rate * found_s
    round_s = fixed * load.fixed_step_time_s + marginal * load.step_time_per_request_s * batch
    decoding_share = 1 - rate * load.prefill_time_s
    assert found_s == pytest.approx(
        load.output_tokens / accept * round_s / decoding_share, rel=1e-6
    )


@given(loads, accept_lengths, st.tuples(costs, costs))
def test_at_the_crossover_both_latencies_are_equal(
    load: ServingLoad, accept: float, cost: tuple[float, float]
) -> None:
    fixed, marginal = cost
    given_costs = {"fixed_round_cost": fixed, "marginal_round_cost": marginal}
    rate = float(crossover_rate_per_s(load, accept_length=accept, **given_costs))
    if not np.isfinite(rate):
        return
    assert rate <= max_arrival_rate_per_s(load) * (1 + 1e-9)
    if abs(accept - marginal) < 1e-3 or abs(accept - fixed) < 1e-3:
        return
    around = [
        float(np.log(speedup_at_rate(rate * factor, load, accept_length=accept, **given_costs)))
        for factor in (1 - 1e-6, 1 + 1e-6)
    ]
    assert around[0] * around[1] <= 0
    assert (around[0] > 0) == (accept > fixed)


def test_speculation_that_saves_at_every_load_has_no_crossover() -> None:
    always = crossover_rate_per_s(
        WORKED, accept_length=3.0, fixed_round_cost=1.4, marginal_round_cost=2.0
    )
    never = crossover_rate_per_s(
        WORKED, accept_length=1.5, fixed_round_cost=1.6, marginal_round_cost=2.0
    )
    assert np.isinf(always)
    assert np.isinf(never)


def test_a_costly_drafter_may_pay_only_under_load() -> None:
    costs_of_round = {"fixed_round_cost": 2.3, "marginal_round_cost": 1.2}
    rate = float(crossover_rate_per_s(WORKED, accept_length=2.1, **costs_of_round))
    below, above = speedup_at_rate(
        [0.9 * rate, 1.1 * rate], WORKED, accept_length=2.1, **costs_of_round
    )
    assert below < 1 < above
    equal = crossover_rate_per_s(
        WORKED, accept_length=2.3, fixed_round_cost=2.3, marginal_round_cost=1.2
    )
    assert float(equal) == 0.0


def test_without_load_the_speedup_is_accept_length_over_round_cost() -> None:
    found = speedup_at_rate(
        0.0, WORKED, accept_length=ACCEPT, fixed_round_cost=FIXED, marginal_round_cost=MARGINAL
    )
    assert float(found) == pytest.approx(ACCEPT / FIXED, rel=1e-12)
    assert float(running_requests(0.0, WORKED)) == 0.0


def test_an_overloaded_server_never_answers() -> None:
    limit = float(max_arrival_rate_per_s(WORKED))
    found = decode_latency_s([limit * 0.999, limit, limit * 1.5], WORKED)
    assert np.isfinite(found).tolist() == [True, False, False]
    assert running_requests(limit, WORKED) == np.inf


def test_prefill_lowers_the_rate_that_a_server_keeps_up_with() -> None:
    with_prefill = ServingLoad(
        output_tokens=512,
        fixed_step_time_s=0.010,
        step_time_per_request_s=0.15e-3,
        prefill_time_s=0.2,
    )
    assert 1 / float(max_arrival_rate_per_s(with_prefill)) == pytest.approx(512 * 0.15e-3 + 0.2)


def test_a_rate_that_overloads_one_way_gives_a_bound_and_both_ways_is_refused() -> None:
    between = speedup_at_rate(
        11.0, WORKED, accept_length=ACCEPT, fixed_round_cost=FIXED, marginal_round_cost=MARGINAL
    )
    assert float(between) == 0.0
    relieved = speedup_at_rate(
        14.0, WORKED, accept_length=3.0, fixed_round_cost=1.4, marginal_round_cost=2.0
    )
    assert float(relieved) == np.inf
    with pytest.raises(ParameterError, match=r"arrival_rate_per_s must be below 13\.02"):
        speedup_at_rate(
            [1.0, 14.0],
            WORKED,
            accept_length=ACCEPT,
            fixed_round_cost=FIXED,
            marginal_round_cost=MARGINAL,
        )


def test_scalars_and_arrays_agree() -> None:
    rates, accept = [0.5, 4.0, 8.0], [1.5, 2.5, 3.0]
    together = speedup_at_rate(
        rates, WORKED, accept_length=accept, fixed_round_cost=FIXED, marginal_round_cost=MARGINAL
    )
    for row, (rate, length) in enumerate(zip(rates, accept, strict=True)):
        alone = speedup_at_rate(
            rate, WORKED, accept_length=length, fixed_round_cost=FIXED, marginal_round_cost=MARGINAL
        )
        assert float(together[row]) == pytest.approx(float(alone), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output_tokens", 0.0),
        ("fixed_step_time_s", -1.0),
        ("step_time_per_request_s", 0.0),
        ("prefill_time_s", -0.1),
        ("prefill_time_s", np.nan),
    ],
)
def test_impossible_loads_are_refused(name: str, value: float) -> None:
    arguments = {
        "output_tokens": 512.0,
        "fixed_step_time_s": 0.01,
        "step_time_per_request_s": 1e-4,
        "prefill_time_s": 0.0,
    }
    with pytest.raises(ParameterError) as refused:
        ServingLoad(**(arguments | {name: value}))
    assert refused.value.name == name


def test_impossible_rates_and_costs_are_refused() -> None:
    with pytest.raises(ParameterError, match="arrival_rate_per_s"):
        decode_latency_s(-1.0, WORKED)
    with pytest.raises(ParameterError, match="accept_length"):
        max_arrival_rate_per_s(WORKED, accept_length=0.5)
    with pytest.raises(ParameterError, match="marginal_round_cost"):
        max_arrival_rate_per_s(WORKED, marginal_round_cost=0.0)
    with pytest.raises(ParameterError, match="fixed_round_cost"):
        decode_latency_s(1.0, WORKED, fixed_round_cost=np.inf)
