"""Floating-point operations of a forward pass, per token."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.architecture.blocks import (
    Attention,
    CompressedAttention,
    GroupedAttention,
    LatentAttention,
    SparseIndex,
)
from specmodel.architecture.parameters import parameter_counts
from specmodel.architecture.shape import ModelShape
from specmodel.errors import ParameterError

Array = NDArray[np.float64]


def matrix_flop_per_token(shape: ModelShape) -> float:
    r"""Operations of the matrices that a token passes, head included.

    .. math:: 2 P_\text{active}

    Parameters
    ----------
    shape : ModelShape
        The model.

    Returns
    -------
    float
        A multiplication and an addition per weight, over all ranks, [FLOP/token].

    Notes
    -----
    The embedding is looked up and costs none; where it is the head it is multiplied once.
    theory.md B3.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> round(matrix_flop_per_token(preset("Llama-3.1-8B")) / 1e9, 1)
    15.0
    """
    counts = parameter_counts(shape)
    looked_up = 0 if shape.tie_embeddings else counts.embedding
    return 2.0 * (counts.active - looked_up - counts.small)


def expert_flop_per_token(shape: ModelShape) -> float:
    r"""Operations of the routed experts that a token passes; part of `matrix_flop_per_token`.

    .. math:: 2 P_\text{routed, active}

    Parameters
    ----------
    shape : ModelShape
        The model.

    Returns
    -------
    float
        0 for a dense model, over all ranks, [FLOP/token].

    Notes
    -----
    theory.md B3.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> expert_flop_per_token(preset("Kimi-K2.5")) == 2 * 60 * 8 * 3 * 7168 * 2048
    True
    """
    return 2.0 * parameter_counts(shape).routed_experts_active


def attention_flop_per_token(shape: ModelShape, context_tokens: ArrayLike) -> Array:
    r"""Operations of scores and weighted values against the cache.

    .. math:: \sum_l 2 n_q (d_{qk} + d_v) \min(C, w_l)

    Parameters
    ----------
    shape : ModelShape
        The model.
    context_tokens : array-like
        :math:`C`, tokens in the cache, at least 0, [tokens].

    Returns
    -------
    numpy.ndarray, shape of `context_tokens`
        Over all ranks, [FLOP/token].

    Raises
    ------
    ParameterError
        If a context is negative or not a number.

    Notes
    -----
    Latent attention in the absorbed form that engines decode with: every head works on the latent,
    so :math:`d_{qk} = r_{kv} + d_\text{rope}` and :math:`d_v = r_{kv}`. Linear attention costs six
    operations per entry of its state (decay and read, update, output) at any context (judgement).

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> float(attention_flop_per_token(preset("Llama-3.1-8B"), 1024)) == 4 * 32 * 4096 * 1024
    True
    """
    tokens = np.asarray(context_tokens, dtype=np.float64)
    if not np.all(tokens >= 0) or not np.all(np.isfinite(tokens)):
        raise ParameterError("context_tokens", context_tokens, "finite and at least 0")
    total = np.zeros(tokens.shape)
    for group in shape.layers:
        total = total + group.count * _attention_flop(group.attention, tokens)
    return total


def _attention_flop(attention: Attention, tokens: Array) -> Array:
    """Operations of one layer per query."""
    if isinstance(attention, GroupedAttention):
        seen = np.minimum(tokens, attention.window_tokens or np.inf)
        seen = np.minimum(seen, attention.index.topk_tokens if attention.index else np.inf)
        per_pair = 4 * attention.num_heads * attention.head_dim
        return per_pair * seen + _index_flop(attention.index, tokens)
    if isinstance(attention, LatentAttention):
        seen = np.minimum(tokens, attention.index.topk_tokens if attention.index else np.inf)
        width = 2 * attention.kv_lora_rank + attention.qk_rope_head_dim
        return 2 * attention.num_heads * width * seen + _index_flop(attention.index, tokens)
    if isinstance(attention, CompressedAttention):
        seen = np.minimum(tokens, attention.window_tokens)
        index = attention.index
        if attention.compress_ratio:
            entries = tokens / attention.compress_ratio
            seen = seen + np.minimum(entries, index.topk_tokens if index else np.inf)
            return 4 * attention.num_heads * attention.head_dim * seen + _index_flop(index, entries)
        return 4 * attention.num_heads * attention.head_dim * seen
    state = attention.num_value_heads * attention.key_head_dim * attention.value_head_dim
    return np.full(tokens.shape, 6.0 * state)


def _index_flop(index: SparseIndex | None, entries: Array) -> Array:
    """Operations of an indexer that scores every entry."""
    if index is None or not index.owned:
        return np.zeros(entries.shape)
    return 2.0 * index.num_heads * index.head_dim * entries
