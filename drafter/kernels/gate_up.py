"""First half of the MLP: gate and up projections with SiLU between them."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor, vector_width
from drafter.kernels.launch_plan import (
    GATED_REGISTERS,
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
from specmodel.errors import ParameterError


@triton.jit
def gated(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """silu(gate) * up in fp32; a gate of minus infinity gives NaN, as in torch."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_matvec_kernel(
    inputs: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    norm: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    eps: tl.tensor,
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
    gate, _ = matvec(
        inputs,
        None,
        num_tokens,
        gate_weight,
        rows,
        norm,
        eps,
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
    up, _ = matvec(
        inputs,
        None,
        num_tokens,
        up_weight,
        rows,
        norm,
        eps,
        num_rows,
        width,
        width,
        NUM_TOKENS,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    input_rows = token_rows(None, num_tokens, NUM_TOKENS)
    for token in tl.static_range(NUM_TOKENS):
        value = rounded(gated(gate[token], up[token]), out.dtype.element_ty)
        inside = rows < tl.where(token < num_tokens, num_rows, 0)
        tl.store(out + input_rows[token] * num_rows + rows, value, mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_dot_kernel(
    inputs: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
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
    gate = swap_dot(
        inputs,
        input_rows,
        gate_weight,
        rows,
        num_rows,
        width,
        BLOCK_N,
        BLOCK_K,
        BLOCK_T,
        IS_WHOLE,
        PDL,
    )
    up = swap_dot(
        inputs,
        input_rows,
        up_weight,
        rows,
        num_rows,
        width,
        BLOCK_N,
        BLOCK_K,
        BLOCK_T,
        IS_WHOLE,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    value = rounded(gated(gate, up), out.dtype.element_ty)
    inside = (rows[:, None] < num_rows) & (tokens[None, :] < num_tokens)
    tl.store(out + input_rows[None, :] * num_rows + rows[:, None], value, mask=inside)


def gate_up(
    inputs: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    out: torch.Tensor,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    tiles: Tiles | None = None,
    programmatic: bool = False,
) -> None:
    r"""Write the gated activations of each token.

    .. math:: a_t = \mathrm{silu}(W_g\, n(y_t)) \odot W_u\, n(y_t)

    Parameters
    ----------
    inputs : torch.Tensor, shape (T, H)
        :math:`y`. For more than 8 tokens of the weights' type.
    gate_weight, up_weight : torch.Tensor, shape (I, H)
        :math:`W_g`, :math:`W_u`.
    out : torch.Tensor, shape (T, I)
        :math:`a`.
    norm : torch.Tensor, optional, shape (H,)
        Weight of the RMSNorm :math:`n`, for at most 8 tokens; without it :math:`n(y) = y`.
    eps : float
        Of that norm, [-].
    tiles : Tiles, optional
        How to cut; by default the shipped table decides.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit, or a norm is asked for with more than 8 tokens.

    Notes
    -----
    A program reads its gate rows, then its up rows; the inputs come from the cache the second time.

    Examples
    --------
    >>> gate_up(torch.ones(1, 4), torch.ones(3, 4), torch.ones(2, 4), torch.empty(1, 3))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: up_weight must be of shape (3, 4), got (2, 4)
    """
    num_tokens = inputs.shape[0]
    num_rows, width = gate_weight.shape
    check_tensor("gate_weight", gate_weight, (num_rows, width), STORAGE_TYPES)
    check_tensor("up_weight", up_weight, (num_rows, width), (gate_weight.dtype,), gate_weight)
    is_matvec = num_tokens <= MATVEC_TOKENS
    types = STORAGE_TYPES if is_matvec else (gate_weight.dtype,)
    check_tensor("inputs", inputs, (num_tokens, width), types, gate_weight)
    check_tensor("out", out, (num_tokens, num_rows), STORAGE_TYPES, gate_weight)
    if norm is not None:
        check_tensor("norm", norm, (width,), STORAGE_TYPES, gate_weight)
        if not is_matvec:
            allowed = f"at most {MATVEC_TOKENS} with a norm in the product"
            raise ParameterError("tokens", num_tokens, allowed, "normalise the rows before")
    sm, value_bytes = device_sm(gate_weight.device), gate_weight.element_size()
    cut = tiles or tiles_for(sm, num_tokens, num_rows, width, value_bytes=value_bytes, is_wide=True)
    grid = triton.cdiv(num_rows, cut.block_n)
    chosen = product_options(cut, programmatic, most_registers=GATED_REGISTERS)
    if is_matvec:
        gate_up_matvec_kernel[(grid,)](
            inputs,
            gate_weight,
            up_weight,
            norm,
            out,
            num_tokens,
            eps,
            num_rows,
            width,
            power_of_two(num_tokens),
            cut.block_n,
            cut.block_k,
            vector_width(gate_weight),
            width % cut.block_k == 0,
            programmatic,
            **chosen,
        )
    else:
        block_t = dot_tokens(num_tokens)
        gate_up_dot_kernel[(grid, triton.cdiv(num_tokens, block_t))](
            inputs,
            gate_weight,
            up_weight,
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
