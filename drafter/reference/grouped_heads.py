"""Attention with groups of query heads that share a key head, as in Llama and Qwen3."""

from collections.abc import Mapping

import torch
from torch import Tensor

from drafter.reference.attention import attend
from drafter.reference.cache import KvCache
from drafter.reference.linear import linear
from drafter.reference.rms_norm import rms_norm
from drafter.reference.rope import RotaryTable, rotate_halves
from drafter.spec import DraftSpec

PREFIX = "layers.0.self_attn"
"""Canonical prefix of every tensor of attention."""


def grouped_attention(
    spec: DraftSpec,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    r"""Output of attention before its projection, and the cache with the rows it wrote.

    .. math:: q, k, v = W_q x + b_q,\ W_k x + b_k,\ W_v x + b_v

    then, with `qk_norm`, the norm of each head of q and k, then the rotation, then attention with scale
    :math:`1/\sqrt D`.

    Parameters
    ----------
    spec : DraftSpec
        Without latent heads.
    weights : mapping of str to Tensor
        Canonical names.
    x : Tensor, shape [T, 2 H]
        Normed embeddings beside normed hidden states, [-].
    table : RotaryTable
        Of the T positions.
    positions : Tensor, shape [T]
        [tokens].
    visible : Tensor of bool, shape [T, S + T]
        Which rows of the extended cache each row sees.
    cache : KvCache
        Of S rows.

    Returns
    -------
    heads : Tensor, shape [T, NH D]
        [-].
    cache : KvCache
        Of S + T rows.

    Notes
    -----
    Biases and the q and k norm exist in the speculators layout only. drafter.md 3 and 5;
    [speculators-eagle3]_.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> x, step = torch.ones(1, 48, dtype=torch.float64), torch.tensor([0])
    >>> heads, cache = grouped_attention(
    ...     spec,
    ...     random_weights(spec, seed=0, dtype=torch.float64),
    ...     x,
    ...     table=RotaryTable.at(step, torch.ones(4)),
    ...     positions=step,
    ...     visible=torch.ones(1, 1, dtype=torch.bool),
    ...     cache=KvCache.empty(spec),
    ... )
    >>> heads.shape, len(cache)
    (torch.Size([1, 32]), 1)
    """
    queries, keys, values = (
        linear(x, weights, f"{PREFIX}.{name}_proj").unflatten(-1, (-1, spec.head_dim))
        for name in "qkv"
    )
    if spec.qk_norm:
        queries = rms_norm(queries, weights[f"{PREFIX}.q_norm.weight"], spec.rms_norm_eps)
        keys = rms_norm(keys, weights[f"{PREFIX}.k_norm.weight"], spec.rms_norm_eps)
    cache = cache.extended(rotate_halves(keys, table), values, positions)
    heads = attend(
        rotate_halves(queries, table),
        cache.keys,
        cache.values,
        visible=visible,
        scale=spec.head_dim**-0.5,
    )
    return torch.flatten(heads, start_dim=1), cache
