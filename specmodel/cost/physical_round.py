"""Time of a round of drafting and verification from the work of its forward passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.forward import (
    AllReduce,
    DeviceRates,
    ForwardWork,
    GraphCapture,
    StepMultipliers,
    StepParts,
    step_time,
)
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

DraftKind = Literal["sequential", "parallel", "lookup"]
Schedule = Literal["sequential", "host", "draft"]

KnownTime = Callable[[Array, Array, Array], Array]
"""Measured time of a draft pass against rows of a request, requests and context, [s]."""

KINDS: tuple[DraftKind, ...] = ("sequential", "parallel", "lookup")
SCHEDULES: tuple[Schedule, ...] = ("sequential", "host", "draft")


@dataclass(frozen=True)
class Drafter:
    r"""Forward passes that propose the tokens of a round.

    .. math:: T_D = T_x + (k-1) T_d \ \text{(sequential)},\quad T_x \ \text{(parallel)},\quad 0 \ \text{(lookup)}

    One pass per depth (EAGLE, MTP, a small model); one for the whole block (DFlash, P-EAGLE); none (n-gram,
    suffix). The first pass extends over the tokens that verification left. Measured times replace the
    computed ones and are charged to memory. theory.md B4, B6.
    """

    kind: DraftKind
    work: ForwardWork | None
    extend_work: ForwardWork | None = None
    measured_step_s: float | KnownTime | None = None
    measured_extend_s: float | KnownTime | None = None
    step_host_s: float = 0.0  # of each pass, where no graph hides it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError("kind", self.kind, f"one of {KINDS}")
        times = (self.measured_step_s, self.measured_extend_s)
        if self.kind != "lookup" and self.work is None and None in times:
            raise ParameterError("work", None, "the drafter's forward pass, or both measured times")
        for name in ("measured_step_s", "measured_extend_s", "step_host_s"):
            value = getattr(self, name)
            if value is not None and not callable(value) and not 0 <= value < np.inf:
                raise ParameterError(name, value, "finite and not negative")


@dataclass(frozen=True)
class Engine:
    """How an engine runs a round: everything in turn (spec v1); the host working while the GPU does (spec v2);
    or drafting beside verification on other hardware (PEARL).
    """

    step_host_s: float = 0.0
    round_host_s: float = 0.0
    schedule: Schedule = "sequential"
    capture: GraphCapture | None = None
    draft_capture: GraphCapture | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ParameterError("schedule", self.schedule, f"one of {SCHEDULES}")
        for name in ("step_host_s", "round_host_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ParameterError(name, getattr(self, name), "finite and not negative")


@dataclass(frozen=True)
class RoundParts:
    r"""A round by phase and cause; what does not show on the clock is not in it.

    .. math:: T_r = T_D + T_V + T_\text{host}
    """

    draft: StepParts
    verify: StepParts
    host_s: Array

    @property
    def total_s(self) -> Array:
        """Time of the round in seconds."""
        return self.draft.total_s + self.verify.total_s + self.host_s

    def terms(self) -> dict[str, Array]:
        """Draft and verify by memory, compute, all-reduce and host, and the host of the round."""
        split: dict[str, Array] = {}
        for phase, parts in (("draft", self.draft), ("verify", self.verify)):
            split[f"{phase} memory"] = parts.memory_s
            split[f"{phase} compute"] = parts.compute_s
            split[f"{phase} all-reduce"] = parts.allreduce_s
            split[f"{phase} host"] = parts.host_s
        return {**split, "round host": self.host_s}


def round_parts(
    target: ForwardWork,
    device: DeviceRates,
    *,
    num_steps: ArrayLike,
    drafter: Drafter | None = None,
    num_draft_tokens: ArrayLike | None = None,
    topk: ArrayLike = 1,
    batch_size: ArrayLike = 1,
    context_tokens: ArrayLike = 0,
    allreduce: AllReduce = 0.0,
    draft_allreduce: AllReduce | None = None,
    draft_device: DeviceRates | None = None,
    engine: Engine | None = None,
    multipliers: StepMultipliers | None = None,
) -> RoundParts:
    r"""Time of a round and where it goes; at depth 0, of a step without speculation.

    .. math:: T_r = T_x(B n) + (k-1) T_d(B \cdot \text{topk}) + T_V(B n) + T_\text{host}

    Verified rows :math:`B n` drive everything, ``num_steps + 1`` of a request unless given. The first draft
    pass extends over them, the others decode; block drafters make one pass. theory.md B4, B6, C.

    >>> device = DeviceRates(bandwidth_bytes_per_s=2e12, flop_per_s=1e15)
    >>> drafter = Drafter(kind="sequential", work=ForwardWork(weight_bytes=1e9))
    >>> parts = round_parts(ForwardWork(weight_bytes=16e9), device, num_steps=[0, 3], drafter=drafter)
    >>> parts.total_s.round(4).tolist()
    [0.008, 0.0095]
    """
    engine = engine or Engine()
    factor = multipliers or StepMultipliers()
    steps, rows, branches, batch, context = _configurations(
        num_steps, num_draft_tokens, topk, batch_size, context_tokens
    )
    speculative = steps > 0
    verify = step_time(
        target,
        device,
        num_tokens=batch * rows,
        num_requests=batch,
        context_tokens=context,
        allreduce=allreduce,
        capture=engine.capture,
        multipliers=factor,
    )
    draft = verify.scaled(0.0)
    if speculative.any():
        if drafter is None:
            raise ParameterError("drafter", None, "given when num_steps is above 0")
        draft = _draft(
            drafter,
            draft_device or device,
            (steps, rows, branches, batch, context),
            allreduce=allreduce if draft_allreduce is None else draft_allreduce,
            capture=engine.draft_capture,
            factor=factor,
        )
    spec_host_s = engine.round_host_s * np.asarray(factor.spec_host)
    host = np.where(speculative, spec_host_s, engine.step_host_s)
    return _on_the_clock(draft, verify, host * np.asarray(factor.round_host), engine.schedule)


def _configurations(
    num_steps: ArrayLike,
    num_draft_tokens: ArrayLike | None,
    topk: ArrayLike,
    batch_size: ArrayLike,
    context_tokens: ArrayLike,
) -> tuple[Array, Array, Array, Array, Array]:
    """Checked arrays of one shape: depth, rows, branches, batch, context."""
    depth = np.asarray(num_steps, dtype=np.float64)
    rows = depth + 1.0 if num_draft_tokens is None else np.asarray(num_draft_tokens)
    given = {
        "num_steps": (depth, 0.0),
        "num_draft_tokens": (rows, 1.0),
        "topk": (np.asarray(topk), 1.0),
        "batch_size": (np.asarray(batch_size), 1.0),
        "context_tokens": (np.asarray(context_tokens), 0.0),
    }
    for name, (values, least) in given.items():
        sound = np.isfinite(values) & (values >= least)
        if not np.all(sound):
            raise ParameterError(name, f"{values[~sound].flat[0]:g}", f"at least {least:g}")
    arrays = np.broadcast_arrays(*(np.asarray(each, np.float64) for each, _ in given.values()))
    return arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]


def _draft(
    drafter: Drafter,
    device: DeviceRates,
    configurations: tuple[Array, Array, Array, Array, Array],
    *,
    allreduce: AllReduce,
    capture: GraphCapture | None,
    factor: StepMultipliers,
) -> StepParts:
    """All draft passes of a round; zero at depth 0."""
    steps, rows, branches, batch, context = configurations
    once = np.where(steps > 0, 1.0, 0.0)
    host_s = drafter.step_host_s * np.asarray(factor.draft_host)
    if drafter.kind == "lookup":
        return _only(np.zeros_like(once), host_s * once)

    def one_pass(
        work: ForwardWork | None, known: float | KnownTime | None, rows_each: Array
    ) -> StepParts:
        tokens = batch * rows_each
        if callable(known):
            return _only(known(rows_each, batch, context), host_s)
        if known is not None or work is None:
            return _only(np.full_like(tokens, known or 0.0), host_s)
        parts = step_time(
            work,
            device,
            num_tokens=tokens,
            num_requests=batch,
            context_tokens=context,
            allreduce=allreduce,
            capture=capture,
            multipliers=factor,
        )
        return parts + _only(np.zeros(()), host_s)

    extend = one_pass(drafter.extend_work or drafter.work, drafter.measured_extend_s, rows).scaled(
        once
    )
    if drafter.kind == "parallel" or not np.any(steps > 1):
        return extend
    decode = one_pass(drafter.work, drafter.measured_step_s, branches)
    return extend + decode.scaled(np.maximum(steps - 1.0, 0.0))


def _only(memory_s: Array, host_s: Array) -> StepParts:
    """Parts with a known time charged to memory, and a host time."""
    zero = np.zeros(np.broadcast_shapes(np.shape(memory_s), np.shape(host_s)))
    return StepParts(
        dense_memory_s=memory_s + zero,
        expert_memory_s=zero,
        kv_memory_s=zero,
        compute_s=zero,
        allreduce_s=zero,
        host_s=host_s + zero,
    )


def _on_the_clock(
    draft: StepParts, verify: StepParts, host_s: Array, schedule: Schedule
) -> RoundParts:
    """What of each phase shows when phases run beside each other."""
    if schedule == "host":
        host_s = np.maximum(host_s - draft.total_s - verify.total_s, 0.0)
    if schedule == "draft":
        total = draft.total_s
        shows = np.maximum(total - verify.total_s, 0.0) / np.where(total > 0, total, 1.0)
        draft = draft.scaled(shows)
    return RoundParts(draft=draft, verify=verify, host_s=np.asarray(host_s))
