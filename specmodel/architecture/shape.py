"""A language model as counts: layers, widths, heads, experts and stored formats."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from specmodel.architecture.quantisation import Quantisation
from specmodel.errors import ParameterError

# No size, width or number of a model is above it; a larger one is a typing error (judgement).
LARGEST_COUNT: Final = 10**10

# Bound of the time that a description takes (judgement; the deepest public model has 126).
MOST_LAYERS: Final = 10_000


def check_counts(record: Any, *, zero_allowed: tuple[str, ...] = ()) -> None:
    """Refuse a dataclass with an int out of bounds; bool, None and records are left alone."""
    for each in dataclasses.fields(record):
        value = getattr(record, each.name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        lowest = 0 if each.name in zero_allowed else 1
        if not lowest <= value <= LARGEST_COUNT:
            allowed = f"a whole number from {lowest} to {LARGEST_COUNT}"
            raise ParameterError(each.name, value, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseIndex:
    """A small scorer that picks the cached tokens a query attends to."""

    num_heads: int
    head_dim: int
    topk_tokens: int
    # False for a layer that uses the choice of another layer and holds no weights for it.
    owned: bool = True
    # True where its queries are projected from the hidden state and not from the query latent.
    query_from_hidden: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Multi-head, grouped-query or multi-query attention, over all tokens or over a window."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False
    # Outputs of the projection that gates the attention output; 0 without a gate.
    gate_width: int = 0
    # One projection gives both; the cache still holds two entries.
    stored_key_is_value: bool = False
    index: SparseIndex | None = None
    # Hidden sizes that its projections take in: 2 in an EAGLE-3 draft, which joins two states.
    input_multiple: int = 1

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("gate_width",))
        if self.num_heads % self.num_kv_heads:
            raise ParameterError(
                "num_heads", self.num_heads, f"a multiple of num_kv_heads {self.num_kv_heads}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed entry per token, shared by all heads."""

    num_heads: int
    # Width of the query latent; None where queries are projected directly.
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    output_gate: bool = False
    index: SparseIndex | None = None

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("qk_rope_head_dim",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Gated linear attention: a state per request instead of an entry per token."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    # True for Kimi delta attention, whose low-rank decay has an entry per channel; else per head.
    channel_decay: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a short window and over entries that each stand for several tokens."""

    num_heads: int
    head_dim: int
    q_lora_rank: int
    output_groups: int
    output_lora_rank: int
    window_tokens: int
    # Tokens per compressed entry; 0 for a layer with the window alone.
    compress_ratio: int = 0
    # False for a layer that reads the compressed entries of another layer.
    owns_cache: bool = True
    index: SparseIndex | None = None

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("compress_ratio",))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Gated feed-forward block: three matrices."""

    width: int
    bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Mixture of experts: a router, routed experts, and what every token uses besides."""

    width: int
    num_experts: int
    experts_per_token: int
    # Intermediate size of the shared experts together.
    shared_width: int = 0
    shared_gate: bool = False
    bias: bool = False
    # Width at which the routed experts work, where it is not the hidden size.
    routed_hidden_size: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("shared_width",))
        if self.experts_per_token > self.num_experts:
            allowed = f"at most num_experts {self.num_experts}"
            raise ParameterError("experts_per_token", self.experts_per_token, allowed)


Attention = GroupedAttention | LatentAttention | LinearAttention | CompressedAttention
Mlp = DenseMlp | MoeMlp


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Equal layers of a model."""

    count: int
    attention: Attention
    mlp: Mlp

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a language model is made of; its layers stand in any order."""

    name: str
    # Class or model type in its ``config.json``.
    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerGroup, ...]
    tie_embeddings: bool = False
    # Multi-token-prediction layers in the checkpoint, not among `layers`.
    mtp_layers: int = 0
    # Parameters of encoders that decoding does not read.
    other_parameters: int = 0
    # Width of the target's states that a draft model projects to its own; 0 for a target.
    fused_width: int = 0
    weights: Quantisation = field(default_factory=Quantisation)
    # What a reader of the numbers has to know.
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("mtp_layers", "other_parameters", "fused_width"))
        if not 1 <= self.num_layers <= MOST_LAYERS:
            raise ParameterError("num_layers", self.num_layers, f"from 1 to {MOST_LAYERS}")

    @property
    def num_layers(self) -> int:
        """Depth without multi-token-prediction layers."""
        return sum(group.count for group in self.layers)

    @property
    def moe_groups(self) -> tuple[tuple[int, MoeMlp], ...]:
        """Layers that route, as (count, block); empty for a dense model."""
        return tuple(
            (group.count, group.mlp) for group in self.layers if isinstance(group.mlp, MoeMlp)
        )

    @property
    def num_moe_layers(self) -> int:
        """Layers that route."""
        return sum(count for count, _ in self.moe_groups)

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer; 0 for a dense model."""
        return self.moe_groups[0][1].num_experts if self.moe_groups else 0

    @property
    def experts_per_token(self) -> int:
        """Routed experts that a token uses in a layer; 0 for a dense model."""
        return self.moe_groups[0][1].experts_per_token if self.moe_groups else 0

    def with_weights(self, weights: Quantisation) -> "ModelShape":
        """Return the same model stored in other formats: no count changes, only bytes."""
        return dataclasses.replace(self, weights=weights)


def grouped_layers(layers: Iterable[tuple[Attention, Mlp]]) -> tuple[LayerGroup, ...]:
    """Equal layers gathered, in the order of their first occurrence."""
    return tuple(
        LayerGroup(count=count, attention=attention, mlp=mlp)
        for (attention, mlp), count in Counter(layers).items()
    )
