"""Attention of grouped heads between its first product and its last."""

import torch

from drafter.kernels.attention import attention
from drafter.kernels.attention_buffers import GroupedBuffers
from drafter.kernels.attention_merge import attention_merge
from drafter.kernels.attention_weights import GroupedWeights
from drafter.kernels.cache_space import CacheSpace
from drafter.kernels.fed import Fed
from drafter.kernels.rope_cache import rope_cache
from drafter.spec import DraftSpec


def grouped_block(
    spec: DraftSpec,
    weights: GroupedWeights,
    buffers: GroupedBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    first: torch.Tensor,
    out: torch.Tensor,
    programmatic: bool,
) -> None:
    r"""Launch norm and rotation, attention, and the merge of its parts.

    .. math:: (q, k, v) \mapsto \operatorname{attention}(R q, R K, V)

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : GroupedWeights
        Norms.
    buffers : GroupedBuffers
        Space for T tokens.
    cache : CacheSpace
        Read, and written at the slots of `fed`.
    fed : Fed
        Places.
    first : torch.Tensor, shape (T, (NH + 2 NKV) D)
        Queries, keys and values.
    out : torch.Tensor, shape (T, NH D)
        Attended values.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes do not fit.

    Notes
    -----
    Three launches. drafter.md 11.

    Examples
    --------
    >>> grouped_block.__name__
    'grouped_block'
    """
    rope_cache(
        first,
        cache.cosine,
        cache.sine,
        fed.positions,
        fed.slots,
        buffers.query,
        cache.keys,
        cache.values,
        query_norm=weights.query_norm,
        key_norm=weights.key_norm,
        eps=spec.rms_norm_eps,
        programmatic=programmatic,
    )
    attention(
        buffers.query,
        cache.keys,
        cache.values,
        fed.positions,
        fed.lengths,
        buffers.part_out,
        buffers.part_log,
        tail_starts=fed.tail_starts,
        ancestors=fed.ancestors,
        sliding_window=spec.sliding_window,
        programmatic=programmatic,
    )
    attention_merge(buffers.part_out, buffers.part_log, out, programmatic=programmatic)
