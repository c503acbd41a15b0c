"""The one decoder layer of the draft model."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import silu

from drafter.reference.cache import KvCache
from drafter.reference.grouped_heads import PREFIX, grouped_attention
from drafter.reference.latent_heads import latent_attention
from drafter.reference.linear import linear
from drafter.reference.rms_norm import rms_norm
from drafter.reference.rope import RotaryTable
from drafter.spec import DraftSpec


def draft_layer(
    spec: DraftSpec,
    weights: Mapping[str, Tensor],
    embeddings: Tensor,
    hidden: Tensor,
    *,
    table: RotaryTable,
    positions: Tensor,
    visible: Tensor,
    cache: KvCache,
) -> tuple[Tensor, KvCache]:
    r"""Residual stream after the layer, and the cache with the rows it wrote.

    .. math::
        x &= (\operatorname{norm}_e(e),\ n), \quad n = \operatorname{norm}_h(h) \\
        r &= (h \text{ or } n) + W_o \operatorname{attention}(x) \\
        r &\leftarrow r + W_d\left(\operatorname{silu}(W_g y) \odot W_u y\right), \quad
            y = \operatorname{norm}_m(r)

    Parameters
    ----------
    spec : DraftSpec
        `norm_before_residual` chooses n over h; `latent` chooses the kind of attention.
    weights : mapping of str to Tensor
        Canonical names.
    embeddings : Tensor, shape [T, H]
        :math:`e`, of the tokens; they never enter the residual stream, [-].
    hidden : Tensor, shape [T, H]
        :math:`h`, fused states of the target, or the carry of the draft step before, [-].
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
    residual : Tensor, shape [T, H]
        :math:`r`, [-].
    cache : KvCache
        Of S + T rows.

    Notes
    -----
    Embedding half first. [li2025]_ section 3.1; `norm_before_residual` as in [speculators-eagle3]_.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec, step = example_spec(), torch.tensor([0])
    >>> rows = torch.ones(1, 24, dtype=torch.float64)
    >>> residual, cache = draft_layer(
    ...     spec,
    ...     random_weights(spec, seed=0, dtype=torch.float64),
    ...     rows,
    ...     rows,
    ...     table=RotaryTable.at(step, torch.ones(4)),
    ...     positions=step,
    ...     visible=torch.ones(1, 1, dtype=torch.bool),
    ...     cache=KvCache.empty(spec),
    ... )
    >>> residual.shape, len(cache)
    (torch.Size([1, 24]), 1)
    """

    def normed(rows: Tensor, name: str) -> Tensor:
        return rms_norm(rows, weights[f"layers.0.{name}.weight"], spec.rms_norm_eps)

    states = normed(hidden, "hidden_norm")
    x = torch.cat([normed(embeddings, "input_layernorm"), states], dim=-1)
    if spec.latent is None:
        heads, cache = grouped_attention(
            spec, weights, x, table=table, positions=positions, visible=visible, cache=cache
        )
    else:
        heads, cache = latent_attention(
            spec,
            spec.latent,
            weights,
            x,
            table=table,
            positions=positions,
            visible=visible,
            cache=cache,
        )
    residual = states if spec.norm_before_residual else hidden
    residual = residual + linear(heads, weights, f"{PREFIX}.o_proj")
    y = normed(residual, "post_attention_layernorm")
    gate, up = (linear(y, weights, f"layers.0.mlp.{name}_proj") for name in ("gate", "up"))
    return residual + linear(silu(gate) * up, weights, "layers.0.mlp.down_proj"), cache
