"""One pass of the layer over some tokens: from token and hidden state to the residual stream."""

from typing import NamedTuple

import torch

from drafter.kernels.attention import attention
from drafter.kernels.attention_merge import attention_merge
from drafter.kernels.gate_up import gate_up
from drafter.kernels.input_product import input_product
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS
from drafter.kernels.layer_buffers import LayerBuffers
from drafter.kernels.layer_input import layer_input
from drafter.kernels.linear import linear
from drafter.kernels.packed_weights import PackedWeights
from drafter.kernels.rope_cache import rope_cache
from drafter.kernels.row_norm import row_norm
from drafter.spec import DraftSpec


class CacheSpace(NamedTuple):
    """The cache of B requests, and the angles of its positions.

    Parameters
    ----------
    keys, values : torch.Tensor, shape (B, S, NKV, D)
        In the storage type.
    cosine, sine : torch.Tensor, shape (S, D / 2)
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


class Fed(NamedTuple):
    """What a pass over T tokens of B requests is fed.

    Parameters
    ----------
    tokens : torch.Tensor, shape (T,)
        Ids of the target vocabulary.
    hidden : torch.Tensor, shape (R, H)
        Fused states, or carries of the step before.
    hidden_rows : torch.Tensor or None, shape (T,)
        Which of them each token is fed; None: its own.
    positions, slots : torch.Tensor, shape (T,)
        Position, and place in the cache; -1 for a row without a token.
    lengths : torch.Tensor, shape (B,)
        Slots in use once this pass has written its own.
    tail_starts : torch.Tensor or None, shape (B,)
        First slot of the tree.
    ancestors : torch.Tensor or None, shape (T,)
        Slots of the tree that each token sees; None for a chain or an extend pass.

    Notes
    -----
    All on the device.

    Examples
    --------
    >>> Fed._fields[-1]
    'ancestors'
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    hidden_rows: torch.Tensor | None
    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    tail_starts: torch.Tensor | None = None
    ancestors: torch.Tensor | None = None


def layer_pass(
    spec: DraftSpec,
    weights: PackedWeights,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    is_fused: bool,
    programmatic: bool,
) -> None:
    r"""Launch the layer; `buffers.stream` and `buffers.carry` hold the result.

    .. math::
        r &= (h \text{ or } n) + W_o\, \mathrm{attention}(x) \\
        r &\leftarrow r + W_d\left(\mathrm{silu}(W_g y) \odot W_u y\right), \quad y = \mathrm{norm}(r)

    Parameters
    ----------
    spec : DraftSpec
        Shapes and switches.
    weights : PackedWeights
        The weights.
    buffers : LayerBuffers
        Space for T tokens.
    cache : CacheSpace
        Read, and written at the slots of `fed`.
    fed : Fed
        Tokens, hidden states, places.
    is_fused : bool
        Norms are part of the products that follow them, for at most `FUSED_NORM_TOKENS`.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes do not fit.

    Notes
    -----
    Seven launches with fused norms, nine without; one more with `norm_output`. drafter.md 6 and 11.

    Examples
    --------
    >>> layer_pass.__name__
    'layer_pass'
    """
    eps = spec.rms_norm_eps
    folds_norms = is_fused and len(fed.tokens) <= FUSED_NORM_TOKENS
    if folds_norms:
        input_product(
            fed.tokens,
            weights.embedding,
            fed.hidden,
            weights.embed_norm,
            weights.hidden_norm,
            weights.qkv,
            buffers.qkv,
            buffers.residual,
            eps=eps,
            normed_residual=spec.norm_before_residual,
            hidden_rows=fed.hidden_rows,
            bias=weights.qkv_bias,
            programmatic=programmatic,
        )
    else:
        layer_input(
            fed.tokens,
            weights.embedding,
            fed.hidden,
            weights.embed_norm,
            weights.hidden_norm,
            buffers.fused_input,
            buffers.residual,
            eps=eps,
            normed_residual=spec.norm_before_residual,
            hidden_rows=fed.hidden_rows,
            programmatic=programmatic,
        )
        linear(
            buffers.fused_input,
            weights.qkv,
            buffers.qkv,
            bias=weights.qkv_bias,
            programmatic=programmatic,
        )
    rope_cache(
        buffers.qkv,
        cache.cosine,
        cache.sine,
        fed.positions,
        fed.slots,
        buffers.query,
        cache.keys,
        cache.values,
        query_norm=weights.query_norm,
        key_norm=weights.key_norm,
        eps=eps,
        programmatic=programmatic,
    )
    attention(
        buffers.query,
        cache.keys,
        cache.values,
        fed.positions,
        fed.lengths,
        buffers.part_out,
        buffers.part_log,
        tail_starts=fed.tail_starts,
        ancestors=fed.ancestors,
        sliding_window=spec.sliding_window,
        programmatic=programmatic,
    )
    attention_merge(buffers.part_out, buffers.part_log, buffers.heads, programmatic=programmatic)
    linear(
        buffers.heads,
        weights.out,
        buffers.middle,
        bias=weights.out_bias,
        residual=buffers.residual,
        programmatic=programmatic,
    )
    if folds_norms:
        gate_up(
            buffers.middle,
            weights.gate,
            weights.up,
            buffers.gated,
            norm=weights.mlp_norm,
            eps=eps,
            programmatic=programmatic,
        )
    else:
        row_norm(
            buffers.middle, weights.mlp_norm, buffers.normed, eps=eps, programmatic=programmatic
        )
        gate_up(buffers.normed, weights.gate, weights.up, buffers.gated, programmatic=programmatic)
    linear(
        buffers.gated,
        weights.down,
        buffers.stream,
        residual=buffers.middle,
        programmatic=programmatic,
    )
    if spec.norm_output:
        row_norm(
            buffers.stream, weights.final_norm, buffers.carry, eps=eps, programmatic=programmatic
        )
