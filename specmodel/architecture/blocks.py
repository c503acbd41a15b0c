"""The kinds of attention and of feed-forward block that a layer is made of."""

from dataclasses import dataclass

from specmodel.architecture.counts import check_counts
from specmodel.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseIndex:
    """A small scorer that picks the cached tokens a query attends to.

    Parameters
    ----------
    num_heads, head_dim : int
        Its query heads and their width, [-].
    topk_tokens : int
        Tokens it picks per query, [tokens].
    owned : bool
        False for a layer that uses the choice of another layer and holds no weights for it.
    query_from_hidden : bool
        True where its queries are projected from the hidden state and not from the query latent.
    """

    num_heads: int
    head_dim: int
    topk_tokens: int
    owned: bool = True
    query_from_hidden: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Multi-head, grouped-query or multi-query attention, over all tokens or over a window.

    Parameters
    ----------
    num_heads, num_kv_heads, head_dim : int
        Query heads, key and value heads, width of a head, [-].
    window_tokens : int, optional
        Newest tokens a query sees; None for all, [tokens].
    qkv_bias, output_bias, qk_norm, sinks : bool
        Small tensors that the layer has.
    gate_width : int
        Outputs of the projection that gates the attention output; 0 without a gate, [-].
    stored_key_is_value : bool
        One projection gives both; the cache still holds two entries.
    index : SparseIndex, optional
        Where a query attends to a chosen part of the cache.
    input_multiple : int
        Hidden sizes that its projections take in: 2 in an EAGLE-3 draft, which joins embedding and
        hidden state, [-].
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False
    gate_width: int = 0
    stored_key_is_value: bool = False
    index: SparseIndex | None = None
    input_multiple: int = 1

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("gate_width",))
        if self.num_heads % self.num_kv_heads:
            raise ParameterError(
                "num_heads", self.num_heads, f"a multiple of num_kv_heads {self.num_kv_heads}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed entry per token, shared by all heads.

    Parameters
    ----------
    num_heads : int
        Query heads, [-].
    q_lora_rank : int, optional
        Width of the query latent; None where queries are projected directly, [-].
    kv_lora_rank : int
        Width of the key and value latent, [-].
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim : int
        Widths of a head: keys without and with rotation, values, [-].
    output_gate : bool
        True with a full projection that gates the attention output.
    index : SparseIndex, optional
        Where a query attends to a chosen part of the cache.
    """

    num_heads: int
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
    """Gated linear attention: a state per request instead of an entry per token.

    Parameters
    ----------
    num_key_heads, num_value_heads : int
        Heads of keys (and queries) and of values, [-].
    key_head_dim, value_head_dim : int
        Their widths, [-].
    conv_kernel : int
        Taps of the short convolution, [tokens].
    channel_decay : bool
        True for Kimi delta attention, whose decay has an entry per channel from a low-rank
        projection; False for gated DeltaNet, with one per head.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    channel_decay: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a short window and over entries that each stand for several tokens.

    Parameters
    ----------
    num_heads, head_dim, q_lora_rank : int
        Query heads, width of a head and of the query latent, [-].
    output_groups, output_lora_rank : int
        Groups of the output projection and the width of each group's latent, [-].
    window_tokens : int
        Newest tokens that are kept as they are, [tokens].
    compress_ratio : int
        Tokens per compressed entry; 0 for a layer with the window alone, [tokens].
    owns_cache : bool
        False for a layer that reads the compressed entries of another layer.
    index : SparseIndex, optional
        Where a query attends to chosen entries.
    """

    num_heads: int
    head_dim: int
    q_lora_rank: int
    output_groups: int
    output_lora_rank: int
    window_tokens: int
    compress_ratio: int = 0
    owns_cache: bool = True
    index: SparseIndex | None = None

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("compress_ratio",))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Gated feed-forward block: three matrices.

    Parameters
    ----------
    width : int
        Intermediate size, [-].
    bias : bool
        True where the projections have one.
    """

    width: int
    bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Mixture of experts: a router, routed experts, and what every token uses besides.

    Parameters
    ----------
    width : int
        Intermediate size of one routed expert, [-].
    num_experts, experts_per_token : int
        Routed experts of the layer and those a token uses, [-].
    shared_width : int
        Intermediate size of the shared experts together, 0 without, [-].
    shared_gate : bool
        True where the shared expert is weighted by a gate.
    bias : bool
        True where experts and router have biases.
    routed_hidden_size : int, optional
        Width at which the routed experts work, where it is not the hidden size, [-].
    """

    width: int
    num_experts: int
    experts_per_token: int
    shared_width: int = 0
    shared_gate: bool = False
    bias: bool = False
    routed_hidden_size: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("shared_width",))
        if self.experts_per_token > self.num_experts:
            raise ParameterError(
                "experts_per_token",
                self.experts_per_token,
                f"at most num_experts {self.num_experts}",
            )


Attention = GroupedAttention | LatentAttention | LinearAttention | CompressedAttention
Mlp = DenseMlp | MoeMlp
