"""Products of a draft step whose tiles are tuned, and which of them share a row of the table."""

from collections.abc import Sequence
from typing import NamedTuple, final

from drafter.kernels.attention_widths import AttentionWidths
from drafter.kernels.launch_plan import power_of_two
from drafter.spec import DraftSpec


@final
class Product(NamedTuple):
    """A product of weights and tokens in a draft step or an extend pass.

    Parameters
    ----------
    name : str
        ``qkv``, ``expand``, ``out``, ``gate and up``, ``down``, ``head`` or ``fc``: what is launched for it.
    rows, width : int
        Shape of the weights; gate and up are two matrices of that shape, [-].
    has_bias : bool
        A bias is added.
    feeds_normed : bool
        The head of a model with `norm_output`: what it reads of few tokens is normed already.

    Examples
    --------
    >>> Product("down", 4096, 14336).key
    (4096, 16384)
    """

    name: str
    rows: int
    width: int
    has_bias: bool = False
    feeds_normed: bool = False

    @property
    def is_gated(self) -> bool:
        """Whether there are two streams of weights."""
        return self.name == "gate and up"

    @property
    def is_wide(self) -> bool:
        """Whether a launch holds more than the sums of one product: two, or the best ids."""
        return self.is_gated or self.name == "head"

    @property
    def num_matrices(self) -> int:
        """Matrices of that shape, [-]."""
        return 2 if self.is_gated else 1

    @property
    def key(self) -> tuple[int, int]:
        """Rows and width as the table tells them apart."""
        return (power_of_two(self.rows), power_of_two(self.width))


def products(spec: DraftSpec) -> tuple[Product, ...]:
    r"""Products of a step and of an extend pass.

    .. math:: \{(N_H + 2 N_{KV}) D \times 2H, \dots, V_d \times H\}

    Parameters
    ----------
    spec : DraftSpec
        Shapes. Of latent heads the first product gives compressed queries and latents, `expand` the queries
        of every head; their small products by the head have no row of the table.

    Returns
    -------
    tuple of Product
        In the order of a step; the fusion last.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> [each.name for each in products(public_shape("Llama-3.1-8B").spec)]
    ['qkv', 'out', 'gate and up', 'down', 'head', 'fc']
    """
    hidden, biased, latent = spec.hidden_size, spec.attention_bias, spec.latent
    widths = AttentionWidths.of(spec)
    found = [Product("qkv", widths.first_rows, 2 * hidden, biased)]
    if latent is not None:
        rows = spec.num_heads * (latent.nope_dim + latent.rope_dim)
        found.append(Product("expand", rows, latent.query_rank))
    found += [
        Product("out", hidden, widths.out, biased),
        Product("gate and up", spec.mlp_width, hidden),
        Product("down", hidden, spec.mlp_width),
        Product("head", spec.draft_vocab_size, hidden, feeds_normed=spec.norm_output),
    ]
    if spec.use_aux_hidden_state:
        width = spec.num_aux_states * spec.target_hidden_size
        found.append(Product("fc", hidden, width, spec.fc_bias))
    return tuple(found)


def by_row(found: Sequence[Product]) -> tuple[tuple[Product, ...], ...]:
    r"""Products that share a row of the table, together.

    .. math:: (2^{\lceil \log_2 n \rceil}, 2^{\lceil \log_2 k \rceil}) \text{ equal}

    Parameters
    ----------
    found : sequence of Product
        Of one model.

    Returns
    -------
    tuple of tuple of Product
        In the order in which the rows come up.

    Notes
    -----
    The table does not tell kernels apart, so tiles of a row have to suit all products that read it.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> rows = by_row(products(public_shape("gpt-oss").spec))
    >>> [" + ".join(each.name for each in row) for row in rows]
    ['qkv', 'out', 'gate and up + head', 'down', 'fc']
    """
    rows: dict[tuple[int, int], list[Product]] = {}
    for each in found:
        rows.setdefault(each.key, []).append(each)
    return tuple(tuple(each) for each in rows.values())
