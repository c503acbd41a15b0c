"""Attention of latent heads between its first product and its last, in the absorbed form."""

import math

import torch

from drafter.kernels.attention_buffers import LatentBuffers
from drafter.kernels.attention_merge import attention_merge
from drafter.kernels.attention_weights import LatentWeights
from drafter.kernels.cache_space import CacheSpace
from drafter.kernels.fed import Fed
from drafter.kernels.head_product import head_product
from drafter.kernels.latent_attention import latent_attention
from drafter.kernels.latent_cache import latent_cache
from drafter.kernels.linear import linear
from drafter.spec import DraftSpec, Rope


def score_scale(rope: Rope, head_width: int) -> float:
    r"""Factor on the scores of latent heads.

    .. math:: \sigma = \frac{(1 + 0.1\, a \ln s)^2}{\sqrt{d_n + d_r}}

    Parameters
    ----------
    rope : Rope
        With `mscale_all_dim` :math:`a` and factor :math:`s`; without :math:`a`, below :math:`s = 1` and
        for the default kind the numerator is 1.
    head_width : int
        :math:`d_n + d_r`, values of a head's query, [-].

    Returns
    -------
    float
        Positive, [-].

    Notes
    -----
    The temperature that the rotation leaves to the part without position. [deepseek-v3-2024]_, as in
    [transformers-models]_.

    Examples
    --------
    >>> score_scale(Rope(), 16)
    0.25
    """
    temperature = 1.0
    if rope.kind != "default" and rope.mscale_all_dim:
        temperature += 0.1 * rope.mscale_all_dim * math.log(max(rope.factor, 1.0))
    return temperature**2 / math.sqrt(head_width)


def latent_block(
    spec: DraftSpec,
    weights: LatentWeights,
    buffers: LatentBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    first: torch.Tensor,
    out: torch.Tensor,
    programmatic: bool,
) -> None:
    r"""Launch norms and cache, queries, attention over latents, the merge of its parts, and values.

    .. math::
        (q^n_h, q^r_h) = W_{qb} \operatorname{norm}(q), \quad
        o_h = W^v_h \operatorname{attention}\left([{W^k_h}^T q^n_h, R q^r_h], [C, R K^r], C\right)

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : LatentWeights
        Norms and inner products.
    buffers : LatentBuffers
        Space for T tokens.
    cache : CacheSpace
        Read, and written at the slots of `fed`.
    fed : Fed
        Places.
    first : torch.Tensor, shape (T, query_rank + kv_rank + rope_dim)
        Compressed queries, latents and the turning part of keys.
    out : torch.Tensor, shape (T, NH value_dim)
        Attended values.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes do not fit.

    Notes
    -----
    Six launches. drafter.md 3 and 11.

    Examples
    --------
    >>> latent_block.__name__
    'latent_block'
    """
    latent_cache(
        first,
        cache.cosine,
        cache.sine,
        fed.positions,
        fed.slots,
        weights.query_norm,
        weights.key_norm,
        buffers.compressed,
        cache.keys,
        eps=spec.rms_norm_eps,
        programmatic=programmatic,
    )
    num_tokens, num_heads, head_width = buffers.expanded.shape
    linear(
        buffers.compressed,
        weights.expand,
        buffers.expanded.view(num_tokens, num_heads * head_width),
        programmatic=programmatic,
    )
    head_product(
        buffers.expanded,
        weights.absorb,
        buffers.query,
        positions=fed.positions,
        cosine=cache.cosine,
        sine=cache.sine,
        programmatic=programmatic,
    )
    latent_attention(
        buffers.query,
        cache.keys,
        fed.positions,
        fed.lengths,
        buffers.part_out,
        buffers.part_log,
        scale=score_scale(spec.rope, head_width),
        tail_starts=fed.tail_starts,
        ancestors=fed.ancestors,
        sliding_window=spec.sliding_window,
        programmatic=programmatic,
    )
    attention_merge(
        buffers.part_out,
        buffers.part_log,
        buffers.attended.view(num_tokens, -1),
        programmatic=programmatic,
    )
    head_product(
        buffers.attended,
        weights.value,
        out.view(num_tokens, num_heads, -1),
        programmatic=programmatic,
    )
