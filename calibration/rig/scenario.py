"""A rig, its load and an accept length: what a physical price is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.rig.draft import DraftChoice
from specmodel.architecture import MemoryFit, ModelShape, stated_weights
from specmodel.cost.allreduce import AllReduceCurve, curve_doubts, outside_doubt
from specmodel.cost.forward import GraphCapture
from specmodel.cost.physical_round import Schedule
from specmodel.cost.relative import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.errors import FormatError, ParameterError, SpecModelError
from specmodel.hardware import Gpu, gpu, gpus
from specmodel.model_error import Loads
from specmodel.question import Configuration, longest_accept_length
from specmodel.records import from_record, to_record
from specmodel.rig import Rig
from specmodel.rig.served_model import TYPICAL_ENGINE, link_class

Array = NDArray[np.float64]


def card_link(name: str) -> str:
    """Link that servers of a card usually have.

    A judgement: NVLink with switches from 900 GB/s, and on SXM cards from 600 GB/s; else PCIe.
    """
    card = gpu(name)
    rate = card.nvlink_bytes_per_s or 0.0
    if rate >= 9e11:
        return "nvlink5" if rate >= 1.8e12 else "nvlink4"
    if rate >= 6e11 and "SXM" in card.name:
        return "nvlink3"
    return pcie_link(card)


def pcie_link(card: Gpu) -> str:
    """PCIe link of a card, of the generation that it has."""
    return f"pcie{min(max(card.pcie_generation or 4, 3), 5)}"


def edition_of(name: str) -> tuple[str, str]:
    """Card of the catalogue; where a name leaves the edition open, the fastest one.

    A judgement: editions differ in bandwidth by little.
    """
    found = gpu(name)
    editions = [
        one
        for one in gpus().values()
        if one.name.startswith(found.name) and one.memory_bandwidth_bytes_per_s is not None
    ]
    if found.memory_bandwidth_bytes_per_s is not None or not editions:
        return found.name, ""
    fastest = max(editions, key=lambda one: one.bandwidth_bytes_per_s())
    return fastest.name, f"{fastest.name}, since {found.name} leaves the edition open"


class RoundShape(NamedTuple):
    """Depth, branches and verified rows of rounds; whether nothing tells the depth."""

    num_steps: Array
    topk: Array
    num_draft_tokens: Array
    depth_unknown: NDArray[np.bool_]


def round_shape(
    num_steps: ArrayLike | None, topk: ArrayLike | None, num_draft_tokens: ArrayLike | None
) -> RoundShape:
    """Shape of rounds, completed where it is None or NaN.

    .. math:: k = n - 1
    """
    depth, branches, rows = (
        np.asarray(value, dtype=np.float64) for value in (num_steps, topk, num_draft_tokens)
    )
    tree = branches > 1
    unknown = np.isnan(depth) & (tree | ~(rows > 1))
    told = np.where(unknown, UNKNOWN_DEPTH_NUM_STEPS, rows - 1.0)
    depth = np.where(np.isnan(depth), told, depth)
    stated = ~np.isnan(rows) & (tree | ~unknown)
    return RoundShape(
        num_steps=depth,
        topk=np.where(tree, branches, 1.0),
        num_draft_tokens=np.where(stated, rows, depth + 1.0),
        depth_unknown=unknown,
    )


KERNELS: Final = ("", "nccl", "engine")
"""All-reduce kernels that can be named; none leaves it to the engine's gate."""

KV_BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
}
"""Formats of the KV cache that can be named, by what a value takes, [B]."""

LOAD_KEYS: Final = ("batch_size", "context_tokens", "depth", "topk", "num_draft_tokens")
"""Fields of a scenario that are its load and not its rig."""

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


@dataclass(frozen=True, kw_only=True)
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
        if self.interconnect and self.curve is None:
            link_class(self.interconnect)

    @property
    def curve(self) -> AllReduceCurve | None:
        """Measured all-reduce of this number of GPUs; None where there is none."""
        return dict(self.curves).get(self.tp_size) if self.tp_size > 1 else None

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
        return Loads.concatenated(rounds.base_steps(), rounds)

    @property
    def longest(self) -> float:
        """Most tokens that a round emits; a block that one step proposes is longer than its depth."""
        configuration = Configuration(
            num_steps=self.depth, topk=self.topk, num_draft_tokens=self.rows
        )
        return float(longest_accept_length(configuration) or self.rows)

    def at(self, load: Configuration, accept_length: float = 1.0) -> "Scenario":
        """The rig at a load; a depth that is not stated is that of the fit."""
        shape = round_shape(load.num_steps, load.topk, load.num_draft_tokens)
        chain = shape.topk == 1 and shape.num_draft_tokens == shape.num_steps + 1
        return replace(
            self,
            depth=max(int(shape.num_steps), 1),
            topk=int(shape.topk),
            num_draft_tokens=None if chain else int(shape.num_draft_tokens),
            batch_size=load.batch_size or 1.0,
            context_tokens=load.context_tokens or 0.0,
            accept_length=accept_length,
        )

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
            engine=replace(
                TYPICAL_ENGINE,
                schedule=self.schedule,
                capture=None if self.capture_limit is None else captured_to(self.capture_limit),
            ),
        )

    def memory(self) -> MemoryFit:
        """Memory that the rig needs at its load, and what there is."""
        return self.rig().fit(batch_size=self.batch_size, context_tokens=self.context_tokens)

    def facts(self) -> dict[str, object]:
        """What tells one rig from another, by name; loads and draft model are apart."""
        link = ""
        if self.tp_size > 1:  # all measured curves are of one machine
            measured = self.curve is not None
            link = "the measured link" if measured else link_class(self.interconnect)
        return {
            "model": self.model,
            "gpu": gpu(self.gpu).name,
            "interconnect": link,
            "tp_size": self.tp_size,
            "dtype": stated_weights(self.model, self.dtype),
            "allreduce": self.kernel if self.tp_size > 1 else "",
            "schedule": self.schedule,
            "capture_limit": self.capture_limit,
        }


def doubts_of_all_reduce(scenarios: Sequence[Scenario]) -> tuple[str, ...]:
    """What speaks against the measured all-reduce of scenarios with one number of GPUs."""
    curve, ranks = scenarios[0].curve, scenarios[0].tp_size
    if curve is None:
        return ()
    steps = [
        one.rig().forward_work().allreduce_bytes_per_token * one.batch_size for one in scenarios
    ]
    rounds = [step * one.rows for step, one in zip(steps, scenarios, strict=True)]
    outside = outside_doubt(curve, min(steps), max(rounds))
    doubts = filter(None, (*curve_doubts(curve), outside))
    return tuple(f"measured all-reduce of {ranks} ranks: {doubt}" for doubt in doubts)


def scenario_to_record(scenario: Scenario) -> dict[str, Any]:
    """Record of a rig as a calibration keeps it: without load and accept length."""
    record: dict[str, Any] = to_record(scenario)
    load = {*LOAD_KEYS, "accept_length"}
    return {name: value for name, value in record.items() if name not in load}


def scenario_from_record(record: Mapping[str, Any], *, path: str = "calibration") -> Scenario:
    """A rig from its record, at one request and depth 1; one that cannot be is a `FormatError` of the path."""
    try:
        scenario = from_record(Scenario, record)
        scenario.rig()
    except (SpecModelError, ArithmeticError, ValueError) as error:
        message = f"its rig cannot be read ({error}); run `specmodel fit` again"
        raise FormatError(path, message, code="edited") from None
    return scenario
