"""First product of the layer for few tokens, with the norms of both halves of its input folded in."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import (
    INDEX_TYPES,
    STORAGE_TYPES,
    check_range,
    check_tensor,
    vector_width,
)
from drafter.kernels.launch_plan import (
    FUSED_NORM_TOKENS,
    Tiles,
    device_sm,
    power_of_two,
    product_options,
    tiles_for,
)
from drafter.kernels.matvec import matvec, token_rows
from drafter.kernels.numerics import rounded


@triton.jit(do_not_specialize=["num_tokens"])
def input_product_kernel(
    tokens: tl.tensor,
    embedding: tl.tensor,
    hidden: tl.tensor,
    hidden_rows: tl.tensor,
    embed_norm: tl.tensor,
    hidden_norm: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    residual: tl.tensor,
    num_tokens: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, num_rows].

    A row of the weights has `width` columns for the embedding, then as many for the hidden state. The
    residual [T, width] is copied by the way, BLOCK_N columns a program.
    """
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    embedded, _ = matvec(
        embedding,
        tokens,
        num_tokens,
        weight,
        rows,
        embed_norm,
        eps,
        num_rows,
        width,
        2 * width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        PDL,
    )
    carried, scales = matvec(
        hidden,
        hidden_rows,
        num_tokens,
        weight + width,
        rows,
        hidden_norm,
        eps,
        num_rows,
        width,
        2 * width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    out_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        value = embedded[token] + carried[token]
        if bias is not None:
            value += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
        place = out + out_rows[token] * num_rows + rows
        tl.store(place, rounded(value, out.dtype.element_ty), mask=inside)
    hidden_places = token_rows(hidden_rows, num_tokens, NUM_TOKENS)
    for start in range(tl.program_id(0) * BLOCK_N, width, tl.num_programs(0) * BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)
        for token in tl.static_range(NUM_TOKENS):
            inside = column < tl.where(token < num_tokens, width, 0)
            place = hidden + hidden_places[token] * width + column
            value = tl.load(place, mask=inside, other=0.0).to(tl.float32)
            if NORMED_RESIDUAL:
                gain = tl.load(hidden_norm + column, mask=inside, other=0.0).to(tl.float32)
                value = value * scales[token] * gain
            place = residual + out_rows[token] * width + column
            tl.store(place, rounded(value, residual.dtype.element_ty), mask=inside)


def input_product(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    hidden: torch.Tensor,
    embed_norm: torch.Tensor,
    hidden_norm: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor,
    *,
    eps: float,
    normed_residual: bool,
    hidden_rows: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    tiles: Tiles | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write the first product of each token, from token and hidden state, and the residual.

    .. math:: y_t = b + W \left[\mathrm{norm}_e(E_{\text{token}_t}),\; \mathrm{norm}_h(h_{\rho(t)})\right]

    Parameters
    ----------
    tokens : torch.Tensor, shape (T,)
        Ids in the target vocabulary, at most `FUSED_NORM_TOKENS`; they are trusted to be inside it.
    embedding : torch.Tensor, shape (V, H)
        :math:`E`.
    hidden : torch.Tensor, shape (R, H)
        :math:`h`: the fused captured states, or what the step before carried.
    embed_norm, hidden_norm : torch.Tensor, shape (H,)
        Weights of the two norms.
    weight : torch.Tensor, shape (N, 2 H)
        :math:`W`, embedding half first.
    out : torch.Tensor, shape (T, N)
        :math:`y`.
    residual : torch.Tensor, shape (T, H)
        :math:`h_{\rho(t)}`, normalised with `normed_residual`; not `hidden` itself.
    eps : float
        Of both norms, [-].
    normed_residual : bool
        The switch `norm_before_residual`.
    hidden_rows : torch.Tensor, optional, shape (T,)
        :math:`\rho`, the row of `hidden` of each token; by default the token's own.
    bias : torch.Tensor, optional, shape (N,)
        :math:`b`.
    tiles : Tiles, optional
        How to cut; by default the shipped table decides.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit, or there are too many tokens.

    Notes
    -----
    `layer_input` and `linear` in one launch. Each norm is a factor per token, so both halves are summed
    apart and scaled at the end; nothing is rounded between norm and product. drafter.md 11.

    Examples
    --------
    >>> norm = torch.ones(4)
    >>> input_product(torch.zeros(1, dtype=torch.int64), torch.ones(9, 4), torch.ones(1, 4), norm, norm,
    ...               torch.ones(6, 8), torch.empty(1, 5), norm[None], eps=1e-5, normed_residual=False)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: out must be of shape (1, 6), got (1, 5)
    """
    num_tokens, width = tokens.shape[0], hidden.shape[1]
    num_rows = weight.shape[0]
    check_range("tokens", num_tokens, 1, FUSED_NORM_TOKENS, "normalise the rows before")
    check_tensor("tokens", tokens, (num_tokens,), INDEX_TYPES, hidden)
    check_tensor("embedding", embedding, (embedding.shape[0], width), STORAGE_TYPES, hidden)
    source_rows = hidden.shape[0] if hidden_rows is not None else num_tokens
    check_tensor("hidden", hidden, (source_rows, width), STORAGE_TYPES)
    check_tensor("embed_norm", embed_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("hidden_norm", hidden_norm, (width,), STORAGE_TYPES, hidden)
    check_tensor("weight", weight, (num_rows, 2 * width), STORAGE_TYPES, hidden)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, hidden)
    check_tensor("residual", residual, (num_tokens, width), STORAGE_TYPES, hidden)
    if hidden_rows is not None:
        check_tensor("hidden_rows", hidden_rows, (num_tokens,), INDEX_TYPES, hidden)
    if bias is not None:
        check_tensor("bias", bias, (num_rows,), STORAGE_TYPES, hidden)
    sm, value_bytes = device_sm(weight.device), weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, 2 * width, value_bytes=value_bytes)
    input_product_kernel[(triton.cdiv(num_rows, cut.block_n),)](
        tokens,
        embedding,
        hidden,
        hidden_rows,
        embed_norm,
        hidden_norm,
        weight,
        bias,
        out,
        residual,
        num_tokens,
        eps,
        num_rows,
        width,
        power_of_two(num_tokens),
        cut.block_n,
        cut.block_k,
        vector_width(weight),
        width % cut.block_k == 0,
        normed_residual,
        programmatic,
        **product_options(cut, programmatic),
    )
