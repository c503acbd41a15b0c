"""The physical form, calibrated by its multipliers, against measured surfaces."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares

from specmodel.cost.forward import (
    KERNEL_S,
    KERNELS_PER_LAYER,
    PRIOR_LOG_SD,
    STEP_HOST_S,
    DeviceRates,
    ForwardWork,
    GraphCapture,
    StepMultipliers,
    step_time,
    typical_rates,
)
from specmodel.cost.physical_round import Drafter, Engine, round_parts
from specmodel.hardware import gpu
from tests.extent import extent

Array = NDArray[np.float64]
Table = list[dict[str, str]]


def say(text: str) -> None:
    """Show a measured number when output is not captured (pytest -s)."""
    sys.stdout.write(text + "\n")


def posterior_mode(
    log_prediction: Callable[[Array], Array],
    log_measured: Array,
    centre: Array,
    sd: Array,
    noise: float,
) -> Array:
    """Parameters that fit the logarithms under a normal prior."""

    def residual(parameters: Array) -> Array:
        return np.concatenate(
            [(log_prediction(parameters) - log_measured) / noise, (parameters - centre) / sd]
        )

    return np.asarray(least_squares(residual, centre, x_scale=sd).x)


# --- SGLang pull request 22246: Qwen3-235B-A22B, batch 1 to 64, depth 1 to 6 ---

# The page names neither GPU nor precision nor drafter: fp8 on 8 H200 with an EAGLE-3 layer is a judgement
# that the multipliers correct. Shape: 94 layers, hidden 4096, 64 query and 4 KV heads of 128.
EXPERT = 3.0 * 4096 * 1536 * 94
ATTENTION = 94 * (4096 * 64 * 128 * 2 + 4096 * 4 * 128 * 2 + 4096 * 128.0)
HEAD = 151_936 * 4096.0
QWEN = ForwardWork(
    weight_bytes=ATTENTION + 2 * HEAD,
    expert_bytes=EXPERT,
    num_experts=128,
    experts_per_token=8,
    kv_bytes_per_token=94 * 2 * 4 * 128 * 2,
    kv_shards=4,
    flop_per_token=2 * (ATTENTION + HEAD + 8 * EXPERT),
    expert_flop_per_token=2 * 8 * EXPERT,
    num_allreduces=188,
    allreduce_bytes_per_token=8192,
    num_kernels=94 * KERNELS_PER_LAYER["moe"],
    tp_size=8,
)
DRAFT_LAYER = 2 * 4096 * 64 * 128 + 2 * 4096 * 4 * 128 + 64 * 128 * 4096 + 3 * 4096 * 12_288.0
EAGLE = Drafter(
    kind="sequential",
    work=ForwardWork(
        weight_bytes=2 * (DRAFT_LAYER + 32_000 * 4096),
        flop_per_token=2 * (DRAFT_LAYER + 32_000 * 4096),
        num_allreduces=3,
        allreduce_bytes_per_token=8192,
        num_kernels=30,
        tp_size=8,
    ),
    step_host_s=1e-4,
)
H200 = typical_rates(gpu("H200"), "bf16")
SURFACE_FACTORS = tuple(PRIOR_LOG_SD)
CENTRE = np.append(np.zeros(len(SURFACE_FACTORS)), [0.8, 0.3])
SPREAD = np.append(np.array(list(PRIOR_LOG_SD.values())), [0.6, 0.6])


def nvlink_allreduce_s(message: Array) -> Array:
    """One-shot kernel of an 8-GPU H200 node: 5 us and 7 messages at 300 GB/s (allreduce.md 6)."""
    return np.asarray(5e-6 + 7 * message / 300e9)


def accept_length(first: float, last: float, num_steps: Array) -> Array:
    """First conditional accuracy, then exponential decay to an asymptote (theory.md A3)."""
    first, last = 1 / (1 + np.exp(-first)), 1 / (1 + np.exp(-last))
    position = np.arange(int(num_steps.max()))
    conditional = last + (first - last) * np.exp(-position / 1.5)
    return np.asarray(1 + np.cumsum(np.cumprod(conditional))[num_steps.astype(int) - 1])


def log_throughput(parameters: Array, batch: Array, depth: Array) -> Array:
    values = np.exp(np.minimum(parameters[:-2], 3)).tolist()
    factors = dict(zip(SURFACE_FACTORS, values, strict=True))
    factors["routing"] = min(factors["routing"], 1.5)
    parts = round_parts(
        QWEN,
        H200,
        num_steps=depth,
        drafter=EAGLE,
        batch_size=batch,
        context_tokens=1000,
        allreduce=nvlink_allreduce_s,
        engine=Engine(round_host_s=STEP_HOST_S),
        multipliers=StepMultipliers(**factors),
    )
    accepted = accept_length(parameters[-2], parameters[-1], depth)
    return np.asarray(np.log(batch * accepted / parts.total_s))


def surface_errors(table: Table, used: NDArray[np.bool_] | None = None) -> Array:
    """Relative errors of all cells when the form is fitted to the used ones."""
    batch, depth, rate = (
        np.array([float(row[name]) for row in table])
        for name in ("batch_size", "num_steps", "output_tokens_per_s")
    )
    used = np.ones(rate.size, dtype=bool) if used is None else used
    fitted = posterior_mode(
        lambda parameters: log_throughput(parameters, batch[used], depth[used]),
        np.log(rate[used]),
        CENTRE,
        SPREAD,
        noise=0.02,
    )
    return np.asarray(np.abs(np.exp(log_throughput(fitted, batch, depth)) / rate - 1))


def test_the_sglang_surface_is_fitted_within_2_percent(cost_table: Callable[[str], Table]) -> None:
    errors = surface_errors(cost_table("sglang22246"))
    say(f"fitted: mean {errors.mean():.2%}, worst {errors.max():.1%}")
    assert errors.size == 42
    assert errors.mean() <= 0.020


@pytest.mark.parametrize(
    ("batches", "depths"),
    [((1, 8, 64), (1, 6)), ((1, 8, 64), (2, 5)), ((2, 16, 64), (1, 4)), ((1, 64), (1, 3, 6))],
)
def test_six_cells_that_span_the_surface_predict_the_rest_within_4_percent(
    cost_table: Callable[[str], Table], batches: tuple[int, ...], depths: tuple[int, ...]
) -> None:
    table = cost_table("sglang22246")
    used = np.array(
        [int(r["batch_size"]) in batches and int(r["num_steps"]) in depths for r in table]
    )
    errors = surface_errors(table, used)[~used]
    say(
        f"from batches {batches}, depths {depths}: mean {errors.mean():.2%}, worst {errors.max():.1%}"
    )
    assert used.sum() == 6
    assert errors.mean() <= 0.040


def test_six_cells_at_random_predict_the_rest_within_6_percent_in_most_draws(
    cost_table: Callable[[str], Table],
) -> None:
    table = cost_table("sglang22246")
    generator = np.random.default_rng(5)
    means = []
    for _ in range(extent(test=12, prove=30)):
        used = np.zeros(len(table), dtype=bool)
        used[generator.choice(len(table), 6, replace=False)] = True
        means.append(surface_errors(table, used)[~used].mean())
    say(f"random six: median {np.median(means):.2%}, 90 % within {np.quantile(means, 0.9):.2%}")
    assert np.median(means) <= 0.045
    assert np.quantile(means, 0.9) <= 0.065


# --- vLLM's profile of DeepSeek-V4-Flash on 4 B300: one verify step against its tokens ---

V4_EXPERT = 3.0 * 4096 * 2048 * 43
V4_DENSE = 284.33e9 - 256 * V4_EXPERT - 129_280 * 4096
V4_FLASH = ForwardWork(
    weight_bytes=V4_DENSE,  # fp8, the head among them
    expert_bytes=V4_EXPERT * (4 / 8 + 1 / 32),  # fp4 with a byte of scale per 32
    num_experts=256,
    experts_per_token=6,
    flop_per_token=2 * (V4_DENSE + 6 * V4_EXPERT),
    expert_flop_per_token=12 * V4_EXPERT,
    num_allreduces=87,
    allreduce_bytes_per_token=8192,
    num_kernels=43 * KERNELS_PER_LAYER["latent_moe"],
    tp_size=4,
)
B300 = DeviceRates(
    bandwidth_bytes_per_s=0.8 * gpu("B300").bandwidth_bytes_per_s(),
    flop_per_s=0.5 * gpu("B300").flop_per_s("fp8"),
    kernel_s=KERNEL_S,
)
CAPTURE_LIMIT = 1024
EAGER_KERNEL_S = 25e-6  # a launch from Python, centre of a wide prior: a judgement
STEP_FACTORS = ("bandwidth", "compute", "allreduce", "kernels", "routing")
STEP_SPREAD = np.append([PRIOR_LOG_SD[name] for name in STEP_FACTORS], 1.0)


def verify_s(parameters: Array, tokens: Array, sizes: tuple[int, ...]) -> Array:
    factors = dict(zip(STEP_FACTORS, np.exp(parameters[:-1]), strict=True))
    factors["routing"] = min(factors["routing"], 1.5)
    return step_time(
        V4_FLASH,
        B300,
        num_tokens=tokens,
        allreduce=lambda message: 8e-6 + message * 1.5 / 460e9,  # allreduce.md 6 and 7, 4 B200
        capture=GraphCapture(
            sizes=sizes, eager_kernel_s=EAGER_KERNEL_S * float(np.exp(parameters[-1]))
        ),
        multipliers=StepMultipliers(**factors),
    ).total_s


def verify_curve(table: Table) -> tuple[Array, Array, tuple[int, ...]]:
    rows = [row for row in table if row["phase"] == "verify"]
    tokens = np.array([float(row["size"]) for row in rows])
    measured_s = np.array([float(row["median_ms"]) for row in rows]) * 1e-3
    return tokens, measured_s, tuple(int(size) for size in tokens if size <= CAPTURE_LIMIT)


def test_the_b300_verify_curve_is_fitted_with_its_jump_past_the_capture_limit(
    cost_table: Callable[[str], Table],
) -> None:
    tokens, measured_s, sizes = verify_curve(cost_table("dspark_b300"))
    fitted = posterior_mode(
        lambda parameters: np.log(verify_s(parameters, tokens, sizes)),
        np.log(measured_s),
        np.zeros(STEP_SPREAD.size),
        STEP_SPREAD,
        noise=0.05,
    )
    errors = np.abs(verify_s(fitted, tokens, sizes) / measured_s - 1)
    inside, outside = errors[tokens <= CAPTURE_LIMIT], errors[tokens > CAPTURE_LIMIT]
    say(
        f"inside graphs: mean {inside.mean():.1%}, median {np.median(inside):.1%}, "
        f"worst {inside.max():.1%}; beyond: mean {outside.mean():.1%}, worst {outside.max():.1%}"
    )
    assert inside.size > 80
    assert np.median(inside) <= 0.03
    assert inside.max() <= 0.12
    assert outside.max() <= 0.16
    last, first_eager = verify_s(fitted, np.array([1024.0, 1536.0]), sizes)
    assert first_eager / last == pytest.approx(104.489 / 20.634, rel=0.10)


def test_six_sizes_predict_the_b300_verify_curve_inside_the_graphs(
    cost_table: Callable[[str], Table],
) -> None:
    tokens, measured_s, sizes = verify_curve(cost_table("dspark_b300"))
    used = np.isin(tokens, (1, 8, 32, 128, 512, 1024))
    fitted = posterior_mode(
        lambda parameters: np.log(verify_s(parameters, tokens[used], sizes)),
        np.log(measured_s[used]),
        np.zeros(STEP_SPREAD.size),
        STEP_SPREAD,
        noise=0.05,
    )
    rest = ~used & (tokens <= CAPTURE_LIMIT)
    errors = np.abs(verify_s(fitted, tokens[rest], sizes) / measured_s[rest] - 1)
    say(f"from six sizes: mean {errors.mean():.1%}, worst {errors.max():.1%}")
    assert errors.mean() <= 0.05


# --- MoESD: what the step reads at the published token counts ---


def test_moesd_coverage_drives_the_expert_reads_exactly(cost_table: Callable[[str], Table]) -> None:
    device = DeviceRates(bandwidth_bytes_per_s=1e12, flop_per_s=1e15)
    rows = [row for row in cost_table("moesd2025") if row["quantity"] == "active_experts"]
    assert len(rows) == 8
    for row in rows:
        work = ForwardWork(
            weight_bytes=0,
            expert_bytes=1e9,
            num_experts=int(row["num_experts"]),
            experts_per_token=int(row["experts_per_token"]),
        )
        read_s = step_time(work, device, num_tokens=float(row["num_tokens"])).expert_memory_s
        decimals = len(row["value"].partition(".")[2])
        assert float(read_s) * 1e3 == pytest.approx(float(row["value"]), abs=0.5001 * 10**-decimals)
