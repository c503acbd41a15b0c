"""What one forward pass reads, computes and sends, and how fast a GPU does it: plain numbers."""

from dataclasses import dataclass, fields, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from specmodel.errors import ParameterError

PerContext = float | NDArray[np.float64]
"""A number, or one for each configuration where contexts differ."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardWork:
    r"""One forward pass of a model over its tensor-parallel group.

    .. math:: W = W_r + \frac{W_d - W_r + N(t) W_e}{g}

    Parameters
    ----------
    weight_bytes : float
        :math:`W_d`, weights that every forward reads whatever the tokens, counted once for the whole
        group: attention, dense and shared MLPs, router, head; not the embedding table, [B].
    replicated_bytes : float
        :math:`W_r`, the part of `weight_bytes` that every GPU reads in full, [B].
    expert_bytes : float
        :math:`W_e`, one routed expert of every MoE layer, summed over the layers, [B].
    num_experts, experts_per_token : int
        :math:`E, K` of one MoE layer; 0 for dense models, [-].
    kv_bytes_per_token : float or numpy.ndarray
        KV cache of one token of context over all layers, counted once, [B/token].
    kv_shards : float or numpy.ndarray
        GPUs that share one copy of a request's KV: ``min(tp_size, num_kv_heads)`` for grouped heads, 1
        for a latent cache that every GPU holds, times the context-parallel size, [-].
    flop_per_token : float
        Floating-point operations per token without the attention over the context, about twice the
        active parameters, [FLOP/token].
    expert_flop_per_token : float
        The part of `flop_per_token` done by routed experts, [FLOP/token].
    attention_flop_per_pair : float or numpy.ndarray
        Operations of one query token against one token of context, over all layers, [FLOP].
    num_allreduces : float
        Collectives of one forward, one after another; a gather counts as about half, [-].
    allreduce_bytes_per_token : float
        Message per token and collective: hidden size times element size, [B/token].
    num_kernels : float
        Kernels of one forward, [-].
    tp_size : int
        :math:`g`, GPUs of the group, [-].

    Raises
    ------
    ParameterError
        If a number is negative or not finite, or a part exceeds its whole.

    Notes
    -----
    Bytes are as stored: quantisation is in `weight_bytes` and `expert_bytes`. Pipeline and data
    parallelism are outside; expert parallelism reads as tensor parallelism while the experts touched are
    spread evenly over the ranks. What depends on the context may be an array over configurations.
    theory.md B3, C.

    Examples
    --------
    >>> dense = ForwardWork(weight_bytes=16e9, flop_per_token=16e9, tp_size=2)
    >>> dense.replicated().tp_size
    1
    """

    weight_bytes: float
    replicated_bytes: float = 0.0
    expert_bytes: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 0
    kv_bytes_per_token: PerContext = 0.0
    kv_shards: PerContext = 1.0
    flop_per_token: float = 0.0
    expert_flop_per_token: float = 0.0
    attention_flop_per_pair: PerContext = 0.0
    num_allreduces: float = 0.0
    allreduce_bytes_per_token: float = 0.0
    num_kernels: float = 0.0
    tp_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in {"tp_size", "kv_shards"} else 0
            if not np.all(np.isfinite(value) & (np.asarray(value) >= least)):
                raise ParameterError(field.name, np.min(value), f"finite and at least {least}")
        for part, whole in (
            ("replicated_bytes", "weight_bytes"),
            ("expert_flop_per_token", "flop_per_token"),
            ("experts_per_token", "num_experts"),
        ):
            if getattr(self, part) > getattr(self, whole):
                allowed = f"at most {whole} ({getattr(self, whole):g})"
                raise ParameterError(part, getattr(self, part), allowed)
        if (self.expert_bytes > 0) != (self.experts_per_token > 0):
            raise ParameterError(
                "experts_per_token", self.experts_per_token, "above 0 exactly with expert_bytes"
            )

    def replicated(self) -> "ForwardWork":
        r"""The same forward on each GPU alone: every weight in full, no collective.

        .. math:: g = 1

        Returns
        -------
        ForwardWork

        Notes
        -----
        A replicated draft pays weight reads for what it saves in collectives; price both and pick.

        Examples
        --------
        >>> work = ForwardWork(weight_bytes=1e9, num_allreduces=3, tp_size=8)
        >>> work.replicated().num_allreduces
        0.0
        """
        return replace(self, tp_size=1, kv_shards=1.0, num_allreduces=0.0)

    def with_head(
        self, *, vocab_size: int, hidden_size: int, bytes_per_weight: float
    ) -> "ForwardWork":
        r"""The same forward with a language-model head over that vocabulary.

        .. math:: W_d + V h b,\quad F + 2 V h

        Parameters
        ----------
        vocab_size : int
            :math:`V`, full or reduced, [tokens].
        hidden_size : int
            :math:`h`, [-].
        bytes_per_weight : float
            :math:`b`, 2 for bf16, [B].

        Returns
        -------
        ForwardWork

        Raises
        ------
        ParameterError
            If a number is not positive and finite.

        Notes
        -----
        The head is most of what a one-layer drafter reads; a reduced vocabulary shrinks it.

        Examples
        --------
        >>> layer = ForwardWork(weight_bytes=0.5e9)
        >>> head = layer.with_head(vocab_size=32000, hidden_size=4096, bytes_per_weight=2)
        >>> round(head.weight_bytes / 1e9, 3)
        0.762
        """
        for name, value in (
            ("vocab_size", vocab_size),
            ("hidden_size", hidden_size),
            ("bytes_per_weight", bytes_per_weight),
        ):
            if not 0 < value < np.inf:
                raise ParameterError(name, value, "positive and finite")
        entries = float(vocab_size) * float(hidden_size)
        return replace(
            self,
            weight_bytes=self.weight_bytes + entries * bytes_per_weight,
            flop_per_token=self.flop_per_token + 2.0 * entries,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """What one GPU sustains.

    Parameters
    ----------
    bandwidth_bytes_per_s : float
        Memory bandwidth that streaming of weights reaches, positive, [B/s].
    flop_per_s : float
        Dense rate that its matrix products reach at this precision, positive, [FLOP/s].
    kernel_s : float
        Time that a small kernel takes inside a graph whatever it does, not negative, [s].

    Raises
    ------
    ParameterError
        If a rate is not positive or the time negative.

    Examples
    --------
    >>> DeviceRates(bandwidth_bytes_per_s=0.8 * 3.35e12, flop_per_s=0.5 * 989.5e12).kernel_s
    1.2e-06
    """

    bandwidth_bytes_per_s: float
    flop_per_s: float
    kernel_s: float = 1.2e-6

    def __post_init__(self) -> None:
        for name in ("bandwidth_bytes_per_s", "flop_per_s"):
            if not 0 < getattr(self, name) < np.inf:
                raise ParameterError(name, getattr(self, name), "positive and finite")
        if not 0 <= self.kernel_s < np.inf:
            raise ParameterError("kernel_s", self.kernel_s, "finite and not negative")
