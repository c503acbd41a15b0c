"""Space for attention between its first product and its last, for either kind of heads."""

from typing import NamedTuple, final

import torch


@final
class GroupedBuffers(NamedTuple):
    """What attention of grouped heads writes for T tokens, in the order in which it does.

    Parameters
    ----------
    query : torch.Tensor, shape (T, NH, D)
        In the storage type.
    part_out : torch.Tensor, shape (T, NH, P, D)
        fp32, of P parts of the context.
    part_log : torch.Tensor, shape (T, NH, P)
        fp32.

    Notes
    -----
    What it gives in the end is the layer's.

    Examples
    --------
    >>> GroupedBuffers._fields
    ('query', 'part_out', 'part_log')
    """

    query: torch.Tensor
    part_out: torch.Tensor
    part_log: torch.Tensor


@final
class LatentBuffers(NamedTuple):
    """What attention of latent heads writes for T tokens, in the order in which it does.

    Parameters
    ----------
    compressed : torch.Tensor, shape (T, query_rank)
        Queries after their norm, in the storage type.
    expanded : torch.Tensor, shape (T, NH, nope_dim + rope_dim)
        fp32, queries of each head before rotation.
    query : torch.Tensor, shape (T, NH, kv_rank + rope_dim)
        Queries of latents, and their turned part, in the storage type.
    part_out : torch.Tensor, shape (T, NH, P, kv_rank)
        fp32, of P parts of the context.
    part_log : torch.Tensor, shape (T, NH, P)
        fp32.
    attended : torch.Tensor, shape (T, NH, kv_rank)
        Merged latents, in the storage type.

    Notes
    -----
    What it gives in the end is the layer's.

    Examples
    --------
    >>> LatentBuffers._fields[-1]
    'attended'
    """

    compressed: torch.Tensor
    expanded: torch.Tensor
    query: torch.Tensor
    part_out: torch.Tensor
    part_log: torch.Tensor
    attended: torch.Tensor
