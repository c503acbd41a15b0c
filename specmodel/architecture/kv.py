"""Bytes of the key-value cache: what a request occupies, and what a decode row reads of it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.architecture.blocks import (
    CompressedAttention,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    SparseIndex,
)
from specmodel.architecture.shape import ModelShape
from specmodel.architecture.weights import check_ranks
from specmodel.errors import ParameterError

STATE_BYTES_PER_VALUE = 4.0
"""The state of linear attention is kept in fp32 by default (judgement: some engines allow bf16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntries:
    """Entries that some layers keep per token.

    Parameters
    ----------
    bytes_per_entry : float
        Of all these layers together, [bytes].
    tokens_per_entry : int
        Tokens that an entry stands for, [tokens].
    window_tokens : float
        Newest tokens that are kept; infinite for all, [tokens].
    most_read_entries : float
        Entries that one query reads at most; infinite for all, [-].
    """

    bytes_per_entry: float
    tokens_per_entry: int = 1
    window_tokens: float = math.inf
    most_read_entries: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Key-value cache of one request, whole or on one rank.

    Parameters
    ----------
    entries : tuple of CacheEntries
        What grows with the context.
    state_bytes : float
        What a request occupies at any context: states of linear attention, [bytes].
    """

    entries: tuple[CacheEntries, ...]
    state_bytes: float = 0.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token takes while every window is still open."""
        return math.fsum(each.bytes_per_entry / each.tokens_per_entry for each in self.entries)

    @property
    def bytes_per_token_beyond_windows(self) -> float:
        """Bytes that one more token takes once every window is full."""
        return math.fsum(
            each.bytes_per_entry / each.tokens_per_entry
            for each in self.entries
            if math.isinf(each.window_tokens)
        )

    def held_bytes(self, context_tokens: ArrayLike) -> NDArray[np.float64]:
        r"""Bytes that a request of that length occupies.

        .. math:: s + \sum_e b_e \min(C, w_e) / r_e

        Parameters
        ----------
        context_tokens : array-like
            :math:`C`, tokens of the request, at least 0, [tokens].

        Returns
        -------
        numpy.ndarray, shape of `context_tokens`
            [bytes].

        Raises
        ------
        ParameterError
            If a context is negative or not a number.

        Notes
        -----
        Without the rounding to whole pages, and with windows that are freed (engines that keep
        the whole context in window layers hold more).

        Examples
        --------
        >>> from specmodel.architecture import preset
        >>> float(kv_cache(preset("Llama-3.1-8B")).held_bytes(1000))
        131072000.0
        """
        tokens = _tokens(context_tokens)
        held = np.full(tokens.shape, self.state_bytes)
        for each in self.entries:
            kept = np.minimum(tokens, each.window_tokens)
            held = held + each.bytes_per_entry * kept / each.tokens_per_entry
        return held

    def read_bytes(self, context_tokens: ArrayLike) -> NDArray[np.float64]:
        r"""Bytes that one query of a request reads.

        .. math:: s + \sum_e b_e \min(\min(C, w_e) / r_e, k_e)

        Parameters
        ----------
        context_tokens : array-like
            :math:`C`, tokens before the query, at least 0, [tokens].

        Returns
        -------
        numpy.ndarray, shape of `context_tokens`
            [bytes].

        Raises
        ------
        ParameterError
            If a context is negative or not a number.

        Notes
        -----
        Equal to `held_bytes` but for sparse attention, which reads all index keys and the chosen
        entries. Verify rows of one request share what they read, engine permitting. theory.md B10.

        Examples
        --------
        >>> from specmodel.architecture import preset
        >>> cache = kv_cache(preset("DeepSeek-V3.2"))
        >>> float(cache.read_bytes(65536) / cache.held_bytes(65536)) < 0.3
        True
        """
        tokens = _tokens(context_tokens)
        read = np.full(tokens.shape, self.state_bytes)
        for each in self.entries:
            kept = np.minimum(tokens, each.window_tokens) / each.tokens_per_entry
            read = read + each.bytes_per_entry * np.minimum(kept, each.most_read_entries)
        return read


def kv_cache(
    shape: ModelShape,
    *,
    bytes_per_value: float = 2.0,
    tp_size: int = 1,
    context_parallel: int = 1,
    data_parallel_attention: bool = False,
) -> KvCache:
    r"""Key-value cache of one request of a model on one rank.

    .. math:: b_\text{grouped} = 2 n_{kv} d\,b,\quad b_\text{latent} = (r_{kv} + d_\text{rope})\,b

    Parameters
    ----------
    shape : ModelShape
        The model.
    bytes_per_value : float
        :math:`b`, 2 for bf16 and 1 for fp8, from 0.25 to 8, [bytes].
    tp_size : int
        Ranks that share the heads, at least 1; fewer heads than ranks are held several times, and
        a latent is held by every rank, [-].
    context_parallel : int
        Ranks that share the tokens of a request (decode context parallelism), at least 1, [-].
    data_parallel_attention : bool
        True where a rank holds its own requests whole; `tp_size` then does not matter.

    Returns
    -------
    KvCache
        Of one request on one rank; on all ranks for sizes of 1.

    Raises
    ------
    ParameterError
        If a size or the width of a value is out of bounds.

    Notes
    -----
    Grouped attention keeps a key and a value per head, latent attention one shared entry with its
    rotated part, linear attention a state per request. [model-shapes]_ has the shapes.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> kv_cache(preset("Llama-3.1-8B")).bytes_per_token, kv_cache(preset("DeepSeek-V3")).bytes_per_token
    (131072.0, 70272.0)
    """
    check_ranks("tp_size", tp_size)
    check_ranks("context_parallel", context_parallel)
    if not 0.25 <= bytes_per_value <= 8.0:
        raise ParameterError("bytes_per_value", bytes_per_value, "from 0.25 to 8")
    head_ranks = 1 if data_parallel_attention else max(1, tp_size // context_parallel)
    entries, state = [], 0.0
    for group in shape.layers:
        attention = group.attention
        if isinstance(attention, LinearAttention):
            ranks = min(1 if data_parallel_attention else tp_size, attention.num_value_heads)
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
    index = attention.index
    if isinstance(attention, GroupedAttention):
        heads = attention.num_kv_heads / min(head_ranks, attention.num_kv_heads)
        main = CacheEntries(
            bytes_per_entry=2 * heads * attention.head_dim * width,
            window_tokens=attention.window_tokens or math.inf,
            most_read_entries=index.topk_tokens if index else math.inf,
        )
        return [main, *_index_entries(index, width, 1)]
    if isinstance(attention, LatentAttention):
        main = CacheEntries(
            bytes_per_entry=(attention.kv_lora_rank + attention.qk_rope_head_dim) * width,
            most_read_entries=index.topk_tokens if index else math.inf,
        )
        return [main, *_index_entries(index, width, 1)]
    return _compressed_entries(attention, width)


def _compressed_entries(attention: CompressedAttention, width: float) -> list[CacheEntries]:
    """Window, and compressed entries of the layers that own them."""
    found = [
        CacheEntries(
            bytes_per_entry=attention.head_dim * width, window_tokens=attention.window_tokens
        )
    ]
    if attention.compress_ratio and attention.owns_cache:
        index = attention.index
        entry = CacheEntries(
            bytes_per_entry=attention.head_dim * width,
            tokens_per_entry=attention.compress_ratio,
            most_read_entries=index.topk_tokens if index else math.inf,
        )
        found += [entry, *_index_entries(index, width, attention.compress_ratio)]
    return found


def _index_entries(index: SparseIndex | None, width: float, ratio: int) -> list[CacheEntries]:
    """Keys of an indexer: one head, read by every query."""
    if index is None or not index.owned:
        return []
    return [CacheEntries(bytes_per_entry=index.head_dim * width, tokens_per_entry=ratio)]


def _state_bytes(attention: LinearAttention, bytes_per_value: float) -> float:
    """State of one layer: a matrix per value head, and the taps of the convolution."""
    state = attention.num_value_heads * attention.key_head_dim * attention.value_head_dim
    channels = 2 * attention.num_key_heads * attention.key_head_dim
    channels += attention.num_value_heads * attention.value_head_dim
    taps = channels * (attention.conv_kernel - 1)
    return state * STATE_BYTES_PER_VALUE + taps * max(bytes_per_value, 2.0)


def _tokens(context_tokens: ArrayLike) -> NDArray[np.float64]:
    """Contexts as numbers, refused where they are none."""
    tokens = np.asarray(context_tokens, dtype=np.float64)
    if not np.all(tokens >= 0) or not np.all(np.isfinite(tokens)):
        raise ParameterError("context_tokens", context_tokens, "finite and at least 0")
    return tokens
