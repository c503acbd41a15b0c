"""Base step time of packaged systems from GPU, model and interconnect alone: no point of theirs is used.

Shapes are facts of the models' configurations. How a checkpoint stores what it does not call
quantised is a judgement: 4-bit checkpoints of mixtures keep all but the routed experts at 16 bits,
those of dense models quantise every linear layer but the head. Where a table leaves the edition of
the RTX PRO 6000 open, the Workstation edition stands in.
"""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from specmodel.cost.forward_work import ForwardWork
from specmodel.cost.step_multipliers import PRIOR_LOG_SD, StepMultipliers
from specmodel.cost.step_time import step_time
from specmodel.cost.typical_rates import KERNELS_PER_LAYER, STEP_HOST_S, typical_rates
from specmodel.hardware import gpu, interconnect

POINTS = Path(__file__).parents[3] / "calibration" / "data" / "points"

FOUR_BIT_GROUP_16 = 4 / 8 + 1 / 16  # nvfp4: one byte of scale per 16 weights
FOUR_BIT_GROUP_32 = 4 / 8 + 2 / 32  # Kimi: one bf16 scale per 32
FOUR_BIT_GROUP_32_BYTE = 4 / 8 + 1 / 32  # mxfp4
FOUR_BIT_GROUP_128 = 4 / 8 + 4 / 128  # awq: scale and zero point per 128
CUSTOM_H100_S, CUSTOM_B200_S = 4.9e-6, 7.5e-6  # one-shot kernels, allreduce.md 6


def say(text: str) -> None:
    """Show a measured number when output is not captured (pytest -s)."""
    sys.stdout.write(text + "\n")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Numbers of a configuration; counts in weights."""

    kind: str
    total: float
    layers: int
    hidden: int
    vocab: int
    tied: bool = False
    dense_layers: int = 0
    experts: int = 0
    per_token: int = 0
    expert_width: int = 0
    latent_inputs: int = 0  # width of the down-projections that every GPU holds


KIMI = Shape(
    kind="latent_moe", total=1026.41e9, layers=61, dense_layers=1, hidden=7168, vocab=163_840,
    experts=384, per_token=8, expert_width=2048, latent_inputs=1536 + 512 + 64,
)  # fmt: skip
GLM_5 = Shape(
    kind="latent_moe", total=743.91e9, layers=78, dense_layers=3, hidden=6144, vocab=154_880,
    experts=256, per_token=8, expert_width=2048, latent_inputs=2048 + 512 + 64,
)  # fmt: skip
DEEPSEEK_R1 = Shape(
    kind="latent_moe", total=671.03e9, layers=61, dense_layers=3, hidden=7168, vocab=129_280,
    experts=256, per_token=8, expert_width=2048, latent_inputs=1536 + 512 + 64,
)  # fmt: skip
DEEPSEEK_V4_FLASH = Shape(
    kind="latent_moe", total=284.33e9, layers=43, hidden=4096, vocab=129_280,
    experts=256, per_token=6, expert_width=2048, latent_inputs=1024 + 512,
)  # fmt: skip
MINIMAX_M2 = Shape(
    kind="moe", total=228.69e9, layers=62, hidden=3072, vocab=200_064,
    experts=256, per_token=8, expert_width=1536,
)  # fmt: skip
QWEN3_30B = Shape(
    kind="moe", total=30.53e9, layers=48, hidden=2048, vocab=151_936,
    experts=128, per_token=8, expert_width=768,
)  # fmt: skip
GEMMA4_26B = Shape(
    kind="moe", total=25.24e9, layers=30, hidden=2816, vocab=262_144, tied=True,
    experts=128, per_token=8, expert_width=704,
)  # fmt: skip
GLM47_FLASH = Shape(
    kind="latent_moe", total=29.94e9, layers=47, dense_layers=1, hidden=2048, vocab=154_880,
    experts=64, per_token=4, expert_width=1536, latent_inputs=768 + 512 + 64,
)  # fmt: skip
LLAMA_70B = Shape(kind="dense", total=70.55e9, layers=80, hidden=8192, vocab=128_256)
LLAMA_8B = Shape(kind="dense", total=8.03e9, layers=32, hidden=4096, vocab=128_256)
QWEN36_27B = Shape(kind="hybrid", total=26.90e9, layers=64, hidden=5120, vocab=248_320)
GEMMA4_31B = Shape(kind="dense", total=30.69e9, layers=60, hidden=5376, vocab=262_144, tied=True)
QWEN3_VL_2B = Shape(kind="dense", total=1.72e9, layers=28, hidden=2048, vocab=151_936, tied=True)
QWEN3_VL_4B = Shape(kind="dense", total=4.02e9, layers=36, hidden=2560, vocab=151_936, tied=True)


@dataclass(frozen=True, kw_only=True)
class System:
    """A packaged table, what it states, and how its checkpoint stores weights, in bytes."""

    table: str
    model: str
    shape: Shape
    device: str
    tp_size: int = 1
    allreduce_s: float = 0.0
    dense_bytes: float = 2.0
    expert_bytes: float = 2.0
    extra_collectives: float = 0.0  # per layer, of decode context parallelism
    variant: str = ""
    states_dtype: bool = True


PCIE5 = interconnect("pcie5").allreduce_floor_s
NO_PEER = interconnect("pcie4 no p2p").allreduce_floor_s
SERVER, WORKSTATION = "RTX PRO 6000 Blackwell Server", "RTX PRO 6000 Blackwell Workstation"


def kimi(table: str, *, extra: float = 0.0) -> System:
    return System(
        table=table, model="Kimi-K2.6", shape=KIMI, device=SERVER, tp_size=8, allreduce_s=PCIE5[8],
        expert_bytes=FOUR_BIT_GROUP_32, extra_collectives=extra,
    )  # fmt: skip


def glm(table: str, *, extra: float = 0.0) -> System:
    return System(
        table=table, model="GLM-5.1", shape=GLM_5, device=SERVER, tp_size=8, allreduce_s=PCIE5[8],
        expert_bytes=FOUR_BIT_GROUP_16, extra_collectives=extra,
    )  # fmt: skip


def glm52(variant: str, dense_bytes: float) -> System:
    return System(
        table="rtx6kpro-glm52", model="GLM-5.2", shape=GLM_5, device=WORKSTATION, tp_size=8,
        allreduce_s=PCIE5[8], dense_bytes=dense_bytes, expert_bytes=FOUR_BIT_GROUP_16, variant=variant,
    )  # fmt: skip


SYSTEMS = (
    kimi("rtx6kpro-kimi-k26-dcp1"),
    kimi("rtx6kpro-kimi-k26-dcp4", extra=1.25),
    kimi("rtx6kpro-kimi-k26-dcp8", extra=1.25),
    glm("rtx6kpro-glm51-dcp1"),
    glm("rtx6kpro-glm51-dcp2", extra=1.25),
    glm("rtx6kpro-glm51-dcp8", extra=1.25),
    glm52("original", 2.0),
    glm52("online MXFP8", 1 + 1 / 32),
    System(
        table="rtx6kpro-minimax-m27", model="MiniMax-M2.7", shape=MINIMAX_M2, device=WORKSTATION,
        tp_size=2, allreduce_s=PCIE5[2], expert_bytes=FOUR_BIT_GROUP_16,
    ),
    System(
        table="sglang-pr4716-llama33-70b", model="Llama-3.3-70B", shape=LLAMA_70B, device="H100",
        tp_size=8, allreduce_s=CUSTOM_H100_S,
    ),
    System(
        table="trtllm-dsr1-b200-mtp", model="DeepSeek-R1", shape=DEEPSEEK_R1, device="B200",
        tp_size=8, allreduce_s=CUSTOM_B200_S, expert_bytes=FOUR_BIT_GROUP_16,
    ),
    System(
        table="vllm-qwen38-27b-rtx6kpro", model="Qwen3.8-27B", shape=QWEN36_27B,
        device=WORKSTATION, dense_bytes=FOUR_BIT_GROUP_16,
    ),
    System(
        table="club3090-qwen36-27b-nvfp4", model="Qwen3.6-27B", shape=QWEN36_27B,
        device="RTX 5090", dense_bytes=FOUR_BIT_GROUP_16,
    ),
    System(
        table="strixhalo-qwen36-27b", model="Qwen3.6-27B", shape=QWEN36_27B,
        device="Strix Halo", dense_bytes=FOUR_BIT_GROUP_128,
    ),
    System(
        table="club3090-gemma4-31b", model="Gemma-4-31B", shape=GEMMA4_31B, device="RTX 3090",
        tp_size=2, allreduce_s=NO_PEER[2], dense_bytes=FOUR_BIT_GROUP_128,
    ),
    System(
        table="club3090-gemma4-26b-a4b", model="Gemma-4-26B-A4B", shape=GEMMA4_26B,
        device="RTX 3090", tp_size=2, allreduce_s=NO_PEER[2],
        dense_bytes=FOUR_BIT_GROUP_128, expert_bytes=FOUR_BIT_GROUP_128,
    ),
    System(
        table="rtx6kpro-dsv4flash-v2", model="DeepSeek-V4-Flash", shape=DEEPSEEK_V4_FLASH,
        device=WORKSTATION, tp_size=2, allreduce_s=PCIE5[2], dense_bytes=1.0,
        expert_bytes=FOUR_BIT_GROUP_32_BYTE, states_dtype=False,
    ),
    System(
        table="rtx6kpro-kimi-k27-dflash", model="Kimi-K2.7-Code", shape=KIMI, device=WORKSTATION,
        tp_size=8, allreduce_s=PCIE5[8], expert_bytes=FOUR_BIT_GROUP_32, variant="DCP1",
        states_dtype=False,
    ),
    System(
        table="angelslim-163-qwen3-30b-a3b", model="Qwen3-30B-A3B", shape=QWEN3_30B, device="H100",
        tp_size=4, allreduce_s=CUSTOM_H100_S, states_dtype=False,
    ),
    System(
        table="vllm-29334-frspec", model="Llama-3.1-8B", shape=LLAMA_8B, device="A100-40GB",
        states_dtype=False,
    ),
    System(
        table="eagle-pr330-glm47-flash", model="GLM-4.7-Flash", shape=GLM47_FLASH, device="H100",
        states_dtype=False,
    ),
    System(
        table="angelslim-h20-qwen3vl-30b-a3b", model="Qwen3-VL-30B-A3B", shape=QWEN3_30B,
        device="H20", states_dtype=False,
    ),
    System(
        table="angelslim-h20-qwen3vl-dense", model="Qwen3-VL-2B", shape=QWEN3_VL_2B, device="H20",
        states_dtype=False,
    ),
    System(
        table="angelslim-h20-qwen3vl-dense", model="Qwen3-VL-4B", shape=QWEN3_VL_4B, device="H20",
        states_dtype=False,
    ),
)  # fmt: skip


def measured_s(system: System) -> float:
    """Step time of the fastest baseline at one request and the shortest context."""
    with (POINTS / f"{system.table}.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["target_model"] == system.model
            and row["batch_size"] in {"", "1"}
            and system.variant in row["variant"]
            and "nf3" not in row["dtype"]
            and row["baseline_tokens_per_s"]
        ]
    shortest = min(float(row["context_tokens"] or 0) for row in rows)
    return 1 / max(
        float(row["baseline_tokens_per_s"])
        for row in rows
        if float(row["context_tokens"] or 0) == shortest
    )


def forward_work(system: System) -> ForwardWork:
    """Work of one forward pass."""
    shape = system.shape
    expert = 3.0 * shape.hidden * shape.expert_width * (shape.layers - shape.dense_layers)
    head = float(shape.vocab) * shape.hidden
    dense = shape.total - shape.experts * expert - head * (1 if shape.tied else 2)
    latent = float(shape.latent_inputs) * shape.hidden * shape.layers
    return ForwardWork(
        weight_bytes=dense * system.dense_bytes + head * 2,
        replicated_bytes=latent * system.dense_bytes,
        expert_bytes=expert * system.expert_bytes,
        num_experts=shape.experts,
        experts_per_token=shape.per_token,
        flop_per_token=2 * (dense + head + shape.per_token * expert),
        expert_flop_per_token=2 * shape.per_token * expert,
        num_allreduces=(2 + system.extra_collectives) * shape.layers + 1,
        allreduce_bytes_per_token=2 * shape.hidden,
        num_kernels=KERNELS_PER_LAYER[shape.kind] * shape.layers,
        tp_size=system.tp_size,
    )


def predicted_s(system: System, multipliers: StepMultipliers) -> np.ndarray:
    """Time of one step at one request."""
    parts = step_time(
        forward_work(system),
        typical_rates(gpu(system.device), "fp16"),
        num_tokens=1,
        allreduce=system.allreduce_s,
        multipliers=multipliers,
    )
    return np.asarray(parts.total_s + STEP_HOST_S * np.asarray(multipliers.round_host))


def prior_draws(number: int) -> StepMultipliers:
    """Draws of the factors that a single step feels."""
    generator = np.random.default_rng(20260901)
    return StepMultipliers(
        **{
            name: np.exp(generator.normal(0.0, PRIOR_LOG_SD[name], number))
            for name in ("bandwidth", "compute", "allreduce", "kernels", "round_host")
        }
    )


@pytest.mark.parametrize("stated", [True, False], ids=["dtype stated", "dtype native"])
def test_a_base_step_is_predicted_from_hardware_and_shape_alone(stated: bool) -> None:
    systems = [each for each in SYSTEMS if each.states_dtype or not stated]
    draws = prior_draws(4000)
    errors, covered = [], []
    for system in systems:
        measured = measured_s(system)
        error = float(predicted_s(system, StepMultipliers())) / measured - 1
        low, high = np.quantile(predicted_s(system, draws), [0.05, 0.95])
        errors.append(error)
        covered.append(low <= measured <= high)
        say(
            f"{system.table:32s}{system.model:18s}{measured * 1e3:7.2f} ms {error:+.0%}"
            f"  {low * 1e3:.1f} to {high * 1e3:.1f}"
        )
    say(
        f"{len(systems)} systems: median error {np.median(np.abs(errors)):.1%}, "
        f"90 % intervals cover {np.mean(covered):.0%}"
    )
    assert len(systems) >= 16
    assert np.median(np.abs(errors)) <= 0.25
    assert np.mean(covered) >= 0.85
