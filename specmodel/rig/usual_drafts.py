"""Draft models as they are usually built for a target: what each pass of a round reads."""

import dataclasses
from dataclasses import dataclass
from typing import Final

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
from specmodel.cost.physical_round import KINDS, DraftKind, KnownTime
from specmodel.errors import ParameterError

DRAFT_HOST_S: Final = 0.25e-3
"""Host time of a draft pass beyond its kernels. With EAGLE-3 for Llama-3.1-8B on an H100, a pass that
reads for 0.28 ms takes some 0.4 ms in SGLang and 1.0 ms in a vLLM of 2025 [step-costs]_; the geometric
middle of the gaps, a judgement. [s]"""


@dataclass(frozen=True, kw_only=True)
class DraftPasses:
    """Shapes of the forward passes that draft a round."""

    first: ModelShape
    later: ModelShape | None = None
    kind: DraftKind = "sequential"
    step_host_s: float = DRAFT_HOST_S
    measured_step_s: float | KnownTime | None = None
    measured_extend_s: float | KnownTime | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.kind == "lookup":
            raise ParameterError("kind", self.kind, "'sequential' or 'parallel'")


def mtp_passes(target: ModelShape) -> DraftPasses:
    """Passes of a multi-token-prediction layer of the target.

    The last layer that is not linear, behind a projection of hidden state and embedding, and the
    target's head: the layout of DeepSeek-V3 [model-shapes]_, a judgement for others.
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
        weights=Quantisation(),
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
    """Passes of an EAGLE-3 head: one dense layer over two states, and a head of its own.

    bf16. A head with its own ``config.json`` is read by `specmodel.architecture.shape_from_config`
    instead. The second input of latent attention is left out: 2 % of Kimi's head. The extra
    projection of three states is read once a round.
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
