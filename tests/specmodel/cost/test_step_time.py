"""The physical form of a forward pass: limits, monotony, and worked numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.cost.forward import (
    PRIOR_LOG_SD,
    DeviceRates,
    ForwardWork,
    GraphCapture,
    StepMultipliers,
    roofline_parts,
    smooth_maximum,
    step_time,
    typical_rates,
)
from specmodel.cost.relative import expected_experts
from specmodel.errors import ParameterError
from specmodel.hardware import gpu

Array = NDArray[np.float64]

# Kimi-K2.5, TP 8: gigabytes per GPU from allreduce.md 12, put back to the whole group
KIMI = ForwardWork(
    weight_bytes=(1.85 + 0.33 + 8 * (1.31 + 0.66 + 0.29 + 0.10)) * 1e9,
    replicated_bytes=(1.85 + 0.33) * 1e9,
    expert_bytes=1.49e9,  # 60 layers x 44.04 M weights x 0.5625 B
    num_experts=384,
    experts_per_token=8,
    num_allreduces=122,
    allreduce_bytes_per_token=14_336,
    num_kernels=2_950,
    tp_size=8,
)
PRO_6000 = DeviceRates(
    bandwidth_bytes_per_s=0.8 * 1.792e12, flop_per_s=2.5e14, kernel_s=3.6e-3 / 2_950
)


def kimi_allreduce_s(message: Array) -> Array:
    """NCCL 2.29.2 on 8 RTX PRO 6000, microseconds at kibibytes."""
    known_kib, known_us = [14, 16, 32, 64, 128], [27.0, 27.0, 29.0, 34.0, 48.0]
    return np.asarray(np.interp(message / 1024, known_kib, known_us) * 1e-6)


def test_one_token_of_kimi_k25_takes_the_worked_11_ms() -> None:
    parts = step_time(KIMI, PRO_6000, num_tokens=1, allreduce=kimi_allreduce_s)
    assert float(parts.memory_s) == pytest.approx(4.2e-3, abs=0.05e-3)
    assert float(parts.allreduce_s) == pytest.approx(3.3e-3, abs=0.05e-3)
    assert float(parts.host_s) == pytest.approx(3.6e-3, abs=0.05e-3)
    assert float(parts.total_s) == pytest.approx(11.1e-3, abs=0.05e-3)
    assert 1 / float(parts.total_s) == pytest.approx(90, abs=0.5)


def test_verifying_four_tokens_of_kimi_k25_adds_the_worked_weights_and_collectives() -> None:
    one, four = (
        step_time(KIMI, PRO_6000, num_tokens=tokens, allreduce=kimi_allreduce_s)
        for tokens in (1, 4)
    )
    assert float(four.memory_s - one.memory_s) == pytest.approx(3.0e-3, abs=0.05e-3)
    assert 0.5e-3 < float(four.allreduce_s - one.allreduce_s) < 0.85e-3
    assert float(four.total_s) == pytest.approx(14.7e-3, abs=0.15e-3)


def test_experts_read_are_those_of_the_coverage_formula() -> None:
    experts = ForwardWork(
        weight_bytes=0, expert_bytes=1e9, num_experts=512, experts_per_token=10, tp_size=2
    )
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15)
    read = step_time(experts, device, num_tokens=4).expert_memory_s * 2 * 1e12 / 1e9
    assert float(read) == pytest.approx(38.84, abs=0.005)  # moesd2025
    shared = step_time(
        experts, device, num_tokens=16, multipliers=StepMultipliers(routing=0.5)
    ).expert_memory_s
    assert float(shared * 2e3) == pytest.approx(float(expected_experts(4, 512, 10)))


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("A100", 153), ("H100", 295), ("H200", 206), ("B200", 281), ("L40S", 419), ("RTX 4090", 164)],
)
def test_a_dense_step_turns_compute_bound_at_the_published_number_of_tokens(
    name: str, tokens: float
) -> None:
    """theory.md B3: bytes per weight x rate / (2 x bandwidth) at bf16; B200 was counted at 8 TB/s."""
    card = gpu(name)
    bandwidth = 8e12 if name == "B200" else card.bandwidth_bytes_per_s()
    device = DeviceRates(bandwidth_bytes_per_s=bandwidth, flop_per_s=card.flop_per_s("bf16"))
    dense = ForwardWork(weight_bytes=2e9, flop_per_token=2e9)
    parts = step_time(dense, device, num_tokens=tokens)
    assert float(parts.compute_s / parts.memory_s) == pytest.approx(1, rel=0.02)


def test_the_smooth_maximum_is_the_longer_time_in_both_limits() -> None:
    assert float(smooth_maximum(1.0, 1e-3)) == pytest.approx(1)
    assert float(smooth_maximum(0.0, 2.0)) == 2
    assert float(smooth_maximum(0.0, 0.0)) == 0
    assert float(smooth_maximum(3.0, 4.0)) == pytest.approx((81 + 256) ** 0.25)


def test_parts_of_the_roofline_are_its_elasticities() -> None:
    reading, computing, step = 2.0, 1.5, 1e-6
    parts = roofline_parts(reading, computing)
    total = smooth_maximum(reading, computing)
    for index, moved in enumerate(
        ((reading * (1 + step), computing), (reading, computing * (1 + step)))
    ):
        slope = (smooth_maximum(*moved) - total) / step
        assert float(slope) == pytest.approx(float(parts[index]), rel=1e-4)
    assert float(sum(parts)) == pytest.approx(float(total))


def test_kv_is_read_between_once_per_request_and_once_per_row() -> None:
    work = ForwardWork(weight_bytes=0, kv_bytes_per_token=1e5, kv_shards=2, tp_size=4)
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15)

    def kv_s(share: float) -> float:
        return float(
            step_time(
                work,
                device,
                num_tokens=32,
                num_requests=8,
                context_tokens=1000,
                multipliers=StepMultipliers(kv_row_share=share),
            ).kv_memory_s
        )

    once = 8 * 1000 * 1e5 / 2 / 1e12
    assert kv_s(0) == pytest.approx(once)
    assert kv_s(1) == pytest.approx(4 * once)
    assert kv_s(0.5) == pytest.approx(2.5 * once)


def test_attention_computes_every_row_against_every_token_of_context() -> None:
    work = ForwardWork(weight_bytes=0, attention_flop_per_pair=1e6, tp_size=4)
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e14)
    parts = step_time(work, device, num_tokens=32, num_requests=8, context_tokens=1000)
    assert float(parts.compute_s) == pytest.approx(32 * 1000 * 1e6 / 4 / 1e14)


def test_a_step_pays_for_the_next_captured_size() -> None:
    work = ForwardWork(weight_bytes=1e9, flop_per_token=1e11)
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15)
    capture = GraphCapture(sizes=(1, 16, 128))
    stairs = step_time(work, device, num_tokens=[17, 121, 128], capture=capture).total_s
    assert stairs[0] == stairs[1] == stairs[2]
    assert stairs[0] == step_time(work, device, num_tokens=128).total_s
    captured = step_time(work, device, num_tokens=[1, 16], capture=capture).total_s
    assert captured.tolist() == step_time(work, device, num_tokens=[1, 16]).total_s.tolist()


def test_past_the_capture_limit_a_step_takes_its_launches() -> None:
    work = ForwardWork(weight_bytes=1e9, num_kernels=2000)
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15, kernel_s=1e-6)
    capture = GraphCapture(sizes=(64,), eager_kernel_s=50e-6)
    inside, outside = step_time(work, device, num_tokens=[64, 65], capture=capture).total_s
    assert inside == pytest.approx(1e-3 + 2e-3)
    assert outside == pytest.approx(2000 * 50e-6, rel=1e-3)


def test_a_pass_bound_by_work_does_not_notice_the_launches() -> None:
    work = ForwardWork(weight_bytes=1e12, num_kernels=2000)
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15, kernel_s=0)
    capture = GraphCapture(sizes=(), eager_kernel_s=5e-6)
    assert float(step_time(work, device, num_tokens=1, capture=capture).total_s) == pytest.approx(1)


def test_more_tokens_context_or_slower_links_never_make_a_step_faster() -> None:
    work = replace(KIMI, kv_bytes_per_token=7e4, flop_per_token=6.6e10, expert_flop_per_token=4e10)
    times = [
        step_time(
            work,
            PRO_6000,
            num_tokens=np.arange(1, 4097),
            context_tokens=context,
            allreduce=kimi_allreduce_s,
            multipliers=StepMultipliers(allreduce=factor),
        ).total_s
        for context in (0, 10_000)
        for factor in (1.0, 2.0)
    ]
    for one in times:
        assert np.all(np.diff(one) >= 0)
    assert np.all(times[1] > times[0])
    assert np.all(times[2] > times[0])


def test_doubling_the_group_halves_sharded_weights_only() -> None:
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15)
    work = ForwardWork(weight_bytes=10e9, replicated_bytes=2e9, tp_size=2)
    two, four = (
        float(step_time(replace(work, tp_size=size), device, num_tokens=1).total_s)
        for size in (2, 4)
    )
    assert two == pytest.approx(6e-3)
    assert four == pytest.approx(4e-3)


def test_one_gpu_has_no_collectives() -> None:
    alone = replace(KIMI, tp_size=1, kv_shards=1, num_allreduces=0)
    assert float(step_time(alone, PRO_6000, num_tokens=1, allreduce=1.0).allreduce_s) == 0


def test_draws_of_multipliers_are_priced_in_one_call() -> None:
    draws = np.array([0.5, 1.0, 2.0])
    many = step_time(
        KIMI, PRO_6000, num_tokens=4, allreduce=1e-5, multipliers=StepMultipliers(bandwidth=draws)
    )
    for index, draw in enumerate(draws):
        one = step_time(
            KIMI,
            PRO_6000,
            num_tokens=4,
            allreduce=1e-5,
            multipliers=StepMultipliers(bandwidth=float(draw)),
        )
        assert many.total_s[index] == pytest.approx(float(one.total_s))


def test_every_factor_with_a_prior_is_a_multiplier_of_1_by_default() -> None:
    for name, sd in PRIOR_LOG_SD.items():
        assert getattr(StepMultipliers(), name) == 1
        assert sd > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_tokens": 0}, "num_tokens"),
        ({"num_tokens": float("nan")}, "num_tokens"),
        ({"num_tokens": 2, "num_requests": 3}, "num_tokens"),
        ({"num_tokens": 2, "num_requests": 0}, "num_requests"),
        ({"num_tokens": 2, "context_tokens": -1}, "context_tokens"),
        ({"num_tokens": 2, "allreduce": -1e-6}, "allreduce"),
        ({"num_tokens": 2, "allreduce": [1e-6, np.inf]}, "allreduce"),
    ],
)
def test_an_impossible_step_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        step_time(KIMI, PRO_6000, **arguments)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight_bytes", -1),
        ("weight_bytes", float("nan")),
        ("tp_size", 0),
        ("replicated_bytes", 1e15),
        ("experts_per_token", 0),
        ("experts_per_token", 385),
    ],
)
def test_impossible_work_is_refused(field: str, value: float) -> None:
    with pytest.raises(ParameterError, match=field):
        replace(KIMI, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(0, 1), (2, 1), (1, 1)])
def test_captured_sizes_rise(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="rising"):
        GraphCapture(sizes=sizes)


@pytest.mark.parametrize(
    ("name", "value"), [("bandwidth", 0.0), ("kv_row_share", 1.1), ("routing", 2)]
)
def test_an_impossible_multiplier_is_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=name):
        StepMultipliers(**{name: value})


def test_typical_rates_need_an_edition_that_is_known() -> None:
    with pytest.raises(ParameterError, match="bandwidth"):
        typical_rates(gpu("RTX PRO 6000 Blackwell"), "fp16")
