"""What a forward pass reads, computes and sends: weights, cache, operations, all-reduces."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.architecture.parameters import (
    attention_parameters,
    expert_parameters,
    parameter_counts,
)
from specmodel.architecture.shape import (
    Attention,
    CompressedAttention,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    ModelShape,
)
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

# Bound of a parallel size (judgement).
MOST_RANKS: Final = 65_536
# The state of linear attention is kept in fp32 by default (judgement: some engines allow bf16).
STATE_BYTES_PER_VALUE: Final = 4.0
BYTES_PER_ACTIVATION: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes of a model's weights by part, whole or on one rank."""

    embedding: float  # the table that is looked up
    head: float  # as it is read, also where it is the embedding
    attention: float
    attention_replicated: float
    dense_mlp: float
    shared_experts: float
    router: float
    small: float
    routed_experts: float
    expert: float  # one expert in one layer (the mean, where layers differ); 0 for a dense model
    num_moe_layers: int
    num_experts: int
    experts_per_token: int
    other: float  # encoders that decoding does not read
    tied: bool

    @property
    def dense(self) -> float:
        """Bytes that every forward reads, whatever its tokens: all but experts and embedding."""
        return math.fsum(
            (
                self.head,
                self.attention,
                self.attention_replicated,
                self.dense_mlp,
                self.shared_experts,
                self.router,
                self.small,
            )
        )

    @property
    def replicated(self) -> float:
        """Part of `dense` that every tensor-parallel rank holds in full."""
        return self.attention_replicated + self.router + self.small

    @property
    def active(self) -> float:
        """Bytes that a forward of one token reads."""
        return self.dense + self.num_moe_layers * self.experts_per_token * self.expert

    @property
    def total(self) -> float:
        """Bytes that are stored."""
        table = 0.0 if self.tied else self.embedding
        return self.dense + table + self.routed_experts + self.other

    def read(self, distinct_experts: ArrayLike) -> Array:
        r"""Bytes that a forward reads when it touches so many experts in each layer, each weight once.

        .. math:: W = W_\text{dense} + L_\text{MoE} N w_\text{expert}

        `distinct_experts` as `specmodel.cost.expected_experts` gives. theory.md B3.
        """
        touched = np.asarray(distinct_experts, dtype=np.float64)
        return np.asarray(self.dense + self.num_moe_layers * self.expert * touched)


def weight_bytes(shape: ModelShape, *, tp_size: int = 1) -> WeightBytes:
    r"""Bytes of the weights of a model, or of one of :math:`s` ranks that share it.

    .. math:: w = \sum_\text{part} P_\text{part} b_\text{part} / s_\text{part}

    Query and output matrices, feed-forward blocks, experts, embedding and head are split; router, norms,
    latent and indexer matrices are held by every rank; a key-value projection is split at most as many
    ways as it has heads. With expert parallelism `expert` is the mean over ranks. allreduce.md 12.

    >>> from specmodel.architecture import preset
    >>> rank = weight_bytes(preset("Kimi-K2.5"), tp_size=8)
    >>> round(rank.attention / 1e9, 2), round(rank.attention_replicated / 1e9, 2)
    (1.31, 1.85)
    """
    check_ranks("tp_size", tp_size)
    counts, formats, hidden = parameter_counts(shape), shape.weights, shape.hidden_size
    head_format = formats.rest if shape.tie_embeddings else formats.head
    key_value = sum(
        group.count
        * attention_parameters(group.attention, hidden).key_value
        / min(tp_size, group.attention.num_kv_heads)
        for group in shape.layers
        if isinstance(group.attention, GroupedAttention)
    )
    expert_total = sum(
        count * mlp.num_experts * expert_parameters(mlp, hidden) for count, mlp in shape.moe_groups
    )
    experts_stored = sum(count * mlp.num_experts for count, mlp in shape.moe_groups)
    expert_bytes = expert_total * formats.routed_experts.bytes_per_weight / tp_size
    attention_byte = formats.attention.bytes_per_weight
    return WeightBytes(
        embedding=counts.embedding * formats.rest.bytes_per_weight / tp_size,
        head=(counts.head or counts.embedding) * head_format.bytes_per_weight / tp_size,
        attention=(counts.attention / tp_size + key_value) * attention_byte,
        attention_replicated=counts.attention_replicated * attention_byte,
        dense_mlp=counts.dense_mlp * formats.dense_mlp.bytes_per_weight / tp_size,
        shared_experts=counts.shared_experts * formats.shared_experts.bytes_per_weight / tp_size,
        router=counts.router * formats.rest.bytes_per_weight,
        small=counts.small * formats.rest.bytes_per_weight,
        routed_experts=expert_bytes,
        expert=expert_bytes / experts_stored if experts_stored else 0.0,
        num_moe_layers=shape.num_moe_layers,
        num_experts=shape.num_experts,
        experts_per_token=shape.experts_per_token,
        other=counts.other * formats.rest.bytes_per_weight,
        tied=shape.tie_embeddings,
    )


def check_ranks(name: str, value: int) -> None:
    """Refuse a parallel size that is not a number of ranks."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        raise ParameterError(name, value, f"a whole number from 1 to {MOST_RANKS}")


# --- cache ---


class CacheEntries(NamedTuple):
    """Entries that some layers keep per token."""

    bytes_per_entry: float  # of all these layers together
    tokens_per_entry: int = 1
    window_tokens: float = math.inf  # newest tokens that are kept
    most_read_entries: float = math.inf  # entries that one query reads


class KvCache(NamedTuple):
    """Key-value cache of one request, whole or on one rank."""

    entries: tuple[CacheEntries, ...]  # what grows with the context
    state_bytes: float = 0.0  # at any context: states of linear attention

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token takes while every window is still open."""
        return math.fsum(each.bytes_per_entry / each.tokens_per_entry for each in self.entries)

    def held_bytes(self, context_tokens: ArrayLike) -> Array:
        r"""Bytes that a request of that length occupies.

        .. math:: s + \sum_e b_e \min(C, w_e) / r_e

        Without the rounding to whole pages, and with windows that are freed (engines that keep the whole
        context in window layers hold more).
        """
        tokens = _tokens(context_tokens)
        held = np.full(tokens.shape, self.state_bytes)
        for each in self.entries:
            kept = np.minimum(tokens, each.window_tokens)
            held = held + each.bytes_per_entry * kept / each.tokens_per_entry
        return held

    def read_bytes(self, context_tokens: ArrayLike) -> Array:
        r"""Bytes that one query of a request reads: `held_bytes` but for sparse attention. theory.md B10.

        .. math:: s + \sum_e b_e \min(\min(C, w_e) / r_e, k_e)
        """
        tokens = _tokens(context_tokens)
        read = np.full(tokens.shape, self.state_bytes)
        for each in self.entries:
            kept = np.minimum(tokens, each.window_tokens) / each.tokens_per_entry
            read = read + each.bytes_per_entry * np.minimum(kept, each.most_read_entries)
        return read


def kv_cache(
    shape: ModelShape, *, bytes_per_value: float = 2.0, tp_size: int = 1, context_parallel: int = 1
) -> KvCache:
    r"""Key-value cache of one request of a model on one rank.

    .. math:: b_\text{grouped} = 2 n_{kv} d\,b,\quad b_\text{latent} = (r_{kv} + d_\text{rope})\,b

    Fewer heads than the `tp_size` ranks are held several times, and a latent by every rank;
    `context_parallel` ranks share the tokens. Linear attention keeps a state per request. [model-shapes]_.

    >>> from specmodel.architecture import preset
    >>> kv_cache(preset("Llama-3.1-8B")).bytes_per_token, kv_cache(preset("DeepSeek-V3")).bytes_per_token
    (131072.0, 70272.0)
    """
    check_ranks("tp_size", tp_size)
    check_ranks("context_parallel", context_parallel)
    if not 0.25 <= bytes_per_value <= 8.0:
        raise ParameterError("bytes_per_value", bytes_per_value, "from 0.25 to 8")
    head_ranks = max(1, tp_size // context_parallel)
    entries, state = [], 0.0
    for group in shape.layers:
        attention = group.attention
        if isinstance(attention, LinearAttention):
            ranks = min(tp_size, attention.num_value_heads)
            state += group.count * _state_bytes(attention, bytes_per_value) / ranks
            continue
        width = group.count * bytes_per_value / context_parallel
        entries += _entries(attention, width, head_ranks)
    return KvCache(entries=tuple(entries), state_bytes=state)


def _entries(
    attention: GroupedAttention | LatentAttention | CompressedAttention,
    width: float,
    head_ranks: int,
) -> list[CacheEntries]:
    """Entries of one kind of layer; `width` is bytes of one value in all its layers."""
    index, ratio = attention.index, 1
    most = index.topk_tokens if index else math.inf
    if isinstance(attention, GroupedAttention):
        heads = attention.num_kv_heads / min(head_ranks, attention.num_kv_heads)
        entry_bytes = 2 * heads * attention.head_dim * width
        found = [CacheEntries(entry_bytes, 1, attention.window_tokens or math.inf, most)]
    elif isinstance(attention, LatentAttention):
        entry_bytes = (attention.kv_lora_rank + attention.qk_rope_head_dim) * width
        found = [CacheEntries(entry_bytes, most_read_entries=most)]
    else:
        entry_bytes, ratio = attention.head_dim * width, attention.compress_ratio
        found = [CacheEntries(entry_bytes, window_tokens=attention.window_tokens)]
        if not (ratio and attention.owns_cache):
            return found
        found.append(CacheEntries(entry_bytes, ratio, most_read_entries=most))
    if index is not None and index.owned:  # its keys: one head, read by every query
        found.append(CacheEntries(index.head_dim * width, ratio))
    return found


def _state_bytes(attention: LinearAttention, bytes_per_value: float) -> float:
    """State of one layer: a matrix per value head, and the taps of the convolution."""
    state = attention.num_value_heads * attention.key_head_dim * attention.value_head_dim
    channels = 2 * attention.num_key_heads * attention.key_head_dim
    channels += attention.num_value_heads * attention.value_head_dim
    taps = channels * (attention.conv_kernel - 1)
    return state * STATE_BYTES_PER_VALUE + taps * max(bytes_per_value, 2.0)


def _tokens(context_tokens: ArrayLike) -> Array:
    """Contexts as numbers, refused where they are none."""
    tokens = np.asarray(context_tokens, dtype=np.float64)
    if not np.all(tokens >= 0) or not np.all(np.isfinite(tokens)):
        raise ParameterError("context_tokens", context_tokens, "finite and at least 0")
    return tokens


# --- operations ---


def matrix_flop_per_token(shape: ModelShape) -> float:
    r"""Operations of the matrices that a token passes, head included, over all ranks. theory.md B3.

    .. math:: 2 P_\text{active}

    The embedding is looked up and costs none; where it is the head it is multiplied once.
    """
    counts = parameter_counts(shape)
    looked_up = 0 if shape.tie_embeddings else counts.embedding
    return 2.0 * (counts.active - looked_up - counts.small)


def expert_flop_per_token(shape: ModelShape) -> float:
    """Operations of the routed experts, part of `matrix_flop_per_token`. theory.md B3."""
    return 2.0 * parameter_counts(shape).routed_experts_active


def attention_flop_per_token(shape: ModelShape, context_tokens: ArrayLike) -> Array:
    r"""Operations of scores and weighted values against the cache, over all ranks.

    .. math:: \sum_l 2 n_q (d_{qk} + d_v) \min(C, w_l)

    Latent attention in the absorbed form that engines decode with: every head works on the latent, so
    :math:`d_{qk} = r_{kv} + d_\text{rope}` and :math:`d_v = r_{kv}`. Linear attention costs six operations
    per entry of its state (decay and read, update, output) at any context (judgement).
    """
    tokens = _tokens(context_tokens)
    total = np.zeros(tokens.shape)
    for group in shape.layers:
        total = total + group.count * _attention_flop(group.attention, tokens)
    return total


def _attention_flop(attention: Attention, tokens: Array) -> Array:
    """Operations of one layer per query."""
    if isinstance(attention, LinearAttention):
        state = attention.num_value_heads * attention.key_head_dim * attention.value_head_dim
        return np.full(tokens.shape, 6.0 * state)
    index, entries, per_pair = attention.index, tokens, 4 * attention.num_heads
    most = index.topk_tokens if index else np.inf
    if isinstance(attention, GroupedAttention):
        per_pair *= attention.head_dim
        seen = np.minimum(np.minimum(tokens, attention.window_tokens or np.inf), most)
    elif isinstance(attention, LatentAttention):
        per_pair = 2 * attention.num_heads
        per_pair *= 2 * attention.kv_lora_rank + attention.qk_rope_head_dim
        seen = np.minimum(tokens, most)
    else:
        per_pair *= attention.head_dim
        seen = np.minimum(tokens, attention.window_tokens)
        if not attention.compress_ratio:
            return per_pair * seen
        entries = tokens / attention.compress_ratio
        seen = seen + np.minimum(entries, most)
    if index is not None and index.owned:  # it scores every entry
        return per_pair * seen + 2.0 * index.num_heads * index.head_dim * entries
    return per_pair * seen + np.zeros(tokens.shape)


# --- all-reduces ---


class Collectives(NamedTuple):
    """All-reduces of one forward pass of a model."""

    num_ranks: int
    layer_all_reduces: int = 0
    embedding_all_reduces: int = 0  # one for a vocabulary that is split over the ranks
    bytes_per_token: float = 0.0

    @property
    def all_reduces(self) -> int:
        """All-reduces of a forward, with that of the embedding."""
        return self.layer_all_reduces + self.embedding_all_reduces


def collectives(shape: ModelShape, tp_size: int) -> Collectives:
    r"""All-reduces of one forward pass with tensor parallelism and 16-bit activations. allreduce.md 10.

    .. math:: n = 2 L + 1,\quad S = h b\ \text{per token}

    One after the attention and one after the feed-forward block of every layer: the sum of a shared expert
    joins that of the routed ones, and expert parallelism inside the group makes the same two.

    >>> from specmodel.architecture import preset
    >>> found = collectives(preset("Kimi-K2.5"), 8)
    >>> found.layer_all_reduces, found.embedding_all_reduces, found.bytes_per_token
    (122, 1, 14336.0)
    """
    check_ranks("tp_size", tp_size)
    if tp_size == 1:
        return Collectives(num_ranks=1)
    return Collectives(
        num_ranks=tp_size,
        layer_all_reduces=2 * shape.num_layers,
        embedding_all_reduces=1,
        bytes_per_token=shape.hidden_size * BYTES_PER_ACTIVATION,
    )
