"""A million rounds of the physical form in one call."""

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from specmodel.cost.forward import DeviceRates, ForwardWork, GraphCapture, StepMultipliers
from specmodel.cost.physical_round import Drafter, Engine, round_parts

NUMBER = 1_000_000


def test_a_million_rounds(benchmark: BenchmarkFixture) -> None:
    generator = np.random.default_rng(0)
    target = ForwardWork(
        weight_bytes=20e9,
        expert_bytes=1e9,
        num_experts=128,
        experts_per_token=8,
        kv_bytes_per_token=1e5,
        flop_per_token=44e9,
        expert_flop_per_token=30e9,
        attention_flop_per_pair=1e6,
        num_allreduces=188,
        allreduce_bytes_per_token=8192,
        num_kernels=2000,
        tp_size=8,
    )
    draft = ForwardWork(weight_bytes=1e9, kv_bytes_per_token=1e3, flop_per_token=1e9, tp_size=8)
    depth = generator.integers(0, 9, NUMBER)
    batch = generator.integers(1, 65, NUMBER)
    context = generator.integers(0, 30_000, NUMBER)
    draws = StepMultipliers(
        bandwidth=generator.lognormal(0, 0.1, NUMBER), routing=generator.uniform(0.8, 1, NUMBER)
    )

    def price() -> float:
        parts = round_parts(
            target,
            DeviceRates(bandwidth_bytes_per_s=2.7e12, flop_per_s=5e14),
            num_steps=depth,
            drafter=Drafter(kind="sequential", work=draft),
            batch_size=batch,
            context_tokens=context,
            allreduce=lambda message: 1e-5 + message / 1e11,
            engine=Engine(capture=GraphCapture(sizes=tuple(range(8, 257, 8)))),
            multipliers=draws,
        )
        return float(parts.total_s.mean())

    assert benchmark(price) > 0
