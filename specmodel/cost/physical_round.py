"""Time of a round of drafting and verification from the work of its forward passes."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.forward_work import DeviceRates, ForwardWork
from specmodel.cost.graph_capture import GraphCapture
from specmodel.cost.round_inputs import Drafter, Engine, KnownTime, Schedule
from specmodel.cost.step_multipliers import StepMultipliers
from specmodel.cost.step_time import AllReduce, StepParts, step_time
from specmodel.errors import ParameterError

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParts:
    r"""A round by phase and cause; what does not show on the clock is not in it.

    .. math:: T_r = T_D + T_V + T_\text{host}

    Parameters
    ----------
    draft, verify : StepParts
        Drafting and verification, as far as they show, [s].
    host_s : numpy.ndarray
        Host time of the round that shows beside them, [s].

    Examples
    --------
    >>> work = ForwardWork(weight_bytes=16e9)
    >>> device = DeviceRates(bandwidth_bytes_per_s=2e12, flop_per_s=1e14)
    >>> parts = round_parts(work, device, num_steps=0)
    >>> float(parts.total_s), float(parts.terms()["verify memory"])
    (0.008, 0.008)
    """

    draft: StepParts
    verify: StepParts
    host_s: Array

    @property
    def total_s(self) -> Array:
        """Time of the round in seconds."""
        return self.draft.total_s + self.verify.total_s + self.host_s

    def terms(self) -> dict[str, Array]:
        r"""The breakdown by name.

        .. math:: \sum_i T_i = T_r

        Returns
        -------
        dict of str to numpy.ndarray
            Draft and verify, each by memory, compute, all-reduce and host; and the host of the round.

        Notes
        -----
        Sums to `total_s`.

        Examples
        --------
        >>> parts = round_parts(ForwardWork(weight_bytes=1e9), DeviceRates(
        ...     bandwidth_bytes_per_s=1e12, flop_per_s=1e14), num_steps=0)
        >>> len(parts.terms())
        9
        """
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

    Parameters
    ----------
    target : ForwardWork
        One forward pass of the target.
    device : DeviceRates
        One GPU of its group.
    num_steps : array-like
        :math:`k \ge 0`, sequential draft steps; 0 is a step without speculation, [tokens].
    drafter : Drafter, optional
        Needed when a depth is above 0.
    num_draft_tokens : array-like, optional
        :math:`n \ge 1`, verified rows per request, root included; ``num_steps + 1`` without it, [tokens].
    topk : array-like
        Rows per request of a decode pass of the drafter, at least 1, [-].
    batch_size : array-like
        :math:`B \ge 1`, [-].
    context_tokens : array-like
        :math:`C \ge 0`, [tokens].
    allreduce : callable or array-like
        Time of one collective of the target against its bytes, or that time, [s].
    draft_allreduce : callable or array-like, optional
        The same of the drafter; as the target's without it, [s].
    draft_device : DeviceRates, optional
        GPU of the drafter, which may work at another precision; as the target's without it.
    engine : Engine, optional
        Host times, schedule, graphs.
    multipliers : StepMultipliers, optional
        Calibrated factors.

    Returns
    -------
    RoundParts
        Arrays of the broadcast shape.

    Raises
    ------
    ParameterError
        If a number is impossible or a drafter is missing.

    Notes
    -----
    Verified rows :math:`B n` drive everything. The first draft pass extends over the rows that
    verification processed, the others decode. Block drafters make one pass over them. theory.md B4,
    B6, C.

    Examples
    --------
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
