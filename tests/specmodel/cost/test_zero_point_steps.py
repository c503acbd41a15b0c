"""Step and round times of packaged systems from names alone: no point of theirs is used.

What a table states of its system is passed to `Rig`; what it leaves open is judged: the Workstation
edition of the RTX PRO 6000, NVLink on SXM nodes, PCIe 4 without peer access for a pair of RTX 3090.
The Kimi-K2.6 tables state a custom PCIe kernel; elsewhere vLLM's gate decides. Draft heads have the
sizes of their configurations (drafter.md 8); MiniMax's is taken to be like that of MiniMax-M2.5.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from specmodel.architecture import preset
from specmodel.model_error import Loads
from specmodel.physical_fit import PhysicalFit
from specmodel.rig import DraftPasses, Rig, eagle3_passes, mtp_passes
from specmodel.rig.factors import FACTORS, factor_sd, priced

POINTS = Path(__file__).parents[3] / "calibration" / "data" / "points"
HALF = 1.86  # Student's t with 8 degrees of freedom, 95 %
ONE_MEASUREMENT = 0.03
SERVER, WORKSTATION = "RTX PRO 6000 Blackwell Server", "RTX PRO 6000 Blackwell Workstation"

Row = dict[str, str]


def say(text: str) -> None:
    """Show a measured number when output is not captured (pytest -s)."""
    sys.stdout.write(text + "\n")


@dataclass(frozen=True, kw_only=True)
class System:
    """A packaged table and what it states of its system; `draft` where rounds are priced."""

    table: str
    model: str
    device: str
    tp_size: int = 1
    interconnect: str = ""
    kernel: str = ""
    dtype: str = ""
    kv_bytes: float = 2.0
    context_parallel: int = 1
    draft: str = ""
    label: str = ""  # dtype in the table
    variant: str = ""

    @property
    def rig(self) -> Rig:
        return Rig(
            target=self.model,
            device=self.device,
            tp_size=self.tp_size,
            interconnect=self.interconnect,
            allreduce_kernel=self.kernel,
            dtype=self.dtype,
            kv_bytes_per_value=self.kv_bytes,
            context_parallel=self.context_parallel,
            draft=drafts(self.model, self.draft),
        )

    def rows(self) -> list[Row]:
        return [
            row
            for row in points(self.table)
            if row["target_model"] == self.model
            and self.variant in row["variant"]
            and self.label in row["dtype"]
            and row["baseline_tokens_per_s"]
        ]


@cache
def points(table: str) -> tuple[Row, ...]:
    with (POINTS / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def drafts(model: str, kind: str) -> DraftPasses | None:
    target = preset(model)
    if kind == "mtp":
        return mtp_passes(target)
    if kind == "kimi eagle3":
        return eagle3_passes(target, mlp_width=18432, vocab_size=163_840)
    if kind == "minimax eagle3":
        return eagle3_passes(
            target, mlp_width=9216, vocab_size=200_064, num_heads=48, num_kv_heads=48
        )
    if kind == "llama-70b eagle3":
        return eagle3_passes(
            target, mlp_width=16384, vocab_size=32000, num_heads=48, num_kv_heads=8,
            hidden_size=6144,
        )  # fmt: skip
    return None


def kimi(size: int) -> System:
    return System(
        table=f"rtx6kpro-kimi-k26-dcp{size}", model="Kimi-K2.6", device=SERVER, tp_size=8,
        interconnect="pcie5", kernel="engine", dtype="int4", kv_bytes=1, context_parallel=size,
        draft="kimi eagle3",
    )  # fmt: skip


def glm51(size: int) -> System:
    return System(
        table=f"rtx6kpro-glm51-dcp{size}", model="GLM-5.1", device=SERVER, tp_size=8,
        interconnect="pcie5", dtype="nvfp4", kv_bytes=1, context_parallel=size, draft="mtp",
    )  # fmt: skip


def glm52(label: str, variant: str, dtype: str) -> System:
    return System(
        table="rtx6kpro-glm52", model="GLM-5.2", device=WORKSTATION, tp_size=8,
        interconnect="pcie5", dtype=dtype, draft="mtp", label=label, variant=variant,
    )  # fmt: skip


STATED = (
    *(kimi(size) for size in (1, 4, 8)),
    *(glm51(size) for size in (1, 2, 8)),
    glm52("nvfp4 a4", "original", "nvfp4"),
    glm52("nvfp4 a4", "online MXFP8", "nvfp4 mlp + mxfp8"),
    glm52("nvfp4 a16", "original", "nvfp4"),
    glm52("nvfp4 a16", "online MXFP8", "nvfp4 mlp + mxfp8"),
    glm52("mxfp4", "original", "mxfp4"),
    glm52("mxfp4", "online MXFP8", "mxfp4 mlp + mxfp8"),
    System(
        table="rtx6kpro-minimax-m27", model="MiniMax-M2.7", device=WORKSTATION, tp_size=2,
        interconnect="pcie5", dtype="nvfp4", draft="minimax eagle3",
    ),
    System(
        table="sglang-pr4716-llama33-70b", model="Llama-3.3-70B", device="H100", tp_size=8,
        interconnect="nvlink4", dtype="fp16", draft="llama-70b eagle3",
    ),
    System(
        table="trtllm-dsr1-b200-mtp", model="DeepSeek-R1", device="B200", tp_size=8,
        interconnect="nvlink5", dtype="nvfp4", draft="mtp",
    ),
    System(
        table="vllm-qwen38-27b-rtx6kpro", model="Qwen3.8-27B", device=WORKSTATION, dtype="nvfp4",
        draft="mtp",
    ),
    System(
        table="club3090-qwen36-27b-nvfp4", model="Qwen3.6-27B", device="RTX 5090", dtype="nvfp4",
        draft="mtp",
    ),
    System(
        table="strixhalo-qwen36-27b", model="Qwen3.6-27B", device="Strix Halo", dtype="awq",
        draft="mtp",
    ),
    System(
        table="club3090-gemma4-31b", model="Gemma-4-31B", device="RTX 3090", tp_size=2,
        interconnect="pcie4 no p2p", dtype="int4",
    ),
    System(
        table="club3090-gemma4-26b-a4b", model="Gemma-4-26B-A4B", device="RTX 3090", tp_size=2,
        interconnect="pcie4 no p2p", dtype="awq",
    ),
)  # fmt: skip
NATIVE = (
    System(
        table="rtx6kpro-dsv4flash-v2", model="DeepSeek-V4-Flash", device=WORKSTATION, tp_size=2,
        interconnect="pcie5", kv_bytes=1,
    ),
    System(
        table="rtx6kpro-kimi-k27-dflash", model="Kimi-K2.7-Code", device=WORKSTATION, tp_size=8,
        interconnect="pcie5", variant="DCP1",
    ),
    System(
        table="angelslim-163-qwen3-30b-a3b", model="Qwen3-30B-A3B", device="H100", tp_size=4,
        interconnect="nvlink4",
    ),
    System(table="vllm-29334-frspec", model="Llama-3.1-8B", device="A100-40GB"),
    System(table="eagle-pr330-glm47-flash", model="GLM-4.7-Flash", device="H100"),
    System(table="angelslim-h20-qwen3vl-30b-a3b", model="Qwen3-VL-30B-A3B", device="H20"),
    System(table="angelslim-h20-qwen3vl-dense", model="Qwen3-VL-2B", device="H20"),
    System(table="angelslim-h20-qwen3vl-dense", model="Qwen3-VL-4B", device="H20"),
)  # fmt: skip


def number(row: Row, column: str, otherwise: float) -> float:
    return float(row[column] or otherwise)


def interval(rig: Rig, loads: Loads, weights: NDArray[np.float64]) -> tuple[float, float, float]:
    """Central 90 % of what is linear in ln times, before anything was measured."""
    fit = PhysicalFit.from_prior({}, FACTORS, factor_sd(rig))
    mean, covariance = fit.predict(priced(rig, loads, fit.centre()))
    half = HALF * np.sqrt(weights @ covariance @ weights + len(weights) * ONE_MEASUREMENT**2)
    low, median, high = np.exp(weights @ mean + np.array([-half, 0, half])).tolist()
    return low, median, high


def single_requests(system: System) -> list[Row]:
    """Rows of one request at the shortest context."""
    rows = [row for row in system.rows() if row["batch_size"] in {"", "1"}]
    shortest = min(number(row, "context_tokens", 0) for row in rows)
    return [row for row in rows if number(row, "context_tokens", 0) == shortest]


@pytest.mark.parametrize("systems", [STATED, STATED + NATIVE], ids=["dtype stated", "and native"])
def test_a_base_step_is_predicted_from_names_alone(systems: tuple[System, ...]) -> None:
    errors, covered = [], []
    for system in systems:
        rows = single_requests(system)
        measured = 1 / max(float(row["baseline_tokens_per_s"]) for row in rows)
        context = number(rows[0], "context_tokens", 0)
        rig = system.rig
        low, median, high = interval(rig, Loads.of(num_steps=0, context_tokens=context), np.ones(1))
        error = median / measured - 1
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


def round_costs(
    system: System, rows: list[Row]
) -> Iterator[tuple[Row, float, tuple[float, float, float]]]:
    """Rows with a depth, their measured round cost, and its interval from names alone."""
    for row in rows:
        depth = number(row, "num_steps", 0)
        if not depth:
            continue
        measured = (
            float(row["accept_length"])
            * float(row["baseline_tokens_per_s"])
            / float(row["output_tokens_per_s"])
        )
        loads = Loads.of(
            num_steps=[0, depth],
            topk=[1, number(row, "topk", 1)],
            num_draft_tokens=[1, number(row, "num_draft_tokens", depth + 1)],
            batch_size=number(row, "batch_size", 1),
            context_tokens=number(row, "context_tokens", 0),
        )
        yield row, measured, interval(system.rig, loads, np.array([-1.0, 1.0]))


def test_a_round_cost_of_one_request_is_predicted_from_names_alone() -> None:
    """Goal 20 % median; systems whose draft model is not described (Gemma-4 assistants) are left out."""
    tables: dict[str, list[float]] = {}
    inside_of: dict[str, list[bool]] = {}
    medians, covered = [], []
    for system in STATED:
        if not system.draft:
            continue
        errors = []
        for row, measured, (low, median, high) in round_costs(system, single_requests(system)):
            inside = low <= measured <= high
            error = median / measured - 1
            errors.append(abs(error))
            covered.append(inside)
            inside_of.setdefault(system.table, []).append(inside)
            say(
                f"{system.table:28s}{row['dtype']:10.10s}{row['variant']:14.14s}"
                f"depth {row['num_steps']}  {measured:5.2f} {error:+.0%} {'' if inside else 'outside'}"
            )
        medians.append(np.median(errors))
        tables.setdefault(system.table, []).append(float(medians[-1]))
    say(
        f"{len(medians)} systems: median error of round cost {np.median(medians):.1%}, "
        f"90 % intervals cover {np.mean(covered):.0%} of {len(covered)} rows"
    )
    by_table = [np.median(errors) for errors in tables.values()]
    coverage = float(np.mean([np.mean(inside) for inside in inside_of.values()]))
    say(
        f"{len(by_table)} tables: median error of round cost {np.median(by_table):.1%}, "
        f"{coverage:.0%} covered"
    )
    assert coverage >= 0.85
    assert len(by_table) >= 10
    assert np.median(medians) <= 0.20
    assert np.median(by_table) <= 0.20
