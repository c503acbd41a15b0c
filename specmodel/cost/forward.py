"""Time of one forward pass: a roofline over bytes and operations, collectives, launches and the host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.relative import expected_experts
from specmodel.errors import ParameterError
from specmodel.hardware import Gpu

Array = NDArray[np.float64]

PerContext = float | NDArray[np.float64]
"""A number, or one for each configuration where contexts differ."""

Factor = float | NDArray[np.float64]

AllReduce = Callable[[Array], Array] | ArrayLike
"""Time of one all-reduce: a function of the message in bytes, or the times themselves. [s]"""

STREAM_SHARE = 0.8
"""Part of the datasheet bandwidth that a whole decode step reaches while it streams weights. Read kernels
alone reach 0.79 to 0.98 on the cards of the catalogue, 0.61 on MI355X. A judgement. [-]"""

PRODUCT_SHARE = 0.5
"""Part of the dense datasheet rate that the products of a verify step reach. A judgement. [-]"""

KERNEL_S = 1.2e-6
"""Time of a small kernel inside a graph: 3.6 ms that a Kimi-K2.5 step on 8 RTX PRO 6000 spends on
neither weights nor collectives, over 2,950 kernels [step-costs]_. [s]"""

STEP_HOST_S = 0.7e-3
"""Gaps that the host leaves in a step or round, as in a trace of GLM-5.2 on 8 H200 [step-costs]_. [s]"""

KERNELS_PER_LAYER: Mapping[str, float] = MappingProxyType(
    {"latent_moe": 42.0, "moe": 25.0, "hybrid": 20.0, "dense": 14.0}
)
"""Kernels of a layer by kind. Latent attention with experts: 2,900 to 3,000 kernels in 60 to 80 layers
[step-costs]_; the others are judgements from the operations a layer has. [-]"""

PRIOR_LOG_SD: Mapping[str, float] = MappingProxyType(
    {
        "bandwidth": 0.15,
        "compute": 0.40,
        "allreduce": 0.47,
        "kernels": 0.50,
        "round_host": 0.70,
        "spec_host": 0.70,
        "draft_host": 0.70,
        "routing": 0.10,
    }
)
r"""Standard deviation of the logarithm of each factor, median 1. [-]

``allreduce`` is the spread :math:`\ln 1.6` of eight sets of rows on one kind of 8-GPU machine
(allreduce.md 7). The others are judgements: read kernels reach 0.79 to 0.98 of the datasheet on most
cards of the catalogue, matrix products 0.4 to 0.8, hosts differ by two."""


def smooth_maximum(first_s: ArrayLike, second_s: ArrayLike) -> Array:
    r"""Time of a kernel whose reading and computing overlap: the roofline, bent at its ridge (theory.md B3).

    .. math:: T = (x^4 + y^4)^{1/4}

    The exponent is a judgement within 4 to 8: a hard maximum has no gradient in the shorter time, and real
    kernels bend before the ridge. Holds for one kind of kernel; kernels that run one after another are added.
    """
    first, second = np.asarray(first_s, dtype=np.float64), np.asarray(second_s, dtype=np.float64)
    longer = np.maximum(first, second)
    if not longer.any():
        return np.asarray(longer)
    ratio = np.minimum(first, second) / np.where(longer > 0, longer, 1.0)
    square = ratio * ratio
    return np.asarray(longer * np.sqrt(np.sqrt(1.0 + square * square)))


def roofline_parts(first_s: ArrayLike, second_s: ArrayLike) -> tuple[Array, Array]:
    r"""The smooth maximum, split into what each of the two times is to blame for.

    .. math:: T_x = x \frac{\partial T}{\partial x} = \frac{x^4}{x^4 + y^4} T,\quad T_x + T_y = T

    Euler's theorem for a function of degree one: the parts are elasticities.
    """
    first, second = np.asarray(first_s, dtype=np.float64), np.asarray(second_s, dtype=np.float64)
    total = smooth_maximum(first, second)
    scale = np.where(total > 0, total, 1.0)
    share = (first / scale) ** 2
    part = share * share * total
    return part, np.maximum(total - part, 0.0)


@dataclass(frozen=True)
class ForwardWork:
    r"""One forward pass of a model over its tensor-parallel group.

    .. math:: W = W_r + \frac{W_d - W_r + N(t) W_e}{g}

    Weights that every pass reads count once for the whole group (:math:`W_d`), those that every GPU reads in
    full among them (:math:`W_r`); one routed expert is summed over the MoE layers (:math:`W_e`). Bytes are as
    stored. What depends on the context may be an array over configurations. Pipeline and data parallelism are
    outside; expert parallelism reads as tensor parallelism while experts are spread evenly. theory.md B3, C.
    """

    weight_bytes: float
    replicated_bytes: float = 0.0
    expert_bytes: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 0
    kv_bytes_per_token: PerContext = 0.0  # over all layers, counted once
    kv_shards: PerContext = 1.0  # GPUs that share one copy of a request's KV
    flop_per_token: float = 0.0  # without attention over the context
    expert_flop_per_token: float = 0.0
    attention_flop_per_pair: PerContext = 0.0  # one query against one token of context
    num_allreduces: float = 0.0  # one after another; a gather counts as about half
    allreduce_bytes_per_token: float = 0.0
    num_kernels: float = 0.0
    tp_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in {"tp_size", "kv_shards"} else 0
            if not np.all(np.isfinite(value) & (np.asarray(value) >= least)):
                raise ParameterError(field.name, np.min(value), f"finite and at least {least}")
        for part, whole in (
            ("replicated_bytes", "weight_bytes"),
            ("expert_flop_per_token", "flop_per_token"),
            ("experts_per_token", "num_experts"),
        ):
            if getattr(self, part) > getattr(self, whole):
                allowed = f"at most {whole} ({getattr(self, whole):g})"
                raise ParameterError(part, getattr(self, part), allowed)
        if (self.expert_bytes > 0) != (self.experts_per_token > 0):
            raise ParameterError(
                "experts_per_token", self.experts_per_token, "above 0 exactly with expert_bytes"
            )


@dataclass(frozen=True)
class DeviceRates:
    """What one GPU sustains: streaming of weights, matrix products, and its least time of a kernel."""

    bandwidth_bytes_per_s: float
    flop_per_s: float
    kernel_s: float = 1.2e-6

    def __post_init__(self) -> None:
        for name in ("bandwidth_bytes_per_s", "flop_per_s"):
            if not 0 < getattr(self, name) < np.inf:
                raise ParameterError(name, getattr(self, name), "positive and finite")
        if not 0 <= self.kernel_s < np.inf:
            raise ParameterError("kernel_s", self.kernel_s, "finite and not negative")


@dataclass(frozen=True)
class GraphCapture:
    r"""Token counts for which the engine holds a captured graph.

    .. math:: t' = \min\{s : s \ge t\},\quad t' = t \text{ beyond the largest } s

    Beyond the largest size a step runs eagerly and takes at least the launches of all its kernels, the jump
    past the capture limit: some 5 us each, an engine's Python several times that. theory.md B3, B4.
    """

    sizes: tuple[int, ...]
    eager_kernel_s: float = 5e-6

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        if sizes.ndim != 1 or (sizes.size and (sizes[0] < 1 or not np.all(np.diff(sizes) > 0))):
            raise ParameterError("sizes", self.sizes, "rising token counts of at least 1")
        if not 0 <= self.eager_kernel_s < np.inf:
            raise ParameterError("eager_kernel_s", self.eager_kernel_s, "finite and not negative")

    def padded_tokens(self, num_tokens: ArrayLike) -> Array:
        """Tokens that the step computes; padding is computed and sent, but reads no KV."""
        tokens = np.asarray(num_tokens, dtype=np.float64)
        if not self.sizes:
            return tokens
        sizes = np.append(np.asarray(self.sizes, dtype=np.float64), np.inf)
        found = sizes[np.searchsorted(sizes, tokens)]
        return np.where(np.isinf(found), tokens, found)

    def eager(self, num_tokens: ArrayLike) -> NDArray[np.bool_]:
        """Whether the step runs without a graph."""
        limit = self.sizes[-1] if self.sizes else 0
        return np.asarray(np.asarray(num_tokens, dtype=np.float64) > limit)


@dataclass(frozen=True)
class StepMultipliers:
    r"""Factors on the rates and times of the physical form; 1 is the prior median.

    .. math:: \ln m_i \sim \mathcal N(0, \sigma_i^2)

    `routing` is the exponent on the tokens that choose experts independently, 1 for uniform routing;
    `kv_row_share` is 0 when the KV cache is read once per request and step, 1 when once per verified row.
    Arrays broadcast against the configurations, so posterior draws are priced in one call.
    """

    bandwidth: Factor = 1.0
    compute: Factor = 1.0
    allreduce: Factor = 1.0
    kernels: Factor = 1.0
    round_host: Factor = 1.0
    spec_host: Factor = 1.0
    draft_host: Factor = 1.0
    routing: Factor = 1.0
    kv_row_share: Factor = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = np.asarray(getattr(self, field.name), dtype=np.float64)
            positive = field.name in {"bandwidth", "compute"}
            most = {"kv_row_share": 1.0, "routing": 1.5}.get(field.name, np.inf)
            sound = (
                np.isfinite(value) & (value <= most) & ((value > 0) if positive else (value >= 0))
            )
            if not np.all(sound):
                least = "above 0" if positive else "at least 0"
                most_text = f" and at most {most:g}" if most < np.inf else " and finite"
                raise ParameterError(field.name, f"{value[~sound].flat[0]:g}", least + most_text)


@dataclass(frozen=True)
class StepParts:
    r"""Time of a forward pass by what it is spent on; the parts sum to the whole.

    .. math:: T = T_\text{dense} + T_\text{experts} + T_\text{KV} + T_\text{compute} + T_\text{comm} + T_\text{host}

    Where reading and computing overlap, each part is what a small change of it would move.
    """

    dense_memory_s: Array
    expert_memory_s: Array
    kv_memory_s: Array
    compute_s: Array
    allreduce_s: Array
    host_s: Array

    @property
    def memory_s(self) -> Array:
        """Time of reading weights, experts and KV in seconds."""
        return self.dense_memory_s + self.expert_memory_s + self.kv_memory_s

    @property
    def total_s(self) -> Array:
        """Time of the forward pass in seconds."""
        return self.memory_s + self.compute_s + self.allreduce_s + self.host_s

    def __add__(self, other: "StepParts") -> "StepParts":
        return StepParts(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in _PARTS}
        )

    def scaled(self, factor: ArrayLike) -> "StepParts":
        """Every part times a factor: a number of equal passes, or the share that shows."""
        times = np.asarray(factor, dtype=np.float64)
        return StepParts(**{each.name: getattr(self, each.name) * times for each in _PARTS})


_PARTS = fields(StepParts)


def step_time(
    work: ForwardWork,
    device: DeviceRates,
    *,
    num_tokens: ArrayLike,
    num_requests: ArrayLike = 1.0,
    context_tokens: ArrayLike = 0.0,
    allreduce: AllReduce = 0.0,
    capture: GraphCapture | None = None,
    multipliers: StepMultipliers | None = None,
) -> StepParts:
    r"""Time of one forward pass over a batch of tokens.

    .. math:: T = \lVert \tfrac{W}{b}, \tfrac{F t}{f} \rVert + \lVert \tfrac{N(t) W_e}{b}, \tfrac{F_e t}{f} \rVert
              + \lVert \tfrac{B C \kappa (1 + \rho (n-1))}{b}, \tfrac{F_a t C}{f} \rVert
              + A \, t_\text{ar}(m t) + T_\text{host}

    :math:`\lVert\cdot\rVert` is `smooth_maximum`: weights, experts and attention run one after another, each
    with its own roofline; experts touched as in [moesd2025]_. For decoding and verification, not prefill.
    `allreduce` maps a message in bytes to the time of one collective. Without `capture` every size counts as
    captured; beyond its sizes a pass takes at least the launches of its kernels. theory.md B3, B5, C.

    >>> work = ForwardWork(weight_bytes=16e9, flop_per_token=16e9)
    >>> device = DeviceRates(bandwidth_bytes_per_s=2.7e12, flop_per_s=5e14)
    >>> [float(x.round(5)) for x in step_time(work, device, num_tokens=[1, 512]).total_s]
    [0.00593, 0.01645]
    """
    factor = multipliers or StepMultipliers()
    tokens, requests, context = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (num_tokens, num_requests, context_tokens))
    )
    _check(tokens, requests, context)
    rows = tokens if capture is None else capture.padded_tokens(tokens)
    bandwidth = device.bandwidth_bytes_per_s * np.asarray(factor.bandwidth)
    rate = device.flop_per_s * np.asarray(factor.compute) * work.tp_size
    sharded = (work.weight_bytes - work.replicated_bytes) / work.tp_size
    dense, dense_compute = roofline_parts(
        (work.replicated_bytes + sharded) / bandwidth,
        rows * ((work.flop_per_token - work.expert_flop_per_token) / rate),
    )
    experts, expert_compute = _experts(work, rows, bandwidth, rate, factor)
    kv, attention = _attention(
        work, (tokens, requests, context), bandwidth, rate, factor.kv_row_share
    )
    comm = _collectives(work, rows, allreduce, factor)
    compute = dense_compute + expert_compute + attention
    shape = np.broadcast_shapes(
        *(part.shape for part in (dense, experts, kv, compute, comm)), tokens.shape
    )
    busy = dense + experts + kv + compute + comm
    parts = {
        "dense_memory_s": dense,
        "expert_memory_s": experts,
        "kv_memory_s": kv,
        "compute_s": compute,
        "allreduce_s": comm,
        "host_s": _launches(work, device, tokens, busy, capture=capture, factor=factor),
    }
    shape = np.broadcast_shapes(shape, parts["host_s"].shape)
    return StepParts(**{name: np.broadcast_to(part, shape) for name, part in parts.items()})


def _check(tokens: Array, requests: Array, context: Array) -> None:
    for name, values, least in (
        ("num_tokens", tokens, 1.0),
        ("num_requests", requests, 1.0),
        ("context_tokens", context, 0.0),
    ):
        sound = np.isfinite(values) & (values >= least)
        if not np.all(sound):
            raise ParameterError(name, f"{values[~sound].flat[0]:g}", f"at least {least:g}")
    if np.any(tokens < requests):
        few = float(tokens[tokens < requests].flat[0])
        raise ParameterError("num_tokens", f"{few:g}", "at least num_requests")


def _experts(
    work: ForwardWork, rows: Array, bandwidth: Array, rate: Array, factor: StepMultipliers
) -> tuple[Array, Array]:
    """Reading and computing part of the routed experts."""
    if work.expert_bytes == 0:
        zero = np.zeros(())
        return zero, zero
    independent = (
        rows if np.all(np.asarray(factor.routing) == 1) else np.power(rows, factor.routing)
    )
    touched = expected_experts(independent, work.num_experts, work.experts_per_token)
    return roofline_parts(
        touched * (work.expert_bytes / work.tp_size / bandwidth),
        rows * (work.expert_flop_per_token / rate),
    )


def _attention(
    work: ForwardWork,
    load: tuple[Array, Array, Array],
    bandwidth: Array,
    rate: Array,
    row_share: Factor,
) -> tuple[Array, Array]:
    """Reading and computing part of the attention over the context."""
    tokens, requests, context = load
    attends = np.any(work.kv_bytes_per_token) or np.any(work.attention_flop_per_pair)
    if not attends or not context.any():
        zero = np.zeros(())
        return zero, zero
    # B * (1 + rho (n - 1)) reads of a context, n = t / B
    reads = requests + np.asarray(row_share) * (tokens - requests)
    return roofline_parts(
        reads * context * (work.kv_bytes_per_token / work.kv_shards / bandwidth),
        tokens * context * (work.attention_flop_per_pair / rate),
    )


def _collectives(
    work: ForwardWork, rows: Array, allreduce: AllReduce, factor: StepMultipliers
) -> Array:
    """Time in collectives."""
    if work.num_allreduces == 0 or work.tp_size == 1:
        return np.zeros(())
    one = allreduce(rows * work.allreduce_bytes_per_token) if callable(allreduce) else allreduce
    one_s = np.asarray(one, dtype=np.float64)
    sound = np.isfinite(one_s) & (one_s >= 0)
    if not np.all(sound):
        raise ParameterError("allreduce", f"{one_s[~sound].flat[0]:g}", "times of at least 0 s")
    return np.asarray(work.num_allreduces * one_s * np.asarray(factor.allreduce))


def _launches(
    work: ForwardWork,
    device: DeviceRates,
    tokens: Array,
    busy: Array,
    *,
    capture: GraphCapture | None,
    factor: StepMultipliers,
) -> Array:
    """Fixed time of the kernels; outside a graph, what the launches take beyond the work."""
    fixed = np.asarray(work.num_kernels * device.kernel_s * np.asarray(factor.kernels))
    if capture is None:
        return fixed
    eager = capture.eager(tokens)
    if not eager.any():
        return fixed
    launched = work.num_kernels * capture.eager_kernel_s * np.asarray(factor.kernels)
    shows = smooth_maximum(busy + fixed, launched) - busy
    return np.asarray(np.where(eager, shows, fixed))


def typical_rates(device: Gpu, dtype: str) -> DeviceRates:
    """Rates to expect of a GPU before anything was measured; `StepMultipliers` move them."""
    return DeviceRates(
        bandwidth_bytes_per_s=STREAM_SHARE * device.bandwidth_bytes_per_s(),
        flop_per_s=PRODUCT_SHARE * device.flop_per_s(dtype),
        kernel_s=KERNEL_S,
    )
