"""Which collectives a forward pass makes, how often, and how many bytes they carry."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from specmodel.architecture.shape import ModelShape
from specmodel.architecture.weights import check_ranks
from specmodel.errors import ParameterError

AttentionLayout = Literal["tensor", "data"]
ExpertLayout = Literal["tensor", "expert"]

ATTENTION_LAYOUTS: Final = ("tensor", "data")
EXPERT_LAYOUTS: Final = ("tensor", "expert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """Collectives of one forward pass of a model.

    Parameters
    ----------
    num_ranks : int
        Ranks that take part, [-].
    layer_all_reduces : int
        All-reduces of the layers, one after another, [-].
    embedding_all_reduces : int
        One for a vocabulary that is split over the ranks, [-].
    all_gathers, reduce_scatters : int
        Pairs around feed-forward blocks with data-parallel attention, [-].
    all_to_alls : int
        Dispatches and combines of expert parallelism with data-parallel attention, [-].
    bytes_per_token : float
        Payload of an all-reduce, all-gather or reduce-scatter per token of the whole batch, [bytes].
    all_to_all_bytes_per_token : float
        Payload of a dispatch or combine that a token sends, mean, [bytes].
    logits_bytes_per_row : float
        Gathered once per forward for every row that is sampled or verified, [bytes].
    """

    num_ranks: int
    layer_all_reduces: int = 0
    embedding_all_reduces: int = 0
    all_gathers: int = 0
    reduce_scatters: int = 0
    all_to_alls: int = 0
    bytes_per_token: float = 0.0
    all_to_all_bytes_per_token: float = 0.0
    logits_bytes_per_row: float = 0.0

    @property
    def all_reduces(self) -> int:
        """All-reduces of a forward, with that of the embedding, [-]."""
        return self.layer_all_reduces + self.embedding_all_reduces


def collectives(
    shape: ModelShape,
    tp_size: int,
    *,
    attention: AttentionLayout = "tensor",
    experts: ExpertLayout = "tensor",
    all_to_all: bool = False,
    bytes_per_value: float = 2.0,
) -> Collectives:
    r"""Collectives of one forward pass.

    .. math:: n = 2 L + 1,\quad S = h b\ \text{per token}

    Parameters
    ----------
    shape : ModelShape
        The model, with :math:`L` layers of width :math:`h`.
    tp_size : int
        Ranks, at least 1; 1 makes no collective, [-].
    attention : {"tensor", "data"}
        Attention split by heads, or whole on each rank with its own requests.
    experts : {"tensor", "expert"}
        Each expert split over the ranks, or whole experts on different ranks.
    all_to_all : bool
        True where expert parallelism with data-parallel attention sends tokens to their experts
        and back; False where it gathers all tokens and scatters the sums.
    bytes_per_value : float
        :math:`b`, of an activation, 2 for bf16; from 0.25 to 8, [bytes].

    Returns
    -------
    Collectives

    Raises
    ------
    ParameterError
        If a size is out of bounds or a layout is not known.

    Notes
    -----
    One all-reduce after the attention and one after the feed-forward block of every layer; the sum
    of a shared expert joins that of the routed ones, and expert parallelism inside the
    tensor-parallel group makes the same two. With data-parallel attention there is none after the
    attention, and every feed-forward block is between an all-gather and a reduce-scatter of the
    tokens of all ranks, or a dispatch and a combine. A token that goes to several experts of one
    rank is sent there once (`expected_ranks`). allreduce.md 10.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> found = collectives(preset("Kimi-K2.5"), 8)
    >>> found.layer_all_reduces, found.embedding_all_reduces, found.bytes_per_token
    (122, 1, 14336.0)
    """
    check_ranks("tp_size", tp_size)
    if attention not in ATTENTION_LAYOUTS:
        raise ParameterError("attention", attention, f"one of {', '.join(ATTENTION_LAYOUTS)}")
    if experts not in EXPERT_LAYOUTS:
        raise ParameterError("experts", experts, f"one of {', '.join(EXPERT_LAYOUTS)}")
    if not 0.25 <= bytes_per_value <= 8.0:
        raise ParameterError("bytes_per_value", bytes_per_value, "from 0.25 to 8")
    if tp_size == 1:
        return Collectives(num_ranks=1)
    payload = shape.hidden_size * bytes_per_value
    logits = shape.vocab_size * bytes_per_value
    if attention == "tensor":
        return Collectives(
            num_ranks=tp_size,
            layer_all_reduces=2 * shape.num_layers,
            embedding_all_reduces=1,
            bytes_per_token=payload,
            logits_bytes_per_row=logits,
        )
    sent = shape.num_moe_layers if all_to_all and experts == "expert" else 0
    gathered = shape.num_layers - sent
    ranks = expected_ranks(shape.num_experts, shape.experts_per_token, tp_size) if sent else 0.0
    return Collectives(
        num_ranks=tp_size,
        all_gathers=gathered,
        reduce_scatters=gathered,
        all_to_alls=2 * sent,
        bytes_per_token=payload,
        all_to_all_bytes_per_token=ranks * payload,
        logits_bytes_per_row=logits,
    )


def expected_ranks(num_experts: int, experts_per_token: int, num_ranks: int) -> float:
    r"""Expected number of ranks that hold at least one of a token's experts.

    .. math:: n \left(1 - \binom{E - E/n}{K} \Big/ \binom{E}{K}\right)

    Parameters
    ----------
    num_experts : int
        :math:`E`, routed experts of a layer, at least 1, [-].
    experts_per_token : int
        :math:`K`, between 1 and `num_experts`, [-].
    num_ranks : int
        :math:`n`, ranks over which whole experts are spread evenly, at least 1, [-].

    Returns
    -------
    float
        Between 1 and the smaller of `experts_per_token` and `num_ranks`, [-].

    Raises
    ------
    ParameterError
        If a count is out of bounds.

    Notes
    -----
    For uniform routing. Where :math:`E/n` is not whole, the binomial continues with real numbers.
    The definition is a draw without replacement; groups of experts in the router lower it.

    Examples
    --------
    >>> expected_ranks(4, 1, 2), round(expected_ranks(256, 8, 8), 2)
    (1.0, 5.29)
    """
    check_ranks("num_ranks", num_ranks)
    if not 1 <= num_experts <= MOST_EXPERTS:
        raise ParameterError("num_experts", num_experts, f"from 1 to {MOST_EXPERTS}")
    if not 1 <= experts_per_token <= num_experts:
        raise ParameterError("experts_per_token", experts_per_token, "from 1 to num_experts")
    drawn = np.arange(experts_per_token)
    local = num_experts / num_ranks
    miss = float(np.prod(np.maximum(1.0 - local / (num_experts - drawn), 0.0)))
    return max(1.0, min(num_ranks * (1.0 - miss), float(experts_per_token)))


MOST_EXPERTS: Final = 1_000_000
"""Bound of the time that counting ranks takes (judgement)."""
