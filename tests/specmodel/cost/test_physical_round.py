"""A round from the work of its passes: sums, kinds of drafters, schedules, limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.cost.forward import (
    DeviceRates,
    ForwardWork,
    GraphCapture,
    StepMultipliers,
    step_time,
)
from specmodel.cost.physical_round import SCHEDULES, Drafter, Engine, round_parts
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

TARGET = ForwardWork(
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
DRAFT = ForwardWork(
    weight_bytes=1e9,
    kv_bytes_per_token=1e3,
    flop_per_token=1e9,
    num_allreduces=3,
    allreduce_bytes_per_token=8192,
    num_kernels=30,
    tp_size=8,
)
DEVICE = DeviceRates(bandwidth_bytes_per_s=2.7e12, flop_per_s=5e14)
EAGLE = Drafter(kind="sequential", work=DRAFT, step_host_s=5e-5)


def allreduce_s(message: Array) -> Array:
    return 1e-5 + message / 1e11


def test_the_breakdown_sums_to_the_round() -> None:
    generator = np.random.default_rng(7)
    for schedule in SCHEDULES:
        parts = round_parts(
            TARGET,
            DEVICE,
            num_steps=generator.integers(0, 9, 300),
            drafter=EAGLE,
            topk=generator.integers(1, 5, 300),
            batch_size=generator.integers(1, 200, 300),
            context_tokens=generator.integers(0, 100_000, 300),
            allreduce=allreduce_s,
            engine=Engine(
                round_host_s=1e-3,
                step_host_s=2e-4,
                schedule=schedule,
                capture=GraphCapture(sizes=(8, 64, 256)),
            ),
        )
        terms = parts.terms()
        np.testing.assert_allclose(sum(terms.values()), parts.total_s, rtol=1e-12)
        assert all(np.all(term >= 0) for term in terms.values())


def test_depth_0_is_a_step_without_speculation() -> None:
    engine = Engine(step_host_s=3e-4, round_host_s=9e-4)
    plain = round_parts(TARGET, DEVICE, num_steps=0, batch_size=4, engine=engine)
    step = step_time(TARGET, DEVICE, num_tokens=4, num_requests=4)
    assert float(plain.total_s) == pytest.approx(float(step.total_s) + 3e-4)
    assert float(plain.draft.total_s) == 0


def test_a_free_lookup_drafter_costs_verification_only() -> None:
    lookup = Drafter(kind="lookup", work=None)
    parts = round_parts(TARGET, DEVICE, num_steps=3, drafter=lookup, batch_size=2)
    verify = step_time(TARGET, DEVICE, num_tokens=8, num_requests=2)
    assert float(parts.total_s) == pytest.approx(float(verify.total_s))


def test_a_sequential_drafter_makes_one_extend_and_the_other_steps_decode() -> None:
    measured = Drafter(kind="sequential", work=None, measured_step_s=2e-4, measured_extend_s=5e-4)
    parts = round_parts(TARGET, DEVICE, num_steps=[1, 2, 5], drafter=measured)
    np.testing.assert_allclose(parts.draft.total_s, [5e-4, 7e-4, 13e-4])


def test_a_block_drafter_does_not_pay_for_depth() -> None:
    block = Drafter(kind="parallel", work=ForwardWork(weight_bytes=1e9))
    times = round_parts(TARGET, DEVICE, num_steps=[1, 8], num_draft_tokens=8, drafter=block).draft
    assert times.total_s[0] == times.total_s[1] > 0


def test_a_reduced_vocabulary_shortens_a_draft_step_by_the_head_it_drops() -> None:
    full, reduced = (
        Drafter(kind="sequential", work=ForwardWork(weight_bytes=0.4e9 + size * 4096 * 2))
        for size in (128_256, 32_000)
    )
    saved = (
        round_parts(TARGET, DEVICE, num_steps=3, drafter=full).total_s
        - round_parts(TARGET, DEVICE, num_steps=3, drafter=reduced).total_s
    )
    assert float(saved) == pytest.approx(3 * (128_256 - 32_000) * 4096 * 2 / 2.7e12, rel=1e-3)


def test_a_replicated_draft_trades_collectives_for_reading() -> None:
    """allreduce.md 10.4: 1.4 GB at 1.4 TB/s take 1 ms on each GPU, 0.13 ms and collectives at TP 8."""
    device = DeviceRates(bandwidth_bytes_per_s=1.4e12, flop_per_s=2.5e14)
    work = ForwardWork(
        weight_bytes=1.4e9, num_allreduces=4, allreduce_bytes_per_token=14_336, tp_size=8
    )
    sharded, replicated = (
        round_parts(
            TARGET,
            device,
            num_steps=2,
            drafter=Drafter(kind="sequential", work=each),
            allreduce=25e-6,
        ).draft
        for each in (work, replace(work, tp_size=1, num_allreduces=0))
    )
    assert float(replicated.total_s) == pytest.approx(2e-3)
    assert float(replicated.allreduce_s) == 0
    assert float(sharded.memory_s) == pytest.approx(0.25e-3)
    assert float(sharded.allreduce_s) == pytest.approx(2 * 4 * 25e-6)


def test_a_faster_link_lowers_the_gain_of_speculation() -> None:
    """The direction of rtx6kpro's NCCL to P2P: the plain step gains more than the round per token."""

    def cost(floor_s: float) -> float:
        step, rounds = round_parts(
            TARGET, DEVICE, num_steps=[0, 3], drafter=EAGLE, allreduce=floor_s
        ).total_s
        return float(rounds / step)

    assert cost(7e-6) > cost(27e-6)


def test_the_round_cost_falls_towards_1_at_long_context_when_kv_is_read_once() -> None:
    dense = ForwardWork(weight_bytes=16e9, kv_bytes_per_token=1.3e5, flop_per_token=16e9)
    small = Drafter(kind="sequential", work=ForwardWork(weight_bytes=1e8, flop_per_token=1e8))
    context = np.array([0, 8_192, 131_072])

    def cost(share: float) -> Array:
        many = StepMultipliers(kv_row_share=share)
        args: dict[str, Any] = {"batch_size": 32, "context_tokens": context, "multipliers": many}
        plain = round_parts(dense, DEVICE, num_steps=0, **args).total_s
        return np.asarray(
            round_parts(dense, DEVICE, num_steps=3, drafter=small, **args).total_s / plain
        )

    assert np.all(np.diff(cost(0.0)) < 0)
    assert cost(0.0)[-1] == pytest.approx(1, abs=0.02)
    assert np.all(np.diff(cost(1.0)) > 0)  # Kimi-K2.6 on PCIe
    assert cost(1.0)[-1] > 3


def test_an_overlapped_host_shows_only_beyond_the_gpu() -> None:
    host: dict[str, Any] = {"round_host_s": 1e-3}
    v1 = round_parts(TARGET, DEVICE, num_steps=3, drafter=EAGLE, engine=Engine(**host))
    v2 = round_parts(
        TARGET, DEVICE, num_steps=3, drafter=EAGLE, engine=Engine(schedule="host", **host)
    )
    assert float(v1.total_s - v2.total_s) == pytest.approx(1e-3)
    slow = round_parts(
        TARGET, DEVICE, num_steps=3, drafter=EAGLE, engine=Engine(schedule="host", round_host_s=1.0)
    )
    assert float(slow.total_s) == pytest.approx(1.0)


def test_a_tree_decodes_its_branches_and_extends_over_the_verified_rows() -> None:
    """A pass that only computes takes a time proportional to its tokens."""
    computing = ForwardWork(weight_bytes=0, flop_per_token=1e12)
    tree = Drafter(kind="sequential", work=computing)
    per_token_s = 1e12 / 5e14
    parts = round_parts(
        TARGET, DEVICE, num_steps=3, drafter=tree, topk=4, num_draft_tokens=16, batch_size=2
    )
    assert float(parts.draft.total_s) == pytest.approx((2 * 16 + 2 * (2 * 4)) * per_token_s)


def test_the_first_draft_pass_may_be_another_piece_of_work() -> None:
    drafter = Drafter(
        kind="sequential",
        work=ForwardWork(weight_bytes=1e9),
        extend_work=ForwardWork(weight_bytes=5e9),
    )
    parts = round_parts(TARGET, DEVICE, num_steps=3, drafter=drafter)
    assert float(parts.draft.total_s) == pytest.approx(7e9 / 2.7e12)


def test_the_drafter_may_have_its_own_gpu_links_and_graphs() -> None:
    work = ForwardWork(weight_bytes=2e9, num_allreduces=2, num_kernels=100, tp_size=2)
    parts = round_parts(
        TARGET,
        DEVICE,
        num_steps=1,
        drafter=Drafter(kind="sequential", work=work),
        allreduce=1.0,
        draft_allreduce=1e-5,
        draft_device=DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15, kernel_s=0),
        engine=Engine(draft_capture=GraphCapture(sizes=(), eager_kernel_s=1e-3)),
    ).draft
    assert float(parts.memory_s) == pytest.approx(1e-3)
    assert float(parts.allreduce_s) == pytest.approx(2e-5)
    assert float(parts.total_s) == pytest.approx(0.1, rel=1e-3)  # eager launches


def test_drafting_beside_verification_takes_the_longer_of_both() -> None:
    for step_s, expected in ((1e-6, "verify"), (1.0, "draft")):
        drafter = Drafter(
            kind="sequential", work=None, measured_step_s=step_s, measured_extend_s=step_s
        )
        parts = round_parts(
            TARGET, DEVICE, num_steps=3, drafter=drafter, engine=Engine(schedule="draft")
        )
        longest = 3.0 if expected == "draft" else float(parts.verify.total_s)
        assert float(parts.total_s) == pytest.approx(longest)


def test_verified_rows_move_the_step_that_a_threshold_makes() -> None:
    """A jump at 32 rows shows at batch 32 without speculation and at batch 8 with four rows each."""
    jump: dict[str, Any] = {
        "allreduce": lambda message: np.where(np.asarray(message) > 32 * 8192, 1e-4, 1e-5)
    }
    batch = np.arange(1, 65)
    lookup = Drafter(kind="lookup", work=None)
    plain = round_parts(TARGET, DEVICE, num_steps=0, batch_size=batch, **jump).verify.allreduce_s
    spec = round_parts(
        TARGET, DEVICE, num_steps=3, drafter=lookup, batch_size=batch, **jump
    ).verify.allreduce_s
    assert batch[np.argmax(np.diff(plain))] == 32
    assert batch[np.argmax(np.diff(spec))] == 8


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_steps": -1}, "num_steps"),
        ({"num_steps": 3}, "drafter"),
        ({"num_steps": 0, "batch_size": 0}, "batch_size"),
        ({"num_steps": 0, "topk": 0}, "topk"),
        ({"num_steps": 0, "num_draft_tokens": 0}, "num_draft_tokens"),
        ({"num_steps": float("inf")}, "num_steps"),
    ],
)
def test_an_impossible_round_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        round_parts(TARGET, DEVICE, **arguments)


def test_a_drafter_without_work_or_times_is_refused() -> None:
    with pytest.raises(ParameterError, match="work"):
        Drafter(kind="sequential", work=None, measured_step_s=1e-4)
    with pytest.raises(ParameterError, match="kind"):
        Drafter(kind="telepathy", work=None)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="schedule"):
        Engine(schedule="later")  # type: ignore[arg-type]
