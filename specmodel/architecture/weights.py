"""Bytes of a model's weights: what is stored, and what a forward pass reads."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.architecture.blocks import GroupedAttention, MoeMlp
from specmodel.architecture.parameters import (
    attention_parameters,
    expert_parameters,
    parameter_counts,
)
from specmodel.architecture.shape import ModelShape
from specmodel.errors import ParameterError

MOST_RANKS = 65_536
"""Bound of a parallel size (judgement)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes of a model's weights by part, whole or on one rank.

    Parameters
    ----------
    embedding : float
        The table that is looked up, [bytes].
    head : float
        The output matrix as it is read, also where it is the embedding, [bytes].
    attention, attention_replicated : float
        Attention that tensor parallelism splits, and that it does not, [bytes].
    dense_mlp, shared_experts, router, small : float
        What every token reads besides, [bytes].
    routed_experts : float
        All routed experts, [bytes].
    expert : float
        One expert in one layer (the mean, where layers differ); 0 for a dense model, [bytes].
    num_moe_layers, num_experts, experts_per_token : int
        Layers that route, experts of a layer, experts of a token, [-].
    other : float
        Encoders that decoding does not read, [bytes].
    tied : bool
        True where head and embedding are one table.
    """

    embedding: float
    head: float
    attention: float
    attention_replicated: float
    dense_mlp: float
    shared_experts: float
    router: float
    small: float
    routed_experts: float
    expert: float
    num_moe_layers: int
    num_experts: int
    experts_per_token: int
    other: float
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
        """Part of `dense` that every tensor-parallel rank holds in full, [bytes]."""
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

    def read(self, distinct_experts: ArrayLike) -> NDArray[np.float64]:
        r"""Bytes that a forward reads when it touches so many experts in each layer.

        .. math:: W = W_\text{dense} + L_\text{MoE} N w_\text{expert}

        Parameters
        ----------
        distinct_experts : array-like
            :math:`N`, different experts a layer touches, between 0 and `num_experts`, as
            `specmodel.cost.expected_experts` gives; anything for a dense model, [-].

        Returns
        -------
        numpy.ndarray, shape of `distinct_experts`
            [bytes].

        Notes
        -----
        Each weight is read once. theory.md B3.

        Examples
        --------
        >>> from specmodel.architecture import preset
        >>> dense = weight_bytes(preset("Llama-3.1-8B"))
        >>> round(float(dense.read(0)) / 1e9, 2)
        15.01
        """
        touched = np.asarray(distinct_experts, dtype=np.float64)
        return np.asarray(self.dense + self.num_moe_layers * self.expert * touched)


def weight_bytes(
    shape: ModelShape, *, tp_size: int = 1, data_parallel_attention: bool = False
) -> WeightBytes:
    r"""Bytes of the weights of a model, or of one rank of it.

    .. math:: w = \sum_\text{part} P_\text{part} b_\text{part} / s_\text{part}

    Parameters
    ----------
    shape : ModelShape
        The model with its formats.
    tp_size : int
        :math:`s`, ranks that share the weights by tensor or expert parallelism, at least 1, [-].
    data_parallel_attention : bool
        True where every rank holds the whole attention and serves its own requests.

    Returns
    -------
    WeightBytes
        Of one rank. With experts split by expert parallelism, `expert` is the mean over ranks.

    Raises
    ------
    ParameterError
        If `tp_size` is out of bounds.

    Notes
    -----
    Query and output matrices, feed-forward blocks, experts, embedding and head are split; router,
    norms, latent and indexer matrices are held by every rank; a key-value projection is split at
    most as many ways as it has heads. allreduce.md 12 gives the parts of Kimi-K2.5 on 8 ranks.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> rank = weight_bytes(preset("Kimi-K2.5"), tp_size=8)
    >>> round(rank.attention / 1e9, 2), round(rank.attention_replicated / 1e9, 2)
    (1.31, 1.85)
    """
    check_ranks("tp_size", tp_size)
    counts, formats, hidden = parameter_counts(shape), shape.weights, shape.hidden_size
    attention_ranks = 1 if data_parallel_attention else tp_size
    table_bytes = counts.embedding * formats.rest.bytes_per_weight
    head_format = formats.rest if shape.tie_embeddings else formats.head
    key_value = sum(
        group.count
        * attention_parameters(group.attention, hidden).key_value
        / min(attention_ranks, group.attention.num_kv_heads)
        for group in shape.layers
        if isinstance(group.attention, GroupedAttention)
    )
    expert_total = sum(
        group.count * group.mlp.num_experts * expert_parameters(group.mlp, hidden)
        for group in shape.layers
        if isinstance(group.mlp, MoeMlp)
    )
    experts_stored = sum(count * mlp.num_experts for count, mlp in shape.moe_groups)
    expert_bytes = expert_total * formats.routed_experts.bytes_per_weight / tp_size
    attention_byte = formats.attention.bytes_per_weight
    return WeightBytes(
        embedding=table_bytes / attention_ranks,
        head=(counts.head or counts.embedding) * head_format.bytes_per_weight / tp_size,
        attention=(counts.attention / attention_ranks + key_value) * attention_byte,
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
    r"""Refuse a parallel size that is not a number of ranks.

    .. math:: 1 \le s \le 65536

    Parameters
    ----------
    name : str
        The parameter, for the message.
    value : int
        The size, [-].

    Raises
    ------
    ParameterError
        If it is out of bounds or not whole.

    Notes
    -----
    The upper bound is a judgement.

    Examples
    --------
    >>> check_ranks("tp_size", 8)
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        raise ParameterError(name, value, f"a whole number from 1 to {MOST_RANKS}")
