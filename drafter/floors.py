"""Bytes of a draft step and the time below which no device can make it."""

from dataclasses import dataclass
from typing import Final

from drafter.spec import DraftSpec
from specmodel.errors import ParameterError
from specmodel.hardware import Gpu

BF16_BYTES = 2
"""Stored width of a weight or a cached value that public draft models are served with. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWeights:
    """Parameters of the matrices, each read once in a pass; norms are left out."""

    attention_inputs: int
    attention_output: int
    mlp: int
    head: int
    fusion: int

    @property
    def step(self) -> int:
        """Parameters that a decode step reads, without the fusion, [-]."""
        return self.attention_inputs + self.attention_output + self.mlp + self.head

    @property
    def head_share(self) -> float:
        """Share of the head in a decode step, in (0, 1), [-]."""
        return self.head / self.step


def step_weights(spec: DraftSpec) -> StepWeights:
    """Parameters of each part.

    .. math:: P = 2H (N_H + 2 N_{KV}) D + N_H D H + 3 H I + V_d H

    .. math:: P_{MLA} = 2H (l_q + l_{kv} + r) + l_q N_H (n + r) + l_{kv} N_H (n + v)
              + N_H v H + 3 H I + V_d H

    Only the first projections see the embedding beside the hidden state, hence :math:`2H`. Norms, biases
    and the one gathered row of the embedding are under 0.2 MB and left out.
    """
    hidden, latent = spec.hidden_size, spec.latent
    if latent is None:
        inputs = 2 * hidden * (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        output = spec.num_heads * spec.head_dim * hidden
    else:
        inputs = (
            2 * hidden * (latent.query_rank + latent.kv_rank + latent.rope_dim)
            + latent.query_rank * spec.num_heads * (latent.nope_dim + latent.rope_dim)
            + latent.kv_rank * spec.num_heads * (latent.nope_dim + latent.value_dim)
        )
        output = spec.num_heads * latent.value_dim * hidden
    fused = spec.num_aux_states * spec.target_hidden_size * hidden
    return StepWeights(
        attention_inputs=inputs,
        attention_output=output,
        mlp=3 * hidden * spec.mlp_width,
        head=spec.draft_vocab_size * hidden,
        fusion=fused if spec.use_aux_hidden_state else 0,
    )


def cached_values_per_token(spec: DraftSpec) -> int:
    """Values that the cache holds for a token.

    A draft model has one layer, so this is all it caches.
    """
    if spec.latent is not None:
        return spec.latent.kv_rank + spec.latent.rope_dim
    return 2 * spec.num_kv_heads * spec.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a decode step moves and computes."""

    weight_bytes: int
    cache_bytes: int
    extend_bytes: int
    flop: int

    @property
    def step_bytes(self) -> int:
        """Bytes that a decode step reads, [B]."""
        return self.weight_bytes + self.cache_bytes


def step_work(
    spec: DraftSpec, *, context_tokens: int = 0, batch_size: int = 1, value_bytes: int = BF16_BYTES
) -> StepWork:
    """Bytes and operations of a decode step with one token a request.

    :math:`a` are the products of attention for a cached token: :math:`2 N_H D` for grouped heads,
    :math:`N_H (2 l_{kv} + r)` for latent ones that attend in the latent space. Weights are read once
    for the batch, the cache once for each request.
    """
    if context_tokens < 0:
        raise ParameterError("context_tokens", context_tokens, "at least 0")
    if batch_size < 1:
        raise ParameterError("batch_size", batch_size, "at least 1")
    if value_bytes not in {1, 2, 4, 8}:
        raise ParameterError("value_bytes", value_bytes, "1, 2, 4 or 8")
    weights = step_weights(spec)
    seen = (
        context_tokens if spec.sliding_window is None else min(context_tokens, spec.sliding_window)
    )
    # multiplications that a query spends on one cached token
    products = 2 * spec.num_heads * spec.head_dim
    if spec.latent is not None:
        products = spec.num_heads * (2 * spec.latent.kv_rank + spec.latent.rope_dim)
    return StepWork(
        weight_bytes=value_bytes * weights.step,
        cache_bytes=batch_size * seen * value_bytes * cached_values_per_token(spec),
        extend_bytes=value_bytes * weights.fusion,
        flop=batch_size * 2 * (weights.step + seen * products),
    )


USUAL_GPUS: Final = ("H200", "H100", "RTX PRO 6000 WS", "RTX 4090")
"""Devices that a floor is shown for where none is named; names of the catalogue."""

USUAL_CONTEXT_TOKENS: Final = 2048
"""Context that a floor is shown for where none is named. [tokens]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Least time of a draft step on a device."""

    gpu: Gpu
    work: StepWork
    datasheet_s: float
    measured_s: float | None
    extend_adds_s: float
    compute_bound: bool


def step_floor(
    spec: DraftSpec, gpu: Gpu, *, context_tokens: int = USUAL_CONTEXT_TOKENS, batch_size: int = 1
) -> Floor:
    """Least time of a decode step in bf16.

    A bound, not an estimate: kernels, launches and the embedding's row come on top, and no kernel reads
    at the full rate of the datasheet. Where the whole model fits in the L2 cache and stays there, a step
    can be faster; after a pass of the target it does not. Without a bf16 rate only memory counts.
    """
    work = step_work(spec, context_tokens=context_tokens, batch_size=batch_size)
    bandwidth = gpu.bandwidth_bytes_per_s()
    computing_s = (
        work.flop / gpu.dense_flop_per_s["bf16"] if "bf16" in gpu.dense_flop_per_s else 0.0
    )
    reading_s = work.step_bytes / bandwidth
    measured = gpu.measured_read_bandwidth_bytes_per_s
    return Floor(
        gpu=gpu,
        work=work,
        datasheet_s=max(reading_s, computing_s),
        measured_s=None if measured is None else max(work.step_bytes / measured, computing_s),
        extend_adds_s=work.extend_bytes / bandwidth,
        compute_bound=computing_s > reading_s,
    )


def memory_bound_tokens(gpu: Gpu) -> float:
    """Tokens of a step up to which reading the weights takes longer than computing on them.

    .. math:: T = f / b

    For bf16: a parameter is 2 bytes and 2 FLOP a token, so the two factors cancel. The cache is left out.
    """
    return gpu.flop_per_s("bf16") / gpu.bandwidth_bytes_per_s()


def gpu_label(gpu: Gpu) -> str:
    """Shortest name of a device that the catalogue finds it by.

    For the head of a column.
    """
    return min((gpu.name, *gpu.aliases), key=len)
