"""A model on some GPUs: what a step and a round take before anything was measured there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.architecture import (
    MemoryFit,
    ModelShape,
    Quantisation,
    memory_fit,
    preset,
    require_fit,
    stated_weights,
)
from specmodel.architecture.memory import USABLE_SHARE
from specmodel.cost.allreduce import (
    AllReduceCurve,
    AllReducePrior,
    allreduce_prior,
    prior_classes,
    vllm_kernel,
)
from specmodel.cost.forward import (
    STEP_HOST_S,
    AllReduce,
    DeviceRates,
    ForwardWork,
    StepMultipliers,
    StepParts,
    typical_rates,
)
from specmodel.cost.physical_round import Drafter, Engine, RoundParts, round_parts
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.hardware import Gpu, gpu, interconnect
from specmodel.rig.shape_work import shape_work
from specmodel.rig.usual_drafts import DraftPasses

Array = NDArray[np.float64]

SMALL_MESSAGE_BYTES: Final = 4096
"""Message at which the gate is asked for the kernel. [B]"""

LINK_CLASSES: Final = (
    ("InfiniBand", "nodes_infiniband"),
    ("RoCE", "roce"),
    ("PCIe 3", "pcie3"),
    ("PCIe 4", "pcie4"),
    ("PCIe 5", "pcie5"),
    ("NVLink 3 + NVSwitch", "nvlink3"),
    ("NVLink 4 + NVSwitch", "nvlink4"),
    ("NVLink 5 + NVSwitch", "nvlink5"),
)
"""Class of the all-reduce prior by how a name of the catalogue begins."""

BLOCK: Final = 65_536
"""Configurations times draws that are priced at once: half a megabyte an array. [-]"""

CURVE_LOG_SD: Final = 0.1
"""Spread of an all-reduce in the engine about its measured curve (judgement). [-]"""

RATE_OF_WEIGHTS: Final = {
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "mxfp8": "fp8",
    "fp8": "fp8",
    "int8": "int8",
}
"""Rate at which products of a stored format run; others are widened to 16 bits. [-]"""


TYPICAL_ENGINE: Final = Engine(step_host_s=STEP_HOST_S, round_host_s=STEP_HOST_S)
"""Everything in turn, every size captured."""


def link_prior(name: str, num_ranks: int, *, kernel: str = "") -> AllReducePrior:
    """Prior of the all-reduce over a link of the catalogue.

    The gate takes the engine's kernel on NVLink and on a pair with peer access; patched engines
    have one-shot kernels on more PCIe cards, which must be asked for. allreduce.md 6.
    """
    link = link_class(name)
    gate = vllm_kernel(
        num_ranks,
        SMALL_MESSAGE_BYTES,
        fully_nvlinked=link.startswith("nvlink"),
        compute_capability=90,
    )
    engine = gate != "library" and "engine" in prior_classes().get(link, ())
    return allreduce_prior(link, num_ranks, kernel=kernel or ("engine" if engine else "nccl"))


def link_class(name: str) -> str:
    """Class of the all-reduce prior of a link; what can be priced is listed where there is none."""
    known = [*prior_classes()]
    if not name:
        allowed = "named for several GPUs without a measured all-reduce"
        raise ParameterError("interconnect", "none", allowed, f"one of {', '.join(known)}")
    if name in known:
        return name
    try:
        link = interconnect(name).name
    except UnknownKeyError:
        raise UnknownKeyError("interconnect", name, known) from None
    if link.endswith("without peer access"):
        return "pcie_no_peer_access"
    for begin, found in LINK_CLASSES:
        if link.startswith(begin):
            return found
    raise UnknownKeyError("class of all-reduces for the interconnect", link, known)


def draw_columns(multipliers: StepMultipliers) -> StepMultipliers:
    """Draws along a first axis, before the configurations; numbers stay numbers."""
    columns = {}
    for each in fields(multipliers):
        value = getattr(multipliers, each.name)
        if np.ndim(value) > 1:
            raise ParameterError("multipliers", "a table", "numbers or draws of shape (d,)")
        columns[each.name] = value[:, None] if np.ndim(value) else value
    return StepMultipliers(**columns)


def priced_in_blocks(
    shape: tuple[int, ...], priced: Callable[[slice], RoundParts], *, num_draws: int = 1
) -> RoundParts:
    """Rounds of every configuration, a block at a time; their size changes no number."""
    size, length = int(np.prod(shape)), max(1, BLOCK // num_draws)
    if not size:
        raise ParameterError("num_steps", "no configuration", "at least one")
    blocks = [slice(first, min(first + length, size)) for first in range(0, size, length)]

    def joined(pieces: Sequence[Any]) -> Any:
        kind = type(pieces[0])
        if is_dataclass(kind):
            names = [each.name for each in fields(kind)]
            return kind(
                **{name: joined([getattr(each, name) for each in pieces]) for name in names}
            )
        lead = np.broadcast_shapes(*(np.shape(each)[:-1] for each in pieces))
        whole = [
            np.broadcast_to(each, (*lead, rows.stop - rows.start))
            for rows, each in zip(blocks, pieces, strict=True)
        ]
        return np.concatenate(whole, axis=-1).reshape((*lead, *shape))

    found: RoundParts = joined([priced(rows) for rows in blocks])
    return found


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A model, the GPUs that serve it by tensor parallelism, and the engine.

    Pipeline parallelism, data-parallel attention and mixed GPUs are outside. Rates are those of
    `typical_rates`: a prediction from nothing, whose spread `specmodel.rig.factors.factor_sd` has.
    Requests are not refused for memory; ask `fit`.
    """

    target: str | ModelShape
    device: str | Gpu
    tp_size: int = 1
    interconnect: str = ""
    allreduce: AllReduceCurve | None = None
    allreduce_kernel: str = ""
    dtype: str | Quantisation = ""
    kv_bytes_per_value: float = 2.0
    context_parallel: int = 1
    draft: DraftPasses | Drafter | None = None
    draft_tp_size: int | None = None
    engine: Engine = TYPICAL_ENGINE
    usable_share: float = USABLE_SHARE

    def __post_init__(self) -> None:
        require_fit(self.fit(batch_size=0))
        if not 1 <= self.context_parallel <= self.tp_size:
            raise ParameterError("context_parallel", self.context_parallel, "from 1 to tp_size")
        if self.draft_tp_size not in {None, 1, self.tp_size}:
            raise ParameterError("draft_tp_size", self.draft_tp_size, "1 or tp_size")
        self.rates()
        self._allreduce_prior()

    @property
    def shape(self) -> ModelShape:
        """The target with its stored formats."""
        shape = preset(self.target) if isinstance(self.target, str) else self.target
        if isinstance(self.dtype, Quantisation):
            return shape.with_weights(self.dtype)
        return shape.with_weights(stated_weights(shape, self.dtype))

    @property
    def gpu(self) -> Gpu:
        """One of the GPUs."""
        return gpu(self.device) if isinstance(self.device, str) else self.device

    def fit(self, *, batch_size: float = 1, context_tokens: float = 0) -> MemoryFit:
        r"""Memory that the model and its requests need, and what there is.

        .. math:: w/s + B\,b(C) + a \le u M

        As `memory_fit`; a draft model needs memory besides.
        """
        memory = self.gpu.memory_bytes
        if memory is None:
            raise ParameterError("device", self.gpu.name, "a GPU whose memory is known")
        return memory_fit(
            self.shape,
            self.tp_size,
            memory,
            batch_size=batch_size,
            context_tokens=context_tokens,
            kv_bytes_per_value=self.kv_bytes_per_value,
            context_parallel=self.context_parallel,
            usable_share=self.usable_share,
        )

    def rates(self) -> DeviceRates:
        r"""What one GPU is expected to sustain on the target's weights.

        .. math:: 0.8\, b,\quad 0.5\, f

        Products run at the rate of the experts' format (of a dense model, its feed-forward
        blocks'), or at 16 bits where the GPU has no such rate.
        """
        card, weights = self.gpu, self.shape.weights
        stored = weights.routed_experts if self.shape.num_experts else weights.dense_mlp
        wanted = RATE_OF_WEIGHTS.get(stored.name, "fp16")
        return typical_rates(card, wanted if wanted in card.dense_flop_per_s else "fp16")

    def forward_work(self, context_tokens: ArrayLike = 0.0) -> ForwardWork:
        """What one forward pass of the target reads, computes and sends, per token of the context."""
        return shape_work(
            self.shape,
            self.tp_size,
            context_tokens=context_tokens,
            kv_bytes_per_value=self.kv_bytes_per_value,
            context_parallel=self.context_parallel,
        )

    def step_time(
        self,
        batch_size: ArrayLike = 1,
        context_tokens: ArrayLike = 0,
        *,
        multipliers: StepMultipliers | None = None,
    ) -> StepParts:
        """Time of a step without speculation, with the engine's host time."""
        parts = self.round_parts(
            0, batch_size=batch_size, context_tokens=context_tokens, multipliers=multipliers
        )
        return replace(parts.verify, host_s=parts.verify.host_s + parts.host_s)

    def round_parts(
        self,
        num_steps: ArrayLike,
        topk: ArrayLike = 1,
        num_draft_tokens: ArrayLike | None = None,
        batch_size: ArrayLike = 1,
        context_tokens: ArrayLike = 0,
        *,
        multipliers: StepMultipliers | None = None,
    ) -> RoundParts:
        """Time of a round and where it goes; at depth 0, of a step."""
        rows = np.asarray(num_steps) + 1 if num_draft_tokens is None else num_draft_tokens
        given = (num_steps, topk, rows, batch_size, context_tokens)
        flat = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in given))
        arrays = [each.ravel() for each in flat]
        rates, draft_rates = self.rates(), typical_rates(self.gpu, "fp16")
        allreduce = self._allreduce_time()
        factors = draw_columns(multipliers or StepMultipliers())
        draws = max(np.size(getattr(factors, each.name)) for each in fields(factors))

        def priced(chosen: slice) -> RoundParts:
            depth, branches, verified, batch, context = (each[chosen] for each in arrays)
            return round_parts(
                self.forward_work(context),
                rates,
                num_steps=depth,
                drafter=self._drafter(context),
                num_draft_tokens=verified,
                topk=branches,
                batch_size=batch,
                context_tokens=np.maximum(context, 1.0),
                allreduce=allreduce,
                draft_device=draft_rates,
                engine=self.engine,
                multipliers=factors,
            )

        return priced_in_blocks(flat[0].shape, priced, num_draws=draws)

    @property
    def allreduce_log_sd(self) -> float:
        """Spread of the factor on the all-reduce: of its link's class, or of a measured curve, [-]."""
        prior = self._allreduce_prior()
        return CURVE_LOG_SD if prior is None else prior.log_sd

    def _allreduce_prior(self) -> AllReducePrior | None:
        """Prior of the link; None where there is one GPU or a measured curve."""
        if self.tp_size == 1 or self.allreduce is not None:
            return None
        return link_prior(self.interconnect, self.tp_size, kernel=self.allreduce_kernel)

    def _allreduce_time(self) -> AllReduce:
        """Time of an all-reduce against its bytes."""
        if self.tp_size > 1 and self.allreduce is not None:
            return self.allreduce.at
        prior = self._allreduce_prior()
        if prior is None:
            return 0.0
        if prior.kernel != "engine":
            return prior.at
        # engines leave to the library what their own kernel is slower at
        library = link_prior(self.interconnect, self.tp_size, kernel="nccl")
        return lambda message: np.minimum(prior.at(message), library.at(message))

    def _drafter(self, context: ArrayLike) -> Drafter | None:
        """Work of the draft passes at each context."""
        if not isinstance(self.draft, DraftPasses):
            return self.draft
        first, later = (
            shape_work(
                shape,
                self.draft_tp_size or self.tp_size,
                context_tokens=context,
                kv_bytes_per_value=self.kv_bytes_per_value,
            )
            for shape in (self.draft.first, self.draft.later or self.draft.first)
        )
        return Drafter(
            kind=self.draft.kind,
            work=later,
            extend_work=first,
            step_host_s=self.draft.step_host_s,
            measured_step_s=self.draft.measured_step_s,
            measured_extend_s=self.draft.measured_extend_s,
        )
