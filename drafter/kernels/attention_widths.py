"""Widths that differ between grouped and latent heads."""

from typing import NamedTuple, final

from drafter.spec import DraftSpec


@final
class AttentionWidths(NamedTuple):
    """Widths of attention, whatever the kind of heads.

    Parameters
    ----------
    first_rows : int
        Rows of the first product, whose inputs are embedding and hidden state side by side, [-].
    cached_heads, cached : int
        Heads that the cache holds for a token, and values of each of their keys, [-].
    turned : int
        Values of a head that turn with the position, [-].
    attended : int
        Values that attention gives for a head, [-].
    out : int
        Inputs of the output projection, [-].

    Notes
    -----
    Latent heads attend to latents, so `attended` is their width and not that of a value.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> AttentionWidths.of(public_shape("Llama-3.1-8B").spec)
    AttentionWidths(first_rows=6144, cached_heads=8, cached=128, turned=128, attended=128, out=4096)
    >>> AttentionWidths.of(public_shape("Kimi-K2.5-MLA").spec)
    AttentionWidths(first_rows=2112, cached_heads=1, cached=576, turned=64, attended=512, out=8192)
    """

    first_rows: int
    cached_heads: int
    cached: int
    turned: int
    attended: int
    out: int

    @classmethod
    def of(cls, spec: DraftSpec) -> "AttentionWidths":
        r"""Widths of a draft model.

        .. math:: (N_H + 2 N_{KV}) D \text{ or } l_q + l_{kv} + r \text{ rows of the first product}

        Parameters
        ----------
        spec : DraftSpec
            Heads of either kind.

        Returns
        -------
        AttentionWidths

        Notes
        -----
        The names are those of drafter.md 3.

        Examples
        --------
        >>> from drafter.reference.example import example_spec
        >>> AttentionWidths.of(example_spec()).out
        32
        """
        latent = spec.latent
        if latent is None:
            width = spec.head_dim
            return cls(
                first_rows=(spec.num_heads + 2 * spec.num_kv_heads) * width,
                cached_heads=spec.num_kv_heads,
                cached=width,
                turned=width,
                attended=width,
                out=spec.num_heads * width,
            )
        cached = latent.kv_rank + latent.rope_dim
        return cls(
            first_rows=latent.query_rank + cached,
            cached_heads=1,
            cached=cached,
            turned=latent.rope_dim,
            attended=latent.kv_rank,
            out=spec.num_heads * latent.value_dim,
        )
