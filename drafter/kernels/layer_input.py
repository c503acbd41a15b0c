"""What enters the layer: the embedding of the token beside the hidden state, both normalised."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import INDEX_TYPES, STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import power_of_two, row_options
from drafter.kernels.numerics import rounded


@triton.jit
def layer_input_kernel(
    tokens: tl.tensor,
    embedding: tl.tensor,
    hidden: tl.tensor,
    hidden_rows: tl.tensor,
    embed_norm: tl.tensor,
    hidden_norm: tl.tensor,
    out: tl.tensor,
    residual: tl.tensor,
    eps: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes one token's row: out [T, 2, width], residual [T, width]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    embed_gain = tl.load(embed_norm + column, mask=inside, other=0.0).to(tl.float32)
    hidden_gain = tl.load(hidden_norm + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    token = tl.load(tokens + row).to(tl.int64)
    source = row
    if hidden_rows is not None:
        source = tl.load(hidden_rows + row).to(tl.int64)
    embedded = tl.load(embedding + token * width + column, mask=inside, other=0.0).to(tl.float32)
    carried = tl.load(hidden + source * width + column, mask=inside, other=0.0).to(tl.float32)
    embed_scale = 1.0 / tl.sqrt(tl.sum(embedded * embedded, axis=0) / width + eps)
    hidden_scale = 1.0 / tl.sqrt(tl.sum(carried * carried, axis=0) / width + eps)
    normed = carried * hidden_scale * hidden_gain
    first = out + row * (2 * width) + column
    storage = out.dtype.element_ty
    tl.store(first, rounded(embedded * embed_scale * embed_gain, storage), mask=inside)
    tl.store(first + width, rounded(normed, storage), mask=inside)
    kept = normed if NORMED_RESIDUAL else carried
    kept = rounded(kept, residual.dtype.element_ty)
    tl.store(residual + row * width + column, kept, mask=inside)


def layer_input(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    hidden: torch.Tensor,
    embed_norm: torch.Tensor,
    hidden_norm: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor,
    *,
    eps: float,
    normed_residual: bool,
    hidden_rows: torch.Tensor | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write the layer's input and the residual of each token.

    .. math:: x_t = \left[\mathrm{norm}_e(E_{\text{token}_t}),\; \mathrm{norm}_h(h_{\rho(t)})\right]

    Parameters
    ----------
    tokens : torch.Tensor, shape (T,)
        Ids in the target vocabulary; they are trusted to be inside it.
    embedding : torch.Tensor, shape (V, H)
        :math:`E`.
    hidden : torch.Tensor, shape (R, H)
        :math:`h`: the fused captured states, or what the step before carried.
    embed_norm, hidden_norm : torch.Tensor, shape (H,)
        Weights of the two norms.
    out : torch.Tensor, shape (T, 2 H)
        :math:`x`, embedding half first.
    residual : torch.Tensor, shape (T, H)
        :math:`h_{\rho(t)}`, normalised with `normed_residual`.
    eps : float
        Of both norms, [-].
    normed_residual : bool
        The switch `norm_before_residual`.
    hidden_rows : torch.Tensor, optional, shape (T,)
        :math:`\rho`, the row of `hidden` of each token; by default the token's own.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    The embedding never enters the residual. drafter.md 6, steps 2 and 4.

    Examples
    --------
    >>> norm = torch.ones(4)
    >>> layer_input(torch.zeros(1, dtype=torch.int64), torch.ones(9, 4), torch.ones(1, 4), norm, norm,
    ...             torch.empty(1, 4), torch.empty(1, 4), eps=1e-5, normed_residual=False)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: out must be of shape (1, 8), got (1, 4)
    """
    num_tokens, width = tokens.shape[0], hidden.shape[1]
    check_tensor("tokens", tokens, (num_tokens,), INDEX_TYPES, hidden)
    check_tensor("embedding", embedding, (embedding.shape[0], width), STORAGE_TYPES, hidden)
    source_rows = hidden.shape[0] if hidden_rows is not None else num_tokens
    check_tensor("hidden", hidden, (source_rows, width), STORAGE_TYPES)
    check_tensor("embed_norm", embed_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("hidden_norm", hidden_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("out", out, (num_tokens, 2 * width), STORAGE_TYPES, hidden)
    check_tensor("residual", residual, (num_tokens, width), STORAGE_TYPES, hidden)
    if hidden_rows is not None:
        check_tensor("hidden_rows", hidden_rows, (num_tokens,), INDEX_TYPES, hidden)
    block = power_of_two(width)
    layer_input_kernel[(num_tokens,)](
        tokens,
        embedding,
        hidden,
        hidden_rows,
        embed_norm,
        hidden_norm,
        out,
        residual,
        eps,
        width,
        block,
        normed_residual,
        programmatic,
        **row_options(block, programmatic),
    )
