"""Weights of attention between its first product and its last, for either kind of heads."""

from collections.abc import Callable
from typing import NamedTuple, final

import torch

from drafter.spec import DraftSpec, LatentHeads

PREFIX = "layers.0.self_attn"
"""Canonical prefix of every tensor of attention."""

Take = Callable[..., torch.Tensor]
"""Gives the tensor of a name and a shape, in the storage type."""


@final
class GroupedWeights(NamedTuple):
    """Norms of grouped heads.

    Parameters
    ----------
    query_norm, key_norm : torch.Tensor or None
        Shape (D,), of each head; None without `qk_norm`.

    Notes
    -----
    Products of grouped heads are the first and the last one.

    Examples
    --------
    >>> GroupedWeights._fields
    ('query_norm', 'key_norm')
    """

    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None

    @classmethod
    def taken(cls, spec: DraftSpec, take: Take) -> "GroupedWeights":
        """Weights by their canonical names.

        Parameters
        ----------
        spec : DraftSpec
            Grouped heads.
        take : callable
            Gives the tensor of a name and a shape.

        Returns
        -------
        GroupedWeights

        Notes
        -----
        Only the qwen3 type of the layer has such norms.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> GroupedWeights.taken(example_spec(), lambda name, *shape: torch.ones(shape)).key_norm
        """
        if not spec.qk_norm:
            return cls(None, None)
        return cls(*(take(f"{PREFIX}.{name}_norm.weight", spec.head_dim) for name in "qk"))


@final
class LatentWeights(NamedTuple):
    r"""Norms and inner products of latent heads.

    Parameters
    ----------
    query_norm, key_norm : torch.Tensor, shape (query_rank,) and (kv_rank,)
        Of compressed queries and of latents.
    expand : torch.Tensor, shape (NH (nope_dim + rope_dim), query_rank)
        From compressed queries to the queries of every head: `q_b_proj`.
    absorb : torch.Tensor, shape (NH, kv_rank, nope_dim)
        From a head's query to one of latents: the rows of keys in `kv_b_proj`, transposed.
    value : torch.Tensor, shape (NH, value_dim, kv_rank)
        From an attended latent to a head's value: the rows of values in `kv_b_proj`.

    Notes
    -----
    Keys and values of a head are never made: :math:`q \cdot (W c) = (W^T q) \cdot c`, and a sum of
    values is a product with a sum of latents. [deepseek-v3-2024]_ section 2.1.1.

    Examples
    --------
    >>> LatentWeights._fields[2:]
    ('expand', 'absorb', 'value')
    """

    query_norm: torch.Tensor
    key_norm: torch.Tensor
    expand: torch.Tensor
    absorb: torch.Tensor
    value: torch.Tensor

    @classmethod
    def taken(cls, spec: DraftSpec, latent: LatentHeads, take: Take) -> "LatentWeights":
        """Weights by their canonical names, `kv_b_proj` cut into its two uses.

        Parameters
        ----------
        spec : DraftSpec
            Number of heads.
        latent : LatentHeads
            Widths.
        take : callable
            Gives the tensor of a name and a shape.

        Returns
        -------
        LatentWeights
            Contiguous tensors.

        Notes
        -----
        Both parts of `kv_b_proj` are copies, so that each product reads rows.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> latent = LatentHeads(query_rank=12, kv_rank=10, nope_dim=6, rope_dim=4, value_dim=5)
        >>> ones = lambda name, *shape: torch.ones(shape)
        >>> LatentWeights.taken(example_spec(), latent, ones).absorb.shape
        torch.Size([4, 10, 6])
        """
        heads, rank = spec.num_heads, latent.kv_rank
        rows = (latent.nope_dim, latent.value_dim)
        made = take(f"{PREFIX}.kv_b_proj.weight", heads * sum(rows), rank)
        keys, values = made.view(heads, sum(rows), rank).split(rows, dim=1)
        return cls(
            query_norm=take(f"{PREFIX}.q_a_layernorm.weight", latent.query_rank),
            key_norm=take(f"{PREFIX}.kv_a_layernorm.weight", rank),
            expand=take(
                f"{PREFIX}.q_b_proj.weight",
                heads * (latent.nope_dim + latent.rope_dim),
                latent.query_rank,
            ),
            absorb=keys.transpose(1, 2).contiguous(),
            value=values.contiguous(),
        )


def first_product(spec: DraftSpec, take: Take) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows that see embedding and hidden state, in one matrix, and their bias.

    Parameters
    ----------
    spec : DraftSpec
        Heads of either kind.
    take : callable
        Gives the tensor of a name and a shape.

    Returns
    -------
    weight : torch.Tensor, shape (N, 2 H)
        Queries, keys and values; for latent heads compressed queries, latents and the turning part of
        keys.
    bias : torch.Tensor or None
        Of shape (N,), with `attention_bias`.

    Notes
    -----
    No layout gives latent heads a bias. drafter.md 3.

    Examples
    --------
    >>> from drafter.reference.example import example_spec
    >>> weight, bias = first_product(example_spec(), lambda name, *shape: torch.ones(shape))
    >>> weight.shape, bias
    (torch.Size([64, 48]), None)
    """
    inputs, latent = 2 * spec.hidden_size, spec.latent
    if latent is not None:
        rows = {
            "q_a_proj": latent.query_rank,
            "kv_a_proj_with_mqa": latent.kv_rank + latent.rope_dim,
        }
    else:
        keys = spec.num_kv_heads * spec.head_dim
        rows = {"q_proj": spec.num_heads * spec.head_dim, "k_proj": keys, "v_proj": keys}
    parts = [take(f"{PREFIX}.{name}.weight", count, inputs) for name, count in rows.items()]
    bias = None
    if spec.attention_bias and latent is None:
        bias = torch.cat([take(f"{PREFIX}.{name}.bias", count) for name, count in rows.items()])
    return torch.cat(parts), bias
