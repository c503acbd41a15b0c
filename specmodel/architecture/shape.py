"""A language model as counts: layers, widths, heads, experts and stored formats."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from specmodel.architecture.blocks import Attention, Mlp, MoeMlp
from specmodel.architecture.counts import check_counts
from specmodel.architecture.quantisation import Quantisation
from specmodel.errors import ParameterError

MOST_LAYERS = 10_000
"""Bound of the time that a description takes (judgement; the deepest public model has 126)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Equal layers of a model.

    Parameters
    ----------
    count : int
        How many, [-].
    attention : GroupedAttention, LatentAttention, LinearAttention or CompressedAttention
        Their attention block.
    mlp : DenseMlp or MoeMlp
        Their feed-forward block.
    """

    count: int
    attention: Attention
    mlp: Mlp

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a language model is made of.

    Parameters
    ----------
    name : str
        For people.
    architecture : str
        Class or model type in its ``config.json``.
    hidden_size, vocab_size : int
        Width of the residual stream, rows of the embedding, [-].
    layers : tuple of LayerGroup
        In any order; their counts add up to the depth.
    tie_embeddings : bool
        True where the head is the embedding.
    mtp_layers : int
        Multi-token-prediction layers in the checkpoint, not among `layers`, [-].
    other_parameters : int
        Parameters of encoders that decoding does not read, [-].
    fused_width : int
        Width of the target's states that a draft model projects to its own; 0 for a target, [-].
    weights : Quantisation
        Formats of the checkpoint.
    notes : tuple of str
        What a reader of the numbers has to know.
    """

    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerGroup, ...]
    tie_embeddings: bool = False
    mtp_layers: int = 0
    other_parameters: int = 0
    fused_width: int = 0
    weights: Quantisation = field(default_factory=Quantisation)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_counts(self, zero_allowed=("mtp_layers", "other_parameters", "fused_width"))
        if not 1 <= self.num_layers <= MOST_LAYERS:
            raise ParameterError("num_layers", self.num_layers, f"from 1 to {MOST_LAYERS}")

    @property
    def num_layers(self) -> int:
        """Depth without multi-token-prediction layers, [-]."""
        return sum(group.count for group in self.layers)

    @property
    def moe_groups(self) -> tuple[tuple[int, MoeMlp], ...]:
        """Layers that route, as (count, block); empty for a dense model."""
        return tuple(
            (group.count, group.mlp) for group in self.layers if isinstance(group.mlp, MoeMlp)
        )

    @property
    def num_moe_layers(self) -> int:
        """Layers that route, [-]."""
        return sum(count for count, _ in self.moe_groups)

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer; 0 for a dense model, [-]."""
        return self.moe_groups[0][1].num_experts if self.moe_groups else 0

    @property
    def experts_per_token(self) -> int:
        """Routed experts that a token uses in a layer; 0 for a dense model, [-]."""
        return self.moe_groups[0][1].experts_per_token if self.moe_groups else 0

    def with_weights(self, weights: Quantisation) -> "ModelShape":
        r"""Return the same model stored in other formats.

        .. math:: \text{shape} \mapsto \text{shape}

        Parameters
        ----------
        weights : Quantisation
            The formats.

        Returns
        -------
        ModelShape

        Notes
        -----
        Changes no count, only bytes.

        Examples
        --------
        >>> from specmodel.architecture import preset, quantisation
        >>> preset("Qwen3-8B").with_weights(quantisation("fp8")).weights.attention.name
        'fp8'
        """
        return dataclasses.replace(self, weights=weights)


def grouped_layers(layers: Iterable[tuple[Attention, Mlp]]) -> tuple[LayerGroup, ...]:
    r"""Equal layers gathered, in the order of their first occurrence.

    .. math:: (l_1, \ldots, l_L) \mapsto \{(\text{count}, l)\}

    Parameters
    ----------
    layers : iterable of (attention, mlp)
        One entry a layer.

    Returns
    -------
    tuple of LayerGroup

    Notes
    -----
    Layers compare by their counts.

    Examples
    --------
    >>> from specmodel.architecture.blocks import DenseMlp, GroupedAttention
    >>> attention = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8)
    >>> [group.count for group in grouped_layers([(attention, DenseMlp(width=32))] * 3)]
    [3]
    """
    return tuple(
        LayerGroup(count=count, attention=attention, mlp=mlp)
        for (attention, mlp), count in Counter(layers).items()
    )
