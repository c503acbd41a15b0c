"""How a round is drafted and run: the drafter's passes, and the engine's host, schedule and graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.forward_work import ForwardWork
from specmodel.cost.graph_capture import GraphCapture
from specmodel.errors import ParameterError

DraftKind = Literal["sequential", "parallel", "lookup"]
Schedule = Literal["sequential", "host", "draft"]

KnownTime = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]
]
"""Measured time of a draft pass against rows of a request, requests and context, [s]."""

KINDS: tuple[DraftKind, ...] = ("sequential", "parallel", "lookup")
SCHEDULES: tuple[Schedule, ...] = ("sequential", "host", "draft")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    r"""Forward passes that propose the tokens of a round.

    .. math:: T_D = T_x + (k-1) T_d \ \text{(sequential)},\quad T_x \ \text{(parallel)},\quad 0 \ \text{(lookup)}

    Parameters
    ----------
    kind : {"sequential", "parallel", "lookup"}
        One pass per depth (EAGLE, MTP, a small model); one pass for the whole block (DFlash, P-EAGLE);
        none (n-gram, suffix).
    work : ForwardWork or None
        One pass of the drafter; None for a lookup.
    extend_work : ForwardWork or None
        The first pass of a round, over the tokens that verification left; as `work` when None.
    measured_step_s, measured_extend_s : float, callable or None
        Known times of a decode pass and of the first pass, which replace the computed ones; a number, or
        a function of rows of a request, requests and context, [s].
    step_host_s : float
        Host time of each pass that no graph hides, not negative, [s].

    Raises
    ------
    ParameterError
        If the kind is unknown, a time negative, or a drafter has neither work nor times.

    Notes
    -----
    A drafter with ``work.replicated()`` needs no collective. Measured times are charged to memory: a
    drafter of one layer streams its weights. theory.md B4, B6.

    Examples
    --------
    >>> Drafter(kind="lookup", work=None).step_host_s
    0.0
    """

    kind: DraftKind
    work: ForwardWork | None
    extend_work: ForwardWork | None = None
    measured_step_s: float | KnownTime | None = None
    measured_extend_s: float | KnownTime | None = None
    step_host_s: float = 0.0

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How an engine runs a round.

    Parameters
    ----------
    step_host_s : float
        Host time of a step without speculation that does not hide behind the GPU, [s].
    round_host_s : float
        The same of a round with speculation (scheduling, acceptance, metadata), [s].
    schedule : {"sequential", "host", "draft"}
        Everything in turn (spec v1); the host works while the GPU does (spec v2); drafting runs beside
        verification on other hardware (PEARL).
    capture : GraphCapture or None
        Captured sizes of the target; None when every size is.
    draft_capture : GraphCapture or None
        The same of the drafter.

    Raises
    ------
    ParameterError
        If a time is negative or the schedule unknown.

    Examples
    --------
    >>> Engine(round_host_s=1e-3).schedule
    'sequential'
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
