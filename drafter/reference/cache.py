"""What attention keeps of the rows it has seen."""

from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor

from drafter.spec import DraftSpec


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Keys and values of one request, in the order in which they were written.

    Parameters
    ----------
    keys : Tensor, shape [S, NKV, D]; latent heads: [S, 1, rope_dim]
        Turned by their positions; latent heads keep the shared turning part, [-].
    values : Tensor, shape [S, NKV, D]; latent heads: [S, 1, kv_rank]
        Latent heads keep the normed latent, from which keys and values of every head are made, [-].
    positions : Tensor of int64, shape [S]
        [tokens].

    Notes
    -----
    Nothing is written in place: a round drops the rows of its draft by keeping the cache from before.

    Examples
    --------
    >>> from drafter.spec import LatentHeads
    >>> rows = torch.zeros(2, 1, 4)
    >>> cache = KvCache(keys=rows, values=rows, positions=torch.arange(2))
    >>> len(cache.extended(rows, rows, torch.tensor([2, 3])))
    4
    """

    keys: Tensor
    values: Tensor
    positions: Tensor

    @classmethod
    def empty(cls, spec: DraftSpec, *, dtype: torch.dtype = torch.float64) -> Self:
        """Cache before the first row.

        Parameters
        ----------
        spec : DraftSpec
            Decides the widths.
        dtype : torch.dtype
            Of keys and values.

        Returns
        -------
        KvCache
            Without rows.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> len(KvCache.empty(example_spec()))
        0
        """
        if spec.latent is None:
            key_shape = value_shape = (0, spec.num_kv_heads, spec.head_dim)
        else:
            key_shape = (0, 1, spec.latent.rope_dim)
            value_shape = (0, 1, spec.latent.kv_rank)
        return cls(
            keys=torch.empty(key_shape, dtype=dtype),
            values=torch.empty(value_shape, dtype=dtype),
            positions=torch.empty(0, dtype=torch.int64),
        )

    def extended(self, keys: Tensor, values: Tensor, positions: Tensor) -> "KvCache":
        """Cache with more rows at its end.

        Parameters
        ----------
        keys, values : Tensor
            New rows, shaped as those that are there, [-].
        positions : Tensor, shape [T]
            Of the new rows, [tokens].

        Returns
        -------
        KvCache
            Of S + T rows; this one is unchanged.

        Examples
        --------
        >>> rows = torch.zeros(1, 1, 2)
        >>> cache = KvCache(keys=rows, values=rows, positions=torch.tensor([0]))
        >>> cache.extended(rows, rows, torch.tensor([1])).positions.tolist()
        [0, 1]
        """
        return KvCache(
            keys=torch.cat([self.keys, keys]),
            values=torch.cat([self.values, values]),
            positions=torch.cat([self.positions, positions.to(torch.int64)]),
        )

    def __len__(self) -> int:
        return len(self.positions)
