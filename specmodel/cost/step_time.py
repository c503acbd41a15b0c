"""Time of one forward pass from bytes, operations, messages and launches."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.coverage import expected_experts
from specmodel.cost.forward_work import DeviceRates, ForwardWork
from specmodel.cost.graph_capture import GraphCapture
from specmodel.cost.roofline import roofline_parts, smooth_maximum
from specmodel.cost.step_multipliers import Factor, StepMultipliers
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

AllReduce = Callable[[Array], Array] | ArrayLike
"""Time of one all-reduce: a function of the message in bytes, or the times themselves. [s]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    r"""Time of a forward pass by what it is spent on; the parts sum to the whole.

    .. math:: T = T_\text{dense} + T_\text{experts} + T_\text{KV} + T_\text{compute} + T_\text{comm} + T_\text{host}

    Parameters
    ----------
    dense_memory_s : numpy.ndarray
        Reading dense weights, [s].
    expert_memory_s : numpy.ndarray
        Reading the experts that the tokens touch, [s].
    kv_memory_s : numpy.ndarray
        Reading the KV cache, [s].
    compute_s : numpy.ndarray
        Matrix products and attention, as far as they are not hidden behind reading, [s].
    allreduce_s : numpy.ndarray
        Collectives, [s].
    host_s : numpy.ndarray
        Small kernels, launches and the host, as far as they show, [s].

    Notes
    -----
    Where reading and computing overlap, each part is what a small change of it would move.

    Examples
    --------
    >>> zero = np.zeros(2)
    >>> StepParts(dense_memory_s=zero + 1, expert_memory_s=zero, kv_memory_s=zero, compute_s=zero,
    ...           allreduce_s=zero, host_s=zero + 0.5).total_s.tolist()
    [1.5, 1.5]
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
        r"""Every part times a factor.

        .. math:: a T_i

        Parameters
        ----------
        factor : array-like
            :math:`a`, not negative: a number of equal passes, or the share that shows, [-].

        Returns
        -------
        StepParts

        Notes
        -----
        Where the factor is 0 the parts are 0.

        Examples
        --------
        >>> one = np.ones(1)
        >>> StepParts(dense_memory_s=one, expert_memory_s=one, kv_memory_s=one, compute_s=one,
        ...           allreduce_s=one, host_s=one).scaled(2.0).total_s.tolist()
        [12.0]
        """
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

    Parameters
    ----------
    work : ForwardWork
        What the pass reads, computes and sends.
    device : DeviceRates
        What one GPU of the group sustains.
    num_tokens : array-like
        :math:`t = B n`, rows that the pass processes: requests times tokens of each, at least 1 and at
        least `num_requests`, [tokens].
    num_requests : array-like
        :math:`B`, at least 1, [-].
    context_tokens : array-like
        :math:`C`, mean context of a request, not negative, [tokens].
    allreduce : callable or array-like
        :math:`t_\text{ar}`, time of one collective against its message in bytes, or that time, [s].
    capture : GraphCapture, optional
        Captured sizes; without it every size counts as captured and nothing is padded.
    multipliers : StepMultipliers, optional
        Calibrated factors; all 1 without it.

    Returns
    -------
    StepParts
        Arrays of the broadcast shape.

    Raises
    ------
    ParameterError
        If a number of tokens, requests or a context is impossible, or an all-reduce time negative.

    Notes
    -----
    :math:`\lVert\cdot\rVert` is `smooth_maximum`. Weights, experts and attention are kernels that run
    one after another, each with its own roofline. Holds for decoding and verification; prefill is
    outside. Beyond the captured sizes a pass takes at least the launches of its kernels. theory.md B3,
    B5, C; coverage from [moesd2025]_.

    Examples
    --------
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
    dense, dense_compute = roofline_parts(
        _dense_bytes(work) / bandwidth,
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


def _dense_bytes(work: ForwardWork) -> float:
    """Bytes of dense weights that one GPU reads."""
    sharded = work.weight_bytes - work.replicated_bytes
    return work.replicated_bytes + sharded / work.tp_size


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
