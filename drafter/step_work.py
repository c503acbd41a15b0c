"""What one pass of a draft model reads and computes, from its counts alone."""

from dataclasses import dataclass
from typing import final

from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

BF16_BYTES = 2
"""Stored width of a weight or a cached value that public draft models are served with. [B]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepWeights:
    """Parameters of the matrices, each read once in a pass; norms are left out.

    Parameters
    ----------
    attention_inputs : int
        Projections to queries, keys and values, from embedding and hidden state side by side, [-].
    attention_output : int
        Projection of the attended values, [-].
    mlp : int
        Gate, up and down, [-].
    head : int
        Draft vocabulary by hidden size, [-].
    fusion : int
        Captured states to hidden size; read by an extend only, 0 where nothing is fused, [-].
    """

    attention_inputs: int
    attention_output: int
    mlp: int
    head: int
    fusion: int

    @property
    def step(self) -> int:
        """Parameters that a decode step reads, without the fusion, [-]."""
        return self.attention_inputs + self.attention_output + self.mlp + self.head

    @property
    def head_share(self) -> float:
        """Share of the head in a decode step, in (0, 1), [-]."""
        return self.head / self.step


def step_weights(spec: DraftSpec) -> StepWeights:
    r"""Parameters of each part.

    .. math:: P = 2H (N_H + 2 N_{KV}) D + N_H D H + 3 H I + V_d H

    .. math:: P_{MLA} = 2H (l_q + l_{kv} + r) + l_q N_H (n + r) + l_{kv} N_H (n + v)
              + N_H v H + 3 H I + V_d H

    Parameters
    ----------
    spec : DraftSpec
        With :math:`H, N_H, N_{KV}, D, I, V_d`, and :math:`l_q, l_{kv}, n, r, v` of latent heads.

    Returns
    -------
    StepWeights
        :math:`P` is its `step`; `fusion` is :math:`A H_t H`, [-].

    Notes
    -----
    Only the first projections see the embedding beside the hidden state, hence :math:`2H`. Norms, biases
    and the one gathered row of the embedding are under 0.2 MB and left out.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> weights = step_weights(public_shape("Llama-3.1-8B").spec)
    >>> weights.step, round(weights.head_share, 3)
    (374341632, 0.35)
    """
    hidden, latent = spec.hidden_size, spec.latent
    if latent is None:
        inputs = 2 * hidden * (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        output = spec.num_heads * spec.head_dim * hidden
    else:
        inputs = (
            2 * hidden * (latent.query_rank + latent.kv_rank + latent.rope_dim)
            + latent.query_rank * spec.num_heads * (latent.nope_dim + latent.rope_dim)
            + latent.kv_rank * spec.num_heads * (latent.nope_dim + latent.value_dim)
        )
        output = spec.num_heads * latent.value_dim * hidden
    fused = spec.num_aux_states * spec.target_hidden_size * hidden
    return StepWeights(
        attention_inputs=inputs,
        attention_output=output,
        mlp=3 * hidden * spec.mlp_width,
        head=spec.draft_vocab_size * hidden,
        fusion=fused if spec.use_aux_hidden_state else 0,
    )


def cached_values_per_token(spec: DraftSpec) -> int:
    r"""Values that the cache holds for a token.

    .. math:: 2 N_{KV} D \quad\text{or}\quad l_{kv} + r

    Parameters
    ----------
    spec : DraftSpec
        Grouped heads cache keys and values; latent heads one latent and one rotated part.

    Returns
    -------
    int
        At least 1, [-].

    Notes
    -----
    A draft model has one layer, so this is all it caches.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> cached_values_per_token(public_shape("Llama-3.1-8B").spec)
    2048
    """
    if spec.latent is not None:
        return spec.latent.kv_rank + spec.latent.rope_dim
    return 2 * spec.num_kv_heads * spec.head_dim


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a decode step moves and computes.

    Parameters
    ----------
    weight_bytes : int
        Weights, read once whatever the batch, [B].
    cache_bytes : int
        Cached keys and values of all requests, [B].
    extend_bytes : int
        What an extend reads besides: the fusion, [B].
    flop : int
        Of the matrices and of attention, for all tokens of the step, [FLOP].
    """

    weight_bytes: int
    cache_bytes: int
    extend_bytes: int
    flop: int

    @property
    def step_bytes(self) -> int:
        """Bytes that a decode step reads, [B]."""
        return self.weight_bytes + self.cache_bytes


def step_work(
    spec: DraftSpec,
    *,
    context_tokens: int = 0,
    batch_size: int = 1,
    value_bytes: int = BF16_BYTES,
) -> StepWork:
    r"""Bytes and operations of a decode step with one token a request.

    .. math:: \text{bytes} = w P + B c w v,\qquad \text{FLOP} = B (2 P + 2 c a)

    Parameters
    ----------
    spec : DraftSpec
        :math:`P` of `step_weights`, :math:`v` of `cached_values_per_token`.
    context_tokens : int
        :math:`c \ge 0`, cached tokens of a request; a sliding window caps it, [tokens].
    batch_size : int
        :math:`B \ge 1`, [requests].
    value_bytes : int
        :math:`w`, stored width of weights and cache: 1, 2, 4 or 8, [B].

    Returns
    -------
    StepWork

    Raises
    ------
    ParameterError
        If an argument is out of bounds.

    Notes
    -----
    :math:`a` are the products of attention for a cached token: :math:`2 N_H D` for grouped heads,
    :math:`N_H (2 l_{kv} + r)` for latent ones that attend in the latent space. Weights are read once
    for the batch, the cache once for each request.

    Examples
    --------
    >>> from drafter.public_shapes import public_shape
    >>> work = step_work(public_shape("Llama-3.1-8B").spec, context_tokens=2048)
    >>> work.weight_bytes, work.cache_bytes
    (748683264, 8388608)
    """
    if context_tokens < 0:
        raise ParameterError("context_tokens", context_tokens, "at least 0")
    if batch_size < 1:
        raise ParameterError("batch_size", batch_size, "at least 1")
    if value_bytes not in {1, 2, 4, 8}:
        raise ParameterError("value_bytes", value_bytes, "1, 2, 4 or 8")
    weights = step_weights(spec)
    seen = (
        context_tokens if spec.sliding_window is None else min(context_tokens, spec.sliding_window)
    )
    products = _attention_products(spec)
    return StepWork(
        weight_bytes=value_bytes * weights.step,
        cache_bytes=batch_size * seen * value_bytes * cached_values_per_token(spec),
        extend_bytes=value_bytes * weights.fusion,
        flop=batch_size * 2 * (weights.step + seen * products),
    )


def _attention_products(spec: DraftSpec) -> int:
    """Multiplications that a query spends on one cached token."""
    if spec.latent is None:
        return 2 * spec.num_heads * spec.head_dim
    return spec.num_heads * (2 * spec.latent.kv_rank + spec.latent.rope_dim)
