"""The factors of the physical form: what they may do to a time, whatever the rig and the load."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.architecture import preset
from specmodel.errors import ParameterError
from specmodel.model_error import Loads
from specmodel.rig import Rig, eagle3_passes, mtp_passes
from specmodel.rig.factors import FACTORS, factor_sd, log_times, multipliers_of, priced

Array = NDArray[np.float64]

SIGNS = {
    "bandwidth": -1,
    "compute": -1,
    "allreduce": 1,
    "kernels": 1,
    "round_host": 1,
    "spec_host": 1,
    "draft_host": 1,
    "kv_row_share": 1,
}
"""Which way a factor moves every time: faster rates shorten, longer waits lengthen."""

RIGS = {
    "dense": Rig(
        target="Llama-3.1-8B",
        device="H100",
        draft=eagle3_passes(
            preset("Llama-3.1-8B"),
            mlp_width=14336,
            vocab_size=32000,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
        ),
    ),
    "mixture over PCIe": Rig(
        target="Kimi-K2.5",
        device="RTX PRO 6000 Server",
        tp_size=8,
        interconnect="pcie5",
        draft=mtp_passes(preset("DeepSeek-V3")),
    ),
    "hybrid over NVLink": Rig(
        target="Qwen3-Next-80B-A3B",
        device="H100",
        tp_size=4,
        interconnect="nvlink4",
        draft=mtp_passes(preset("Qwen3-Next-80B-A3B")),
    ),
}


def random_loads(seed: int) -> Loads:
    rng = np.random.default_rng(seed)
    depth = np.repeat([0.0, 1.0, 3.0, 7.0], 6)
    tree = (depth > 1) & (rng.uniform(size=24) < 0.3)
    return Loads.of(
        num_steps=depth,
        topk=np.where(tree, 4, 1),
        num_draft_tokens=np.where(tree, 32, depth + 1),
        batch_size=2.0 ** rng.integers(0, 8, 24),
        context_tokens=rng.choice([0, 1024, 32768], 24),
    )


@pytest.mark.parametrize("name", RIGS)
@pytest.mark.parametrize("factor", SIGNS)
def test_a_factor_moves_every_time_one_way(name: str, factor: str) -> None:
    loads = random_loads(1)
    moves = np.zeros((9, len(FACTORS)))
    moves[:, FACTORS.index(factor)] = np.linspace(-2, 2, 9)
    times, _ = log_times(RIGS[name], loads, moves)
    assert np.all(SIGNS[factor] * np.diff(times, axis=0) >= -1e-12)


@pytest.mark.parametrize("name", RIGS)
def test_a_card_with_more_bandwidth_is_never_slower(name: str) -> None:
    rig, loads = RIGS[name], random_loads(2)
    none = np.zeros((1, len(FACTORS)))
    known = rig.gpu.bandwidth_bytes_per_s()
    before = np.full(len(loads), np.inf)
    for more in (0.5, 1.0, 1.3, 4.0):
        card = dataclasses.replace(rig.gpu, memory_bandwidth_bytes_per_s=more * known)
        times, _ = log_times(dataclasses.replace(rig, device=card), loads, none)
        assert np.all(times[0] <= before + 1e-12)
        before = times[0]


@pytest.mark.parametrize("name", RIGS)
def test_times_are_those_of_steps_and_rounds(name: str) -> None:
    rig, loads = RIGS[name], random_loads(3)
    draws = np.zeros((1, len(FACTORS)))
    times, share = log_times(rig, loads, draws)
    factors = multipliers_of(draws)
    for index in range(len(loads)):
        one = loads.take(np.array([index]))
        if one.rounds[0]:
            parts = rig.round_parts(
                one.num_steps,
                one.topk,
                one.num_draft_tokens,
                one.batch_size,
                one.context_tokens,
                multipliers=factors,
            )
            total = float(parts.total_s[0, 0])
            draft = float(parts.draft.total_s[0, 0])
        else:
            step = rig.step_time(one.batch_size, one.context_tokens, multipliers=factors)
            total, draft = float(step.total_s[0, 0]), 0.0
        assert np.exp(times[0, index]) == pytest.approx(total)
        assert share[0, index] == pytest.approx(1 - draft / total)


@pytest.mark.parametrize("name", RIGS)
def test_derivatives_are_the_limit_of_differences(name: str) -> None:
    rig, loads = RIGS[name], random_loads(4)
    rng = np.random.default_rng(4)
    at = 0.3 * rng.standard_normal(len(FACTORS))
    found = priced(rig, loads, at)
    step = 1e-2 * rng.standard_normal(len(FACTORS))
    ends, _ = log_times(rig, loads, np.vstack([at - step, at + step]))
    np.testing.assert_allclose(ends[1] - ends[0], 2 * found.jacobian @ step, atol=2e-4)


def test_a_rig_without_a_draft_model_has_steps_and_no_rounds() -> None:
    alone = dataclasses.replace(RIGS["dense"], draft=None)
    steps = Loads.of(num_steps=0, batch_size=[1, 8])
    assert log_times(alone, steps, np.zeros((1, len(FACTORS))))[0].shape == (1, 2)
    with pytest.raises(ParameterError, match="drafter"):
        log_times(alone, Loads.of(num_steps=3), np.zeros((1, len(FACTORS))))


def test_no_factor_is_known_before_a_measurement_and_the_median_is_one() -> None:
    rig = RIGS["mixture over PCIe"]
    assert np.all(factor_sd(rig) > 0)
    assert factor_sd(rig)[FACTORS.index("allreduce")] == pytest.approx(rig.allreduce_log_sd)
    at_prior = multipliers_of(np.zeros((1, len(FACTORS))))
    for name in FACTORS:
        expected = 0.3 if name == "kv_row_share" else 1.0
        assert float(np.ravel(getattr(at_prior, name))[0]) == pytest.approx(expected)
    with pytest.raises(ParameterError, match="internal"):
        multipliers_of(np.zeros(len(FACTORS)))
