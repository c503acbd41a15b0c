"""A model on some GPUs: what a step and a round take before anything was measured there."""

from dataclasses import dataclass, field, fields, replace
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

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
from specmodel.cost.allreduce_curve import AllReduceCurve
from specmodel.cost.allreduce_prior import AllReducePrior
from specmodel.cost.forward_work import DeviceRates, ForwardWork
from specmodel.cost.physical_round import RoundParts, round_parts
from specmodel.cost.round_inputs import Drafter, Engine
from specmodel.cost.step_multipliers import StepMultipliers
from specmodel.cost.step_time import AllReduce, StepParts
from specmodel.cost.typical_rates import STEP_HOST_S, typical_rates
from specmodel.errors import ParameterError
from specmodel.hardware import Gpu, gpu
from specmodel.rig.link_prior import link_prior
from specmodel.rig.row_blocks import draw_columns, priced_in_blocks
from specmodel.rig.shape_work import shape_work
from specmodel.rig.usual_drafts import DraftPasses

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


def _typical_engine() -> Engine:
    """Host times of a step and a round, everything in turn, every size captured."""
    return Engine(step_host_s=STEP_HOST_S, round_host_s=STEP_HOST_S)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A model, the GPUs that serve it by tensor parallelism, and the engine.

    Parameters
    ----------
    target : str or ModelShape
        Name of a packaged model, or a shape.
    device : str or Gpu
        Name of a GPU of the catalogue, or one.
    tp_size : int
        GPUs, at least 1, [-].
    interconnect : str
        Link between them, of the catalogue or a class of `prior_classes`; needed for several GPUs
        without a curve.
    allreduce : AllReduceCurve or None
        Measured all-reduce of these GPUs, which goes before the prior of `interconnect`.
    allreduce_kernel : str
        ``nccl`` or ``engine``; without it what vLLM's gate chooses for a small message.
    dtype : str or Quantisation
        Stored weights, as `stated_weights` reads them; those of the first release when empty.
    kv_bytes_per_value : float
        2 for bf16, 1 for fp8, [B].
    context_parallel : int
        Ranks that share the tokens of a request, at least 1, [-].
    draft : DraftPasses or Drafter or None
        Draft model; needed for rounds.
    draft_tp_size : int or None
        GPUs that share the draft model; `tp_size` when None, 1 for a replicated one, [-].
    engine : Engine
        Host times, schedule, graphs.
    usable_share : float
        Part of the memory that the engine may use, in (0, 1], [-].

    Raises
    ------
    UnknownKeyError
        If a name is not known.
    ParameterError
        If the weights do not fit, a link is missing, or a value is impossible.

    Notes
    -----
    Pipeline parallelism, data-parallel attention and mixed GPUs are outside. Rates are those of
    `typical_rates`: a prediction from nothing, whose spread `specmodel.rig.factors.factor_sd` has.
    Requests are not refused for memory; ask `fit`.

    Examples
    --------
    >>> rig = Rig(target="Kimi-K2.5", device="RTX PRO 6000 Server", tp_size=8, interconnect="pcie5")
    >>> round(float(rig.step_time().total_s) * 1e3)
    12
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
    engine: Engine = field(default_factory=_typical_engine)
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

        Parameters
        ----------
        batch_size : float
            :math:`B`, at least 0, [-].
        context_tokens : float
            :math:`C`, at least 0, [tokens].

        Returns
        -------
        MemoryFit

        Raises
        ------
        ParameterError
            If a value is impossible, or the GPU's memory is not known.

        Notes
        -----
        As `memory_fit`; a draft model needs memory besides.

        Examples
        --------
        >>> rig = Rig(target="Qwen3-8B", device="H100")
        >>> rig.fit(batch_size=4, context_tokens=8192).fits, rig.fit(batch_size=1e5).fits
        (True, False)
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

        Returns
        -------
        DeviceRates

        Raises
        ------
        ParameterError
            If the catalogue has no bandwidth or no 16-bit rate for the GPU.

        Notes
        -----
        Products run at the rate of the experts' format (of a dense model, its feed-forward
        blocks'), or at 16 bits where the GPU has no such rate.

        Examples
        --------
        >>> Rig(target="Qwen3-8B", device="H100", dtype="fp8").rates().flop_per_s / 1e12
        989.5
        """
        card, weights = self.gpu, self.shape.weights
        stored = weights.routed_experts if self.shape.num_experts else weights.dense_mlp
        wanted = RATE_OF_WEIGHTS.get(stored.name, "fp16")
        return typical_rates(card, wanted if wanted in card.dense_flop_per_s else "fp16")

    def forward_work(self, context_tokens: ArrayLike = 0.0) -> ForwardWork:
        r"""What one forward pass of the target reads, computes and sends.

        .. math:: W, W_e, \kappa(C), F, A

        Parameters
        ----------
        context_tokens : array-like
            :math:`C`, at which windows, sparse attention and states are priced, [tokens].

        Returns
        -------
        ForwardWork
            What depends on the context has its shape.

        Raises
        ------
        ParameterError
            If the context is impossible.

        Notes
        -----
        Bytes of the cache are a mean per token of this context, at least one token.

        Examples
        --------
        >>> rig = Rig(target="Kimi-K2.5", device="RTX PRO 6000 Server", tp_size=8, interconnect="pcie5")
        >>> rig.forward_work().allreduce_bytes_per_token
        14336.0
        """
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
        r"""Time of a step without speculation, with the engine's host time.

        .. math:: T_1(B, C)

        Parameters
        ----------
        batch_size, context_tokens : array-like
            :math:`B \ge 1, C \ge 0`, [-], [tokens].
        multipliers : StepMultipliers, optional
            Numbers, or draws of shape (d,).

        Returns
        -------
        StepParts
            Of the broadcast shape; with draws a first axis of d more.

        Raises
        ------
        ParameterError
            If a number is impossible.

        Notes
        -----
        `specmodel.cost.step_time.step_time` of `forward_work`.

        Examples
        --------
        >>> rig = Rig(target="Llama-3.1-8B", device="A100")
        >>> draws = StepMultipliers(bandwidth=np.array([0.9, 1.0, 1.1]))
        >>> rig.step_time([1, 8], multipliers=draws).total_s.shape
        (3, 2)
        """
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
        r"""Time of a round and where it goes; at depth 0, of a step.

        .. math:: T_r = T_D + T_V + T_\text{host}

        Parameters
        ----------
        num_steps : array-like
            :math:`k \ge 0`, [tokens].
        topk : array-like
            At least 1, [-].
        num_draft_tokens : array-like, optional
            Verified rows of a request, root included; ``num_steps + 1`` without it, [tokens].
        batch_size, context_tokens : array-like
            :math:`B \ge 1, C \ge 0`, [-], [tokens].
        multipliers : StepMultipliers, optional
            Numbers, or draws of shape (d,).

        Returns
        -------
        RoundParts
            Of the broadcast shape; with draws a first axis of d more.

        Raises
        ------
        ParameterError
            If a number is impossible or the draft model is missing.

        Notes
        -----
        `specmodel.cost.physical_round.round_parts` of `forward_work` at each context.

        Examples
        --------
        >>> from specmodel.rig import mtp_passes
        >>> from specmodel.architecture import preset
        >>> rig = Rig(target="Qwen3.6-27B", device="RTX 5090", dtype="nvfp4",
        ...           draft=mtp_passes(preset("Qwen3.6-27B")))
        >>> times = rig.round_parts([0, 3]).total_s
        >>> bool(1.2 < times[1] / times[0] < 2.5)
        True
        """
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
        if self.tp_size == 1:
            return 0.0
        prior = self._allreduce_prior()
        if prior is not None and prior.kernel == "engine":
            library = link_prior(self.interconnect, self.tp_size, kernel="nccl")
            # engines leave to the library what their own kernel is slower at
            return lambda message: np.minimum(prior.at(message), library.at(message))
        if prior is not None:
            return prior.at
        return self.allreduce.at if self.allreduce is not None else 0.0

    def _drafter(self, context: ArrayLike) -> Drafter | None:
        """Work of the draft passes at each context."""
        if not isinstance(self.draft, DraftPasses):
            return self.draft
        ranks = self.draft_tp_size or self.tp_size

        def work(shape: ModelShape) -> ForwardWork:
            return shape_work(
                shape, ranks, context_tokens=context, kv_bytes_per_value=self.kv_bytes_per_value
            )

        return Drafter(
            kind=self.draft.kind,
            work=work(self.draft.later or self.draft.first),
            extend_work=work(self.draft.first),
            step_host_s=self.draft.step_host_s,
            measured_step_s=self.draft.measured_step_s,
            measured_extend_s=self.draft.measured_extend_s,
        )
