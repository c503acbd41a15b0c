"""The cache of some requests, and the angles of its positions."""

from typing import NamedTuple

import torch

from drafter.kernels.attention_widths import AttentionWidths
from drafter.kernels.rope_table import rope_table
from drafter.spec import DraftSpec


class CacheSpace(NamedTuple):
    """The cache of B requests, and the angles of its positions.

    Parameters
    ----------
    keys : torch.Tensor, shape (B, S, NKV, D); latent heads: (B, S, 1, kv_rank + rope_dim)
        In the storage type. Latent heads keep the normed latent, then the turned part.
    values : torch.Tensor, shape (B, S, NKV, D); latent heads: (B, S, 1, kv_rank)
        In the storage type. For latent heads a view of the latents in `keys`.
    cosine, sine : torch.Tensor, shape (S, D / 2); latent heads: (S, rope_dim / 2)
        fp32, of `rope_table`.

    Notes
    -----
    A request's slots lie together; there are no pages.

    Examples
    --------
    >>> CacheSpace._fields
    ('keys', 'values', 'cosine', 'sine')
    """

    keys: torch.Tensor
    values: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor

    @classmethod
    def empty(
        cls,
        spec: DraftSpec,
        *,
        batch_size: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | str,
        context_tokens: int | None = None,
    ) -> "CacheSpace":
        """Cache of zeros, with the angles of every slot.

        Parameters
        ----------
        spec : DraftSpec
            Heads and rope.
        batch_size, capacity : int
            B requests of S slots, [-].
        dtype : torch.dtype
            Storage type.
        device : torch.device or str
            Where.
        context_tokens : int, optional
            Context for which the dynamic rope kind is stretched, [tokens].

        Returns
        -------
        CacheSpace

        Notes
        -----
        Latents take one tensor: a token of latent heads costs kv_rank + rope_dim values.

        Examples
        --------
        >>> from drafter.public_shapes import public_shape
        >>> latent = CacheSpace.empty(
        ...     public_shape("Kimi-K2.5-MLA").spec,
        ...     batch_size=2, capacity=4, dtype=torch.bfloat16, device="cpu",
        ... )
        >>> latent.keys.shape, latent.values.shape, latent.cosine.shape
        (torch.Size([2, 4, 1, 576]), torch.Size([2, 4, 1, 512]), torch.Size([4, 32]))
        """
        widths = AttentionWidths.of(spec)
        shape = (batch_size, capacity, widths.cached_heads, widths.cached)
        keys = torch.zeros(shape, dtype=dtype, device=device)
        is_latent = spec.latent is not None
        values = keys[..., : widths.attended] if is_latent else torch.zeros_like(keys)
        tables = rope_table(
            spec.rope,
            head_dim=widths.turned,
            num_positions=capacity,
            max_positions=spec.max_positions,
            context_tokens=context_tokens,
            device=device,
        )
        return cls(keys, values, *tables)

    def of_requests(self, count: int) -> "CacheSpace":
        """The cache of the first requests.

        Parameters
        ----------
        count : int
            How many, [requests].

        Returns
        -------
        CacheSpace
            Views.

        Notes
        -----
        Rows of a batch lie together, so what a kernel needs contiguous stays so.

        Examples
        --------
        >>> rows = torch.zeros(4, 2, 1, 8)
        >>> CacheSpace(rows, rows, rows, rows).of_requests(3).keys.shape
        torch.Size([3, 2, 1, 8])
        """
        return self._replace(keys=self.keys[:count], values=self.values[:count])
