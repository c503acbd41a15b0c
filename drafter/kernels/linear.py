"""Weights times tokens with bias and residual: fc, the fused q/k/v, o_proj and down."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor, vector_width
from drafter.kernels.launch_plan import (
    MATVEC_TOKENS,
    Tiles,
    device_sm,
    dot_tokens,
    power_of_two,
    product_options,
    tiles_for,
)
from drafter.kernels.matvec import matvec, token_rows
from drafter.kernels.numerics import rounded
from drafter.kernels.swap_dot import swap_dot


@triton.jit(do_not_specialize=["num_tokens"])
def linear_matvec_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    NUM_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    results, _ = matvec(
        inputs,
        None,
        num_tokens,
        weight,
        rows,
        None,
        0.0,
        num_rows,
        width,
        width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        PDL,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    input_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        value = results[token]
        if bias is not None:
            value += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
        if residual is not None:
            place = residual + input_rows[token] * num_rows + rows
            value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        place = out + input_rows[token] * num_rows + rows
        tl.store(place, rounded(value, out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def linear_dot_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of BLOCK_T tokens: out [T, num_rows]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    value = swap_dot(
        inputs, input_rows, weight, rows, num_rows, width, BLOCK_N, BLOCK_K, BLOCK_T, IS_WHOLE, PDL
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    place = input_rows[None, :] * num_rows + rows[:, None]
    if bias is not None:
        value += tl.load(bias + rows, mask=rows < num_rows, other=0.0).to(tl.float32)[:, None]
    if residual is not None:
        value += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, rounded(value, out.dtype.element_ty), mask=inside)


def linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    tiles: Tiles | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write a linear map of each token, and what is added to it.

    .. math:: y_t = r_t + b + W x_t

    Parameters
    ----------
    inputs : torch.Tensor, shape (T, K)
        :math:`x`. For more than 8 tokens of the weights' type.
    weight : torch.Tensor, shape (N, K)
        :math:`W`.
    out : torch.Tensor, shape (T, N)
        :math:`y`.
    bias : torch.Tensor, optional, shape (N,)
        :math:`b`.
    residual : torch.Tensor, optional, shape (T, N)
        :math:`r`; not `out` itself.
    tiles : Tiles, optional
        How to cut; by default the shipped table decides.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    fp32 sums. drafter.md 11, K2, K6 and K8.

    Examples
    --------
    >>> linear(torch.ones(1, 4), torch.ones(3, 5), torch.empty(1, 3))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: inputs must be of shape (1, 5), got (1, 4)
    """
    num_tokens = inputs.shape[0]
    num_rows, width = weight.shape
    check_tensor("weight", weight, (num_rows, width), STORAGE_TYPES)
    is_matvec = num_tokens <= MATVEC_TOKENS
    types = STORAGE_TYPES if is_matvec else (weight.dtype,)
    check_tensor("inputs", inputs, (num_tokens, width), types, weight)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, weight)
    if bias is not None:
        check_tensor("bias", bias, (num_rows,), STORAGE_TYPES, weight)
    if residual is not None:
        check_tensor("residual", residual, (num_tokens, num_rows), STORAGE_TYPES, weight)
    sm, value_bytes = device_sm(weight.device), weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, width, value_bytes=value_bytes)
    grid = triton.cdiv(num_rows, cut.block_n)
    chosen = product_options(cut, programmatic)
    if is_matvec:
        linear_matvec_kernel[(grid,)](
            inputs,
            weight,
            bias,
            residual,
            out,
            num_tokens,
            num_rows,
            width,
            power_of_two(num_tokens),
            cut.block_n,
            cut.block_k,
            vector_width(weight),
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
    else:
        block_t = dot_tokens(num_tokens)
        linear_dot_kernel[(grid, triton.cdiv(num_tokens, block_t))](
            inputs,
            weight,
            bias,
            residual,
            out,
            num_tokens,
            num_rows,
            width,
            cut.block_n,
            cut.block_k,
            block_t,
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
