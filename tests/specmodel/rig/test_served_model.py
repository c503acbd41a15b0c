"""A rig hands its model, GPUs and link to the cost model, and refuses what cannot be."""

from typing import Any

import numpy as np
import pytest

from specmodel.architecture import preset
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.cost.forward import StepMultipliers
from specmodel.cost.physical_round import Drafter, Engine
from specmodel.cost.relative import expected_experts
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError
from specmodel.rig import Rig, eagle3_passes, mtp_passes, served_model
from specmodel.rig.served_model import LINK_CLASSES, link_prior
from tests.extent import sample

LLAMA = Rig(target="Llama-3.1-8B", device="H100", draft=Drafter(kind="lookup", work=None))
QWEN = Rig(target="Qwen3-30B-A3B", device="H100", tp_size=4, interconnect="nvlink4")


def test_a_step_of_a_dense_model_streams_its_weights() -> None:
    parts = LLAMA.step_time()
    bandwidth = 0.8 * 3.35e12
    assert float(parts.dense_memory_s) == pytest.approx(15.01e9 / bandwidth, rel=0.01)


def test_a_round_of_depth_0_is_a_step() -> None:
    step = LLAMA.step_time([1, 8], 1000).total_s
    np.testing.assert_allclose(step, LLAMA.round_parts(0, 1, 1, [1, 8], 1000).total_s)


def test_experts_read_follow_the_coverage() -> None:
    times = QWEN.step_time([1, 64]).expert_memory_s
    touched = expected_experts([1, 64], 128, 8)
    assert times[1] / times[0] == pytest.approx(touched[1] / touched[0], rel=0.02)


def test_contexts_are_priced_apart_and_put_back_in_order() -> None:
    contexts = [[8192, 0, 100], [0, 8192, 300]]
    batch = [[1, 2, 3], [4, 5, 6]]
    together = LLAMA.round_parts(3, batch_size=batch, context_tokens=contexts).total_s
    apart = [
        [float(LLAMA.round_parts(3, 1, None, b, c).total_s) for b, c in zip(*row, strict=True)]
        for row in zip(batch, contexts, strict=True)
    ]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@sample(6)
@pytest.mark.parametrize("block", [1, 7, 10_000])
@pytest.mark.parametrize(
    "target",
    ["Llama-3.1-8B", "gpt-oss-120b", "Qwen3-Next-80B-A3B", "Kimi-K2.5", "DeepSeek-V4-Flash"],
)
def test_a_grid_is_what_its_cells_are_one_by_one(
    target: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(
        target=target,
        device="B300",
        tp_size=8,
        interconnect="nvlink5",
        draft=mtp_passes(preset(target)),
    )
    depth, topk = np.array([0, 1, 4])[:, None, None], 2
    batch, context = np.array([1.0, 48.0])[:, None], np.array([0.0, 900.0, 1e5])
    factors = {"bandwidth": np.array([0.9, 1.2]), "routing": np.array([0.8, 1.0])}
    monkeypatch.setattr(served_model, "BLOCK", block)
    together = rig.round_parts(
        depth, topk, depth + 3, batch, context, multipliers=StepMultipliers(**factors)
    ).total_s
    assert together.shape == (2, 3, 2, 3)
    for draw, row, column, last in np.ndindex(together.shape):
        alone = rig.round_parts(
            float(depth[row, 0, 0]),
            topk,
            float(depth[row, 0, 0]) + 3,
            float(batch[column, 0]),
            float(context[last]),
            multipliers=StepMultipliers(
                **{name: float(values[draw]) for name, values in factors.items()}
            ),
        ).total_s
        assert together[draw, row, column, last] == pytest.approx(float(alone), rel=1e-12)


def test_draws_are_a_first_axis_and_agree_with_one_at_a_time() -> None:
    draws = StepMultipliers(bandwidth=np.array([0.8, 1.1, 1.2]))
    together = LLAMA.step_time([1, 16], [[0], [900]], multipliers=draws).total_s
    assert together.shape == (3, 2, 2)
    bandwidth = np.asarray(draws.bandwidth)
    one = LLAMA.step_time(16, 900, multipliers=StepMultipliers(bandwidth=float(bandwidth[1])))
    many = LLAMA.step_time(16, 900, multipliers=StepMultipliers(bandwidth=bandwidth))
    assert many.total_s[1] == pytest.approx(float(one.total_s))


def test_a_window_bounds_what_is_read_of_the_cache() -> None:
    rig = Rig(target="gpt-oss-20b", device="H100")
    assert rig.forward_work(100_000).kv_bytes_per_token == pytest.approx(
        0.5 * rig.forward_work(64).kv_bytes_per_token, rel=0.01
    )


def test_a_latent_cache_is_read_whole_by_every_gpu_and_heads_are_not() -> None:
    assert QWEN.forward_work(1000).kv_shards == 4
    latent = Rig(target="DeepSeek-V3", device="H200", tp_size=8, interconnect="nvlink4")
    assert latent.forward_work(1000).kv_shards == 1


def test_a_measured_curve_goes_before_the_prior_and_is_surer() -> None:
    curve = AllReduceCurve.from_points([1024, 1_048_576], [50e-6, 90e-6])
    measured = Rig(
        target="Qwen3-30B-A3B", device="H100", tp_size=4, interconnect="nvlink4", allreduce=curve
    )
    assert float(measured.step_time().allreduce_s) > 5 * float(QWEN.step_time().allreduce_s)
    assert measured.allreduce_log_sd < QWEN.allreduce_log_sd


def test_a_replicated_draft_makes_no_collective() -> None:
    draft = mtp_passes(preset("GLM-5.1"))
    common: dict[str, Any] = {
        "target": "GLM-5.1",
        "device": "H200",
        "tp_size": 8,
        "interconnect": "nvlink4",
        "dtype": "fp8",
        "draft": draft,
    }
    split, whole = Rig(**common), Rig(**common, draft_tp_size=1)
    assert float(split.round_parts(3).draft.allreduce_s) > 0
    assert float(whole.round_parts(3).draft.allreduce_s) == 0
    assert whole.round_parts(3).draft.memory_s > split.round_parts(3).draft.memory_s


def test_the_projection_of_eagle_3_is_read_once_a_round() -> None:
    draft = eagle3_passes(
        preset("Llama-3.1-8B"), mlp_width=14336, vocab_size=32000, num_heads=32, num_kv_heads=8
    )
    rig = Rig(target="Llama-3.1-8B", device="H100", draft=draft, engine=Engine())
    times = rig.round_parts([1, 2, 3]).draft.dense_memory_s
    first, later = times[0], times[1] - times[0]
    assert times[2] - times[1] == pytest.approx(later)
    assert first - later == pytest.approx(3 * 4096 * 4096 * 2 / (0.8 * 3.35e12), rel=0.02)


def test_links_of_the_catalogue_find_their_class() -> None:
    assert link_prior("PCIe 4.0 x16 without peer access", 2).interconnect == "pcie_no_peer_access"
    for begin, link in LINK_CLASSES:
        assert link_prior(link, 4).interconnect == link
        assert begin
    assert link_prior("pcie5", 8).kernel == "nccl"
    assert link_prior("pcie5", 2).kernel == "engine"


@pytest.mark.parametrize(
    ("name", "what"),
    [("zigbee", "unknown interconnect"), ("NVLink 2, V100 SXM2", "unknown class of all-reduces")],
)
def test_a_link_that_cannot_be_priced_is_answered_with_those_that_can(name: str, what: str) -> None:
    with pytest.raises(UnknownKeyError, match=f"{what}.*; known: pcie5, .*nvlink4"):
        link_prior(name, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": "no such model"},
        {"device": "no such card"},
        {"device": "RTX PRO 6000"},
        {"tp_size": 0},
        {"tp_size": 8},
        {"tp_size": 8, "interconnect": "xgmi"},
        {"tp_size": 8, "interconnect": "string"},
        {"tp_size": 2, "interconnect": "pcie5", "allreduce_kernel": "mpi"},
        {"dtype": "fp7"},
        {"kv_bytes_per_value": 0},
        {"context_parallel": 2},
        {"draft_tp_size": 3},
        {"usable_share": 0},
        {"usable_share": 0.1},
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecModelError) as caught:
        Rig(**{"target": "Llama-3.1-8B", "device": "H100", **wrong})
    assert isinstance(caught.value, ParameterError | UnknownKeyError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_steps": -1},
        {"num_steps": 2, "topk": 0},
        {"num_steps": 2, "batch_size": 0},
        {"num_steps": 2, "context_tokens": -1},
        {"num_steps": 2, "context_tokens": np.nan},
        {"num_steps": 2, "context_tokens": np.inf},
        {"num_steps": []},
    ],
)
def test_impossible_rounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        LLAMA.round_parts(**wrong)


def test_a_round_without_a_draft_model_is_refused() -> None:
    with pytest.raises(ParameterError, match="drafter"):
        QWEN.round_parts(2)
