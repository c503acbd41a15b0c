"""One pass of the layer over some tokens: from token and hidden state to the residual stream."""

from drafter.kernels.attention_buffers import GroupedBuffers, LatentBuffers
from drafter.kernels.attention_weights import GroupedWeights, LatentWeights
from drafter.kernels.cache_space import CacheSpace
from drafter.kernels.fed import Fed
from drafter.kernels.gate_up import gate_up
from drafter.kernels.grouped_block import grouped_block
from drafter.kernels.input_product import input_product
from drafter.kernels.latent_block import latent_block
from drafter.kernels.launch_plan import FUSED_NORM_TOKENS
from drafter.kernels.layer_buffers import LayerBuffers
from drafter.kernels.layer_input import layer_input
from drafter.kernels.linear import linear
from drafter.kernels.packed_weights import PackedWeights
from drafter.kernels.row_norm import row_norm
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError


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
    Grouped heads: seven launches with fused norms, nine without; one more with `norm_output`. Latent
    heads: three more. drafter.md 6 and 11.

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
    _attend(spec, weights, buffers, cache, fed, programmatic=programmatic)
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


def _attend(
    spec: DraftSpec,
    weights: PackedWeights,
    buffers: LayerBuffers,
    cache: CacheSpace,
    fed: Fed,
    *,
    programmatic: bool,
) -> None:
    """Attention between its first product and its last: from `buffers.qkv` to `buffers.heads`."""
    first, out = buffers.qkv, buffers.heads
    match weights.attention, buffers.attention:
        case GroupedWeights() as own, GroupedBuffers() as space:
            grouped_block(
                spec, own, space, cache, fed, first=first, out=out, programmatic=programmatic
            )
        case LatentWeights() as own, LatentBuffers() as space:
            latent_block(
                spec, own, space, cache, fed, first=first, out=out, programmatic=programmatic
            )
        case _:
            raise ParameterError("buffers", "of the other kind of heads", "of the weights' kind")
