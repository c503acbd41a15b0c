"""Work of one forward pass of a shape on its ranks."""

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.architecture import (
    ModelShape,
    attention_flop_per_token,
    collectives,
    expert_flop_per_token,
    kv_cache,
    matrix_flop_per_token,
    weight_bytes,
)
from specmodel.architecture.passes import KvCache
from specmodel.architecture.shape import CompressedAttention, LatentAttention, LinearAttention
from specmodel.cost.forward import KERNELS_PER_LAYER, ForwardWork
from specmodel.errors import ParameterError

CONTEXT_PARALLEL_COLLECTIVES: Final = 1.5
"""All-reduces that each layer makes more with decode context parallelism: the middle of the 61 to 122
that Kimi's 61 layers make [step-costs]_. [-]"""

LOGITS_GATHER: Final = 0.5
"""All-reduces that the gather of the logits counts as (judgement: half the traffic). [-]"""


def shape_work(
    shape: ModelShape,
    tp_size: int,
    *,
    context_tokens: ArrayLike,
    kv_bytes_per_value: float = 2.0,
    context_parallel: int = 1,
) -> ForwardWork:
    r"""What one forward pass reads, computes and sends.

    .. math:: W, W_e, \kappa(C), F, A

    Bytes of the cache are the mean per token of this context, at least one token, so that states
    and windows are read once per request. allreduce.md 10.
    """
    given = np.asarray(context_tokens, dtype=np.float64)
    sound = np.isfinite(given) & (given >= 0)
    if not np.all(sound):
        raise ParameterError("context_tokens", given[~sound].flat[0], "finite and at least 0")
    fixed, whole_cache, held_cache = _fixed(shape, tp_size, kv_bytes_per_value, context_parallel)
    context = np.maximum(given, 1.0)
    whole = whole_cache.read_bytes(context)
    found = (
        whole / context,
        np.maximum(1.0, whole / held_cache.read_bytes(context)),
        attention_flop_per_token(shape, context) / context,
    )
    kv, shards, pair = found if given.ndim else (float(each) for each in found)
    return replace(fixed, kv_bytes_per_token=kv, kv_shards=shards, attention_flop_per_pair=pair)


@lru_cache(maxsize=64)
def _fixed(
    shape: ModelShape, tp_size: int, kv_bytes_per_value: float, context_parallel: int
) -> tuple[ForwardWork, KvCache, KvCache]:
    """Work that no context changes, and the cache of a request: whole, and what one GPU holds."""
    rank = weight_bytes(shape, tp_size=tp_size)
    whole = kv_cache(shape, bytes_per_value=kv_bytes_per_value)
    held = kv_cache(
        shape,
        bytes_per_value=kv_bytes_per_value,
        tp_size=tp_size,
        context_parallel=context_parallel,
    )
    sent = collectives(shape, tp_size)
    extra = CONTEXT_PARALLEL_COLLECTIVES * shape.num_layers if context_parallel > 1 else 0.0
    work = ForwardWork(
        weight_bytes=rank.replicated + tp_size * (rank.dense - rank.replicated),
        replicated_bytes=rank.replicated,
        expert_bytes=tp_size * rank.num_moe_layers * rank.expert,
        num_experts=rank.num_experts,
        experts_per_token=rank.experts_per_token,
        flop_per_token=matrix_flop_per_token(shape),
        expert_flop_per_token=expert_flop_per_token(shape),
        num_allreduces=sent.all_reduces + (LOGITS_GATHER + extra if tp_size > 1 else 0.0),
        allreduce_bytes_per_token=sent.bytes_per_token,
        num_kernels=KERNELS_PER_LAYER[_kernel_kind(shape)] * shape.num_layers,
        tp_size=tp_size,
    )
    return work, whole, held


def _kernel_kind(shape: ModelShape) -> str:
    """Kind of layer whose kernels are counted."""
    kinds = {type(group.attention) for group in shape.layers}
    if shape.num_experts:
        return "latent_moe" if kinds & {LatentAttention, CompressedAttention} else "moe"
    return "hybrid" if LinearAttention in kinds else "dense"
