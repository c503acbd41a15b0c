"""How many parameters a model has, by the part that holds them."""

from collections import Counter
from typing import NamedTuple

from specmodel.architecture.shape import (
    Attention,
    CompressedAttention,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    Mlp,
    ModelShape,
    MoeMlp,
    SparseIndex,
)


class AttentionParameters(NamedTuple):
    """Parameters of one attention block."""

    sharded: int  # matrices that tensor parallelism splits by head
    key_value: int = 0  # projections split by key-value head, so at most that many ways
    replicated: int = 0  # matrices that every rank holds in full: latents, indexers
    small: int = 0  # norms, biases, convolutions, sinks


class ParameterCounts(NamedTuple):
    """Parameters of a model by part, all layers together."""

    embedding: int  # rows looked up, not read as a matrix, unless they are the head too
    head: int  # 0 where it is the embedding
    other: int  # encoders that decoding does not read
    small: int = 0
    attention: int = 0
    key_value: int = 0
    attention_replicated: int = 0  # with the fusion of a draft
    dense_mlp: int = 0
    shared_experts: int = 0
    router: int = 0
    routed_experts: int = 0
    routed_experts_active: int = 0

    @property
    def total(self) -> int:
        """All parameters without multi-token-prediction layers."""
        return sum(self) - self.routed_experts_active

    @property
    def active(self) -> int:
        """Parameters that one token uses, with the whole embedding, as models are advertised."""
        return sum(self) - self.routed_experts - self.other


def parameter_counts(shape: ModelShape) -> ParameterCounts:
    r"""Parameters of a model by part.

    .. math:: P = 2 V h + \sum_l (P_{\text{attn},l} + P_{\text{mlp},l})

    Matrices, biases and norms of the published implementations without multi-token-prediction layers;
    within 3 % of the published total for every packaged model. [model-shapes]_.

    >>> from specmodel.architecture import preset
    >>> parameter_counts(preset("Llama-3.1-8B")).total
    8030261248
    """
    hidden = shape.hidden_size
    sums = Counter(attention_replicated=shape.fused_width * hidden, small=hidden)
    for group in shape.layers:
        attention = attention_parameters(group.attention, hidden)
        parts = _mlp_parts(group.mlp, hidden)
        parts["attention"], parts["key_value"] = attention.sharded, attention.key_value
        parts["attention_replicated"] = attention.replicated
        parts["small"] += attention.small + 2 * hidden
        sums.update({part: group.count * parameters for part, parameters in parts.items()})
    vocabulary = shape.vocab_size * hidden
    return ParameterCounts(
        embedding=vocabulary,
        head=0 if shape.tie_embeddings else vocabulary,
        other=shape.other_parameters,
        **sums,
    )


def expert_parameters(mlp: MoeMlp, hidden_size: int) -> int:
    """Parameters of one routed expert in one layer: gate, up and down matrix, and biases where b is 1.

    .. math:: 3 h w + b (2 w + h)

    allreduce.md 1: 44.04 M for Kimi-K2.5.
    """
    hidden = mlp.routed_hidden_size or hidden_size
    return 3 * hidden * mlp.width + (2 * mlp.width + hidden) * mlp.bias


def attention_parameters(attention: Attention, hidden_size: int) -> AttentionParameters:
    r"""Parameters of one attention block, grouped ones with a gate of width :math:`g`. [model-shapes]_.

    .. math:: P_\text{grouped} = h d (2 n_q + 2 n_{kv}) + h g
    """
    match attention:
        case GroupedAttention():
            return _grouped(attention, hidden_size)
        case LatentAttention():
            return _latent(attention, hidden_size)
        case LinearAttention():
            return _linear(attention, hidden_size)
        case CompressedAttention():
            return _compressed(attention, hidden_size)


def _grouped(block: GroupedAttention, hidden: int) -> AttentionParameters:
    queries, keys = block.num_heads * block.head_dim, block.num_kv_heads * block.head_dim
    stored = 1 if block.stored_key_is_value else 2
    small = (queries + 2 * keys) * block.qkv_bias + hidden * block.output_bias
    small += 2 * block.head_dim * block.qk_norm + block.num_heads * block.sinks
    return AttentionParameters(
        sharded=(block.input_multiple + 1) * hidden * queries + hidden * block.gate_width,
        key_value=stored * block.input_multiple * hidden * keys,
        replicated=_index(block.index, hidden, hidden),
        small=small,
    )


def _latent(block: LatentAttention, hidden: int) -> AttentionParameters:
    query_width = block.num_heads * (block.qk_nope_head_dim + block.qk_rope_head_dim)
    value_width = block.num_heads * block.v_head_dim
    up = block.kv_lora_rank * block.num_heads * (block.qk_nope_head_dim + block.v_head_dim)
    down = hidden * (block.kv_lora_rank + block.qk_rope_head_dim)
    query_input = block.q_lora_rank or hidden
    return AttentionParameters(
        sharded=query_input * query_width
        + up
        + value_width * hidden * (2 if block.output_gate else 1),
        replicated=down
        + hidden * (block.q_lora_rank or 0)
        + _index(block.index, hidden, query_input),
        small=block.kv_lora_rank + (block.q_lora_rank or 0),
    )


def _linear(block: LinearAttention, hidden: int) -> AttentionParameters:
    keys = block.num_key_heads * block.key_head_dim
    values = block.num_value_heads * block.value_head_dim
    matrices = hidden * (2 * keys + 3 * values)  # queries, keys, values, gate, output
    small = (2 * keys + values) * block.conv_kernel + 2 * block.num_value_heads
    if block.channel_decay:
        decay = hidden * block.key_head_dim + block.key_head_dim * values
        matrices += decay + hidden * block.num_value_heads
    else:
        matrices += 2 * hidden * block.num_value_heads
    return AttentionParameters(sharded=matrices, small=small + block.value_head_dim)


def _compressed(block: CompressedAttention, hidden: int) -> AttentionParameters:
    heads_width = block.num_heads * block.head_dim
    down = hidden * block.q_lora_rank + hidden * block.head_dim
    ratio, entries = block.compress_ratio, 0
    overlap = 2 if block.index is not None else 1
    if ratio and block.owns_cache:
        entries = 2 * hidden * overlap * block.head_dim
    index = block.index
    if index is not None and index.owned:
        entries += block.q_lora_rank * index.num_heads * index.head_dim
        entries += hidden * index.num_heads + 2 * hidden * overlap * index.head_dim
    group_latents = block.output_groups * block.output_lora_rank
    return AttentionParameters(
        sharded=block.q_lora_rank * heads_width
        + heads_width * block.output_lora_rank
        + group_latents * hidden,
        replicated=down + entries,
        small=block.q_lora_rank + block.head_dim,
    )


def _index(index: SparseIndex | None, hidden: int, query_input: int) -> int:
    """Parameters of an indexer: queries, one shared key, and head weights where it has a latent."""
    if index is None or not index.owned:
        return 0
    source = hidden if index.query_from_hidden else query_input
    weights = 0 if index.query_from_hidden else hidden * index.num_heads
    return source * index.num_heads * index.head_dim + hidden * index.head_dim + weights


def _mlp_parts(mlp: Mlp, hidden: int) -> dict[str, int]:
    """Parameters of one feed-forward block by part; `small` are biases and gates."""
    if isinstance(mlp, DenseMlp):
        return {"dense_mlp": 3 * hidden * mlp.width, "small": (2 * mlp.width + hidden) * mlp.bias}
    expert = expert_parameters(mlp, hidden)
    to_latent = 2 * hidden * mlp.routed_hidden_size if mlp.routed_hidden_size else 0
    return {
        "shared_experts": 3 * hidden * mlp.shared_width + to_latent,
        "router": hidden * mlp.num_experts,
        "routed_experts": mlp.num_experts * expert,
        "routed_experts_active": mlp.experts_per_token * expert,
        "small": mlp.num_experts * mlp.bias + hidden * mlp.shared_gate,
    }
