"""Multi-head latent attention: a narrow latent is cached, keys and values are made from it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from drafter.reference.attention import attend
from drafter.reference.cache import KvCache
from drafter.reference.grouped_heads import PREFIX
from drafter.reference.linear import linear
from drafter.reference.rms_norm import rms_norm
from drafter.reference.rope import RotaryTable, rotate_neighbours
from drafter.reference.rope_frequencies import latent_score_factor
from drafter.spec import DraftSpec, LatentHeads


def latent_attention(
    spec: DraftSpec,
    latent: LatentHeads,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    r"""Output of latent attention before its projection, and the cache with the rows it wrote.

    .. math::
        (q^n_h, q^r_h) = W_{qb}\operatorname{norm}(W_{qa}x), \qquad
        (c, k^r) = W_{kva}x, \qquad (k^n_h, v_h) = W_{kvb}\operatorname{norm}(c)

    Scores are :math:`\sigma(q^n_h\cdot k^n_h + R q^r_h\cdot R k^r)` with
    :math:`\sigma = m^2/\sqrt{d_n+d_r}`; the turning part of the keys is one for all heads.

    Parameters
    ----------
    spec : DraftSpec
        Number of heads, rope and eps.
    latent : LatentHeads
        Widths.
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
        Of S rows: the turned key part and the normed latent.

    Returns
    -------
    heads : Tensor, shape [T, NH value_dim]
        [-].
    cache : KvCache
        Of S + T rows.

    Notes
    -----
    This is the definition; kernels, like serving engines, use the equal form where `kv_b_proj` is absorbed
    into queries and outputs. Turning values stand side by side, and the two inner norms use the model's
    eps, as serving engines do. [deepseek-v3-2024]_ section 2.1.1; drafter.md 3.

    Examples
    --------
    >>> import dataclasses
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> latent = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=8)
    >>> spec = dataclasses.replace(example_spec(), latent=latent)
    >>> x, step = torch.ones(1, 48, dtype=torch.float64), torch.tensor([0])
    >>> heads, cache = latent_attention(
    ...     spec,
    ...     latent,
    ...     random_weights(spec, seed=0, dtype=torch.float64),
    ...     x,
    ...     table=RotaryTable.at(step, torch.ones(2)),
    ...     positions=step,
    ...     visible=torch.ones(1, 1, dtype=torch.bool),
    ...     cache=KvCache.empty(spec),
    ... )
    >>> heads.shape, cache.keys.shape, cache.values.shape
    (torch.Size([1, 32]), torch.Size([1, 1, 4]), torch.Size([1, 1, 10]))
    """

    def normed(values: Tensor, name: str) -> Tensor:
        return rms_norm(values, weights[f"{PREFIX}.{name}.weight"], spec.rms_norm_eps)

    compressed = normed(linear(x, weights, f"{PREFIX}.q_a_proj"), "q_a_layernorm")
    queries = linear(compressed, weights, f"{PREFIX}.q_b_proj")
    queries = queries.unflatten(-1, (spec.num_heads, latent.nope_dim + latent.rope_dim))
    still, turning = queries.split([latent.nope_dim, latent.rope_dim], dim=-1)
    queries = torch.cat([still, rotate_neighbours(turning, table)], dim=-1)

    rows = linear(x, weights, f"{PREFIX}.kv_a_proj_with_mqa")
    new_latents, new_keys = rows.split([latent.kv_rank, latent.rope_dim], dim=-1)
    cache = cache.extended(
        rotate_neighbours(new_keys[:, None], table),
        normed(new_latents, "kv_a_layernorm")[:, None],
        positions,
    )

    made = linear(cache.values[:, 0], weights, f"{PREFIX}.kv_b_proj")
    made = made.unflatten(-1, (spec.num_heads, latent.nope_dim + latent.value_dim))
    still_keys, values = made.split([latent.nope_dim, latent.value_dim], dim=-1)
    keys = torch.cat([still_keys, cache.keys.expand(-1, spec.num_heads, -1)], dim=-1)

    scale = latent_score_factor(spec.rope) * (latent.nope_dim + latent.rope_dim) ** -0.5
    heads = attend(queries, keys, values, visible=visible, scale=scale)
    return torch.flatten(heads, start_dim=1), cache
