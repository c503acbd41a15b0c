"""Draft models as they are usually built for a target: what each pass of a round reads."""

import dataclasses
from dataclasses import dataclass
from typing import Final, final

from specmodel.architecture import (
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    ModelShape,
    Quantisation,
)
from specmodel.architecture.shape import Attention
from specmodel.cost.round_inputs import KINDS, DraftKind, KnownTime
from specmodel.errors import ParameterError

DRAFT_HOST_S: Final = 0.25e-3
"""Host time of a draft pass beyond its kernels. With EAGLE-3 for Llama-3.1-8B on an H100, a pass that
reads for 0.28 ms takes some 0.4 ms in SGLang and 1.0 ms in a vLLM of 2025 [step-costs]_; the geometric
middle of the gaps, a judgement. [s]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPasses:
    """Shapes of the forward passes that draft a round.

    Parameters
    ----------
    first : ModelShape
        The pass over what verification left.
    later : ModelShape or None
        Each following pass; as `first` when None.
    kind : {"sequential", "parallel"}
        One pass per depth, or one for the whole block.
    step_host_s : float
        Host time of a pass, not negative, [s].
    measured_step_s, measured_extend_s : float, callable or None
        Known times of a later pass and of the first, which replace the computed ones, as in
        `specmodel.cost.round_inputs.Drafter`, [s].

    Raises
    ------
    ParameterError
        If the kind is neither.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> mtp_passes(preset("DeepSeek-V3")).kind
    'sequential'
    """

    first: ModelShape
    later: ModelShape | None = None
    kind: DraftKind = "sequential"
    step_host_s: float = DRAFT_HOST_S
    measured_step_s: float | KnownTime | None = None
    measured_extend_s: float | KnownTime | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.kind == "lookup":
            raise ParameterError("kind", self.kind, "'sequential' or 'parallel'")


def mtp_passes(target: ModelShape, *, weights: Quantisation | None = None) -> DraftPasses:
    r"""Passes of a multi-token-prediction layer of the target.

    .. math:: P = P_\text{layer} + 2 h^2 + V h

    Parameters
    ----------
    target : ModelShape
        The model, with :math:`V` tokens of width :math:`h`.
    weights : Quantisation, optional
        Formats of the layer; bf16 without it, as four-bit checkpoints mostly leave it (judgement).

    Returns
    -------
    DraftPasses

    Raises
    ------
    ParameterError
        If the target has no layer with full attention.

    Notes
    -----
    The last layer that is not linear, behind a projection of hidden state and embedding, and the
    target's head: the layout of DeepSeek-V3 [model-shapes]_, a judgement for others.

    Examples
    --------
    >>> from specmodel.architecture import parameter_counts, preset
    >>> counts = parameter_counts(mtp_passes(preset("DeepSeek-V3")).first)
    >>> round((counts.total - counts.embedding - counts.head) / 1e9, 1)
    11.6
    """
    full = [group for group in target.layers if not isinstance(group.attention, LinearAttention)]
    if not full:
        raise ParameterError("target", target.name, "a model with full attention in a layer")
    layer = dataclasses.replace(full[-1], count=1)
    shape = dataclasses.replace(
        target,
        name=f"MTP layer of {target.name}",
        layers=(layer,),
        fused_width=2 * target.hidden_size,
        mtp_layers=0,
        other_parameters=0,
        weights=weights or Quantisation(),
    )
    return DraftPasses(first=shape)


def eagle3_passes(
    target: ModelShape,
    *,
    mlp_width: int,
    vocab_size: int,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    hidden_size: int | None = None,
    head_dim: int = 128,
) -> DraftPasses:
    r"""Passes of an EAGLE-3 head: one dense layer over two states, and a head of its own.

    .. math:: P = 2h(n_q + 2 n_{kv}) d + n_q d h + 3 h w + V h,\quad 3 h_t h\ \text{more in the first}

    Parameters
    ----------
    target : ModelShape
        The model, of width :math:`h_t`.
    mlp_width, vocab_size : int
        :math:`w, V`, of the head; the vocabulary may be reduced, [-].
    num_heads, num_kv_heads : int, optional
        :math:`n_q, n_{kv}`; without them the target's latent attention, [-].
    hidden_size : int, optional
        :math:`h`; the target's without it, [-].
    head_dim : int
        :math:`d`, [-].

    Returns
    -------
    DraftPasses

    Raises
    ------
    ParameterError
        If neither heads are given nor the target has latent attention, or a size is impossible.

    Notes
    -----
    bf16. A head with its own ``config.json`` is read by `specmodel.architecture.shape_from_config`
    instead. The second input of latent attention is left out: 2 % of Kimi's head. The extra
    projection of three states is read once a round.

    Examples
    --------
    >>> from specmodel.architecture import matrix_flop_per_token, preset
    >>> passes = eagle3_passes(
    ...     preset("Llama-3.1-8B"), mlp_width=14336, vocab_size=32000, num_heads=32, num_kv_heads=8)
    >>> round(matrix_flop_per_token(passes.later) / 1e9, 2)
    0.75
    """
    attention: Attention
    if num_heads is not None and num_kv_heads is not None:
        attention = GroupedAttention(
            num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, input_multiple=2
        )
    elif isinstance(target.layers[-1].attention, LatentAttention):
        attention = dataclasses.replace(target.layers[-1].attention, index=None)
    else:
        raise ParameterError("num_heads", num_heads, "given, as is num_kv_heads, for this target")
    later = ModelShape(
        name=f"EAGLE-3 head of {target.name}",
        architecture="LlamaForCausalLMEagle3",
        hidden_size=hidden_size or target.hidden_size,
        vocab_size=vocab_size,
        layers=(LayerGroup(count=1, attention=attention, mlp=DenseMlp(width=mlp_width)),),
    )
    first = dataclasses.replace(later, fused_width=3 * target.hidden_size)
    return DraftPasses(first=first, later=later)
