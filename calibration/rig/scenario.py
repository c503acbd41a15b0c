"""A rig, its load and an accept length: what a physical price is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from calibration.rig.draft import DraftChoice
from specmodel.architecture import ModelShape, stated_weights
from specmodel.cost.allreduce import AllReduceCurve, curve_doubts, outside_doubt
from specmodel.cost.forward import STEP_HOST_S, GraphCapture
from specmodel.cost.physical_round import SCHEDULES, Engine, Schedule
from specmodel.cost.relative import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.errors import FormatError, ParameterError, SpecModelError
from specmodel.hardware import gpu, gpus
from specmodel.model_error import Loads
from specmodel.question import Configuration, longest_accept_length
from specmodel.records import from_record, to_record
from specmodel.rig import Rig
from specmodel.rig.served_model import link_prior

Array = NDArray[np.float64]


def link_class(name: str) -> str:
    """Class of the all-reduce prior of a link."""
    return link_prior(name, 2).interconnect


def card_link(name: str) -> str:
    """Link that servers of a card usually have.

    A judgement: NVLink with switches from 900 GB/s, and on SXM cards from 600 GB/s; else PCIe.
    """
    card = gpu(name)
    rate = card.nvlink_bytes_per_s or 0.0
    generation = card.pcie_generation or 4
    for least, link in ((1.8e12, "nvlink5"), (9e11, "nvlink4")):
        if rate >= least:
            return link
    if rate >= 6e11 and "SXM" in card.name:
        return "nvlink3"
    return f"pcie{min(max(generation, 3), 5)}"


def edition_of(name: str) -> tuple[str, str]:
    """Card of the catalogue; where a name leaves the edition open, the fastest one.

    A judgement: editions differ in bandwidth by little.
    """
    found = gpu(name)
    if found.memory_bandwidth_bytes_per_s is not None:
        return found.name, ""
    editions = [
        one
        for one in gpus().values()
        if one.name.startswith(found.name) and one.memory_bandwidth_bytes_per_s is not None
    ]
    if not editions:
        return found.name, ""
    fastest = max(editions, key=lambda one: one.bandwidth_bytes_per_s())
    return fastest.name, f"{fastest.name}, since {found.name} leaves the edition open"


class RoundShape(NamedTuple):
    """Depth, branches and verified rows of a round; whether nothing tells the depth."""

    num_steps: float
    topk: float
    num_draft_tokens: float
    depth_unknown: bool


def round_shape(
    num_steps: float | None, topk: float | None, num_draft_tokens: float | None
) -> RoundShape:
    """Shape of a round, completed where it is not stated.

    .. math:: k = n - 1
    """
    depth, branches, rows = (
        np.nan if value is None else float(value) for value in (num_steps, topk, num_draft_tokens)
    )
    tree = branches > 1
    unknown = np.isnan(depth) and (tree or not rows > 1)
    if np.isnan(depth):
        depth = UNKNOWN_DEPTH_NUM_STEPS if unknown else rows - 1.0
    stated = not np.isnan(rows) and (tree or not unknown)
    return RoundShape(
        num_steps=depth,
        topk=branches if tree else 1.0,
        num_draft_tokens=rows if stated else depth + 1.0,
        depth_unknown=bool(unknown),
    )


KERNELS: Final = ("", "nccl", "engine")
"""All-reduce kernels that can be named; none leaves it to the engine's gate."""

KV_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
)
"""Formats of the KV cache that can be named, by what a value takes, [B]."""

_MEASURED: Final = "the measured link"  # whatever the number of GPUs: one file is of one machine

CAPTURE_STRIDE: Final = 8
"""Distance of captured sizes from 8 on; below it they are powers of two, as vLLM captures. [tokens]"""

EAGER_KERNEL_S: Final = 25e-6
"""Launch of a kernel from an engine's Python, outside a graph. DeepSeek-V4-Flash on 4 B300 takes 104.5 ms
for a pass just past its graphs [vllm-dspark-post]_, 58 us for each of the 1,806 kernels that the form counts;
less than half of that, since other engines launch faster (judgement). [s]"""


def captured_to(limit: int) -> GraphCapture:
    r"""Captured sizes up to a limit.

    .. math:: 1, 2, 4, 8, 16, 24, \ldots

    A pass over a size between two of them is padded; beyond the limit it runs without a graph.
    """
    if limit < 1:
        raise ParameterError("capture_limit", limit, "at least 1")
    small = [size for size in (1, 2, 4) if size < limit]
    strided = range(CAPTURE_STRIDE, limit, CAPTURE_STRIDE)
    return GraphCapture(sizes=(*small, *strided, limit), eager_kernel_s=EAGER_KERNEL_S)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model on its GPUs, a load, and an accept length that is held fixed."""

    model: ModelShape  # as released
    gpu: str
    tp_size: int = 1
    interconnect: str = ""  # none for one GPU, and where it was measured
    dtype: str = ""  # the release's where empty
    curves: tuple[tuple[int, AllReduceCurve], ...] = ()  # by ranks; these go before the link
    kernel: str = ""  # of `KERNELS`
    kv_bytes_per_value: float = 2.0
    context_parallel: int = 1  # ranks that share the tokens of a request
    draft: DraftChoice = field(default_factory=DraftChoice)
    schedule: Schedule = "sequential"
    capture_limit: int | None = None  # rows that have CUDA graphs; None for all
    depth: int = 1
    topk: int = 1
    num_draft_tokens: int | None = None  # None for a chain
    batch_size: float = 1
    context_tokens: float = 0
    accept_length: float = 1.0

    def __post_init__(self) -> None:
        if self.topk > 1 and self.num_draft_tokens is None:
            raise ParameterError("num_draft_tokens", "none", "given where topk is above 1")
        if self.kernel not in KERNELS:
            raise ParameterError("allreduce", repr(self.kernel[:40]), f"one of {KERNELS[1:]}")
        if self.schedule not in SCHEDULES:
            raise ParameterError("schedule", repr(self.schedule[:40]), f"one of {SCHEDULES}")
        if self.interconnect and self.curve is None:
            link_class(self.interconnect)

    @property
    def curve(self) -> AllReduceCurve | None:
        """Measured all-reduce of this number of GPUs; None where there is none."""
        return dict(self.curves).get(self.tp_size) if self.tp_size > 1 else None

    @property
    def configuration(self) -> Configuration:
        """Depth, branching, verified rows and load."""
        return Configuration(
            num_steps=float(self.depth),
            topk=float(self.topk),
            num_draft_tokens=self.num_draft_tokens,
            batch_size=self.batch_size,
            context_tokens=self.context_tokens,
        )

    @property
    def rows(self) -> int:
        """Verified tokens of a request."""
        return self.num_draft_tokens or self.depth + 1

    def loads(self, batch_size: float | Array | None = None) -> Loads:
        """Base steps, then rounds, of its batch or of several."""
        rounds = Loads.of(
            num_steps=self.depth,
            topk=self.topk,
            num_draft_tokens=self.rows,
            batch_size=self.batch_size if batch_size is None else batch_size,
            context_tokens=self.context_tokens,
        )
        return rounds.base_steps().joined(rounds)

    @property
    def longest(self) -> float:
        """Most tokens that a round emits; a block that one step proposes is longer than its depth."""
        found = longest_accept_length(self.configuration)
        return self.depth + 1.0 if found is None else found

    def rig(self) -> Rig:
        """Return the rig; one that cannot be, or an accept length above its longest, is refused."""
        if not 1 <= self.accept_length <= self.longest:
            chain = self.longest == self.depth + 1
            raise ParameterError(
                "accept_length",
                f"{self.accept_length:g}",
                f"from 1 to {'depth + 1 = ' if chain else ''}{self.longest:g}",
                "a round gives at most its drafted tokens and one more",
            )
        replicated = self.draft.tp_size == 1 and self.tp_size > 1
        return Rig(
            target=self.model,
            device=self.gpu,
            tp_size=self.tp_size,
            interconnect=self.interconnect,
            allreduce=self.curve,
            allreduce_kernel=self.kernel,
            dtype=self.dtype,
            kv_bytes_per_value=self.kv_bytes_per_value,
            context_parallel=min(self.context_parallel, self.tp_size),
            draft=self.draft.described(self.model)[1],
            draft_tp_size=1 if replicated else None,
            engine=Engine(
                step_host_s=STEP_HOST_S,
                round_host_s=STEP_HOST_S,
                schedule=self.schedule,
                capture=None if self.capture_limit is None else captured_to(self.capture_limit),
            ),
        )

    def link(self) -> str:
        """Return what all-reduces run over: what was measured, a class of links, or nothing."""
        if self.tp_size == 1:
            return ""
        return _MEASURED if self.curve is not None else link_class(self.interconnect)

    def facts(self) -> dict[str, object]:
        """Return what tells one rig from another, by name; loads and draft model are apart."""
        return {
            "model": self.model,
            "gpu": gpu(self.gpu).name,
            "interconnect": self.link(),
            "tp_size": self.tp_size,
            "dtype": stated_weights(self.model, self.dtype),
            "allreduce": self.kernel if self.tp_size > 1 else "",
            "schedule": self.schedule,
            "capture_limit": self.capture_limit,
        }


def doubts_of_all_reduce(scenarios: Sequence[Scenario]) -> tuple[str, ...]:
    """Return what speaks against the measured all-reduce of scenarios with one number of GPUs."""
    curve, ranks = scenarios[0].curve, scenarios[0].tp_size
    if curve is None:
        return ()
    steps, rounds = [], []
    for one in scenarios:
        step_bytes = one.rig().forward_work().allreduce_bytes_per_token * one.batch_size
        steps.append(step_bytes)
        rounds.append(step_bytes * one.rows)
    outside = outside_doubt(curve, min(steps), max(rounds))
    doubts = (*curve_doubts(curve), *([outside] if outside else []))
    return tuple(f"measured all-reduce of {ranks} ranks: {doubt}" for doubt in doubts)


_LOAD: Final = (
    *("depth", "topk", "num_draft_tokens", "batch_size", "context_tokens", "accept_length"),
)


def scenario_to_record(scenario: Scenario) -> dict[str, Any]:
    """Record of a rig as a calibration keeps it: without load and accept length."""
    record: dict[str, Any] = to_record(scenario)
    return {name: value for name, value in record.items() if name not in _LOAD}


def scenario_from_record(record: Mapping[str, Any], *, path: str = "calibration") -> Scenario:
    """A rig from its record, at one request and depth 1; one that cannot be is a `FormatError` of the path."""
    try:
        scenario = from_record(Scenario, record)
        scenario.rig()
    except (SpecModelError, ArithmeticError, ValueError) as error:
        message = f"its rig cannot be read ({error}); run `specmodel fit` again"
        raise FormatError(path, message, code="edited") from None
    return scenario
