"""First half of the MLP: gate and up projections with SiLU between them."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor, vector_width
from drafter.kernels.launch_plan import (
    MATVEC_TOKENS,
    Tiles,
    device_sm,
    dot_tokens,
    options,
    power_of_two,
    tiles_for,
)
from drafter.kernels.matvec import matvec
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
    NUM_TOKENS: tl.constexpr,
    NUM_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of at most NUM_TOKENS tokens: out [T, NUM_ROWS]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    input_rows = ()
    for token in tl.static_range(NUM_TOKENS):
        input_rows = input_rows + (tl.minimum(num_tokens - 1, token).to(tl.int64),)
    gate = matvec(
        inputs,
        input_rows,
        gate_weight,
        rows,
        norm,
        eps,
        NUM_TOKENS,
        NUM_ROWS,
        WIDTH,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        PDL,
    )
    up = matvec(
        inputs,
        input_rows,
        up_weight,
        rows,
        norm,
        eps,
        NUM_TOKENS,
        NUM_ROWS,
        WIDTH,
        BLOCK_N,
        BLOCK_K,
        VECTOR,
        WAIT=False,
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    for token in tl.static_range(NUM_TOKENS):
        value = rounded(gated(gate[token], up[token]), out.dtype.element_ty)
        inside = rows < tl.where(token < num_tokens, NUM_ROWS, 0)
        tl.store(out + input_rows[token] * NUM_ROWS + rows, value, mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def gate_up_dot_kernel(
    inputs: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    out: tl.tensor,
    num_tokens: tl.tensor,
    NUM_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program makes BLOCK_N outputs of BLOCK_T tokens: out [T, NUM_ROWS]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    input_rows = tl.minimum(tokens, num_tokens - 1).to(tl.int64)
    gate = swap_dot(
        inputs, input_rows, gate_weight, rows, NUM_ROWS, WIDTH, BLOCK_N, BLOCK_K, BLOCK_T, PDL
    )
    up = swap_dot(
        inputs, input_rows, up_weight, rows, NUM_ROWS, WIDTH, BLOCK_N, BLOCK_K, BLOCK_T, WAIT=False
    )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    value = rounded(gated(gate, up), out.dtype.element_ty)
    inside = (rows[:, None] < NUM_ROWS) & (tokens[None, :] < num_tokens)
    tl.store(out + input_rows[None, :] * NUM_ROWS + rows[:, None], value, mask=inside)


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
    cut = tiles or tiles_for(device_sm(gate_weight.device), num_tokens, num_rows, width)
    grid = triton.cdiv(num_rows, cut.block_n)
    chosen = options(cut.num_warps, cut.num_stages, programmatic)
    if is_matvec:
        gate_up_matvec_kernel[(grid,)](
            inputs,
            gate_weight,
            up_weight,
            norm,
            out,
            num_tokens,
            eps,
            power_of_two(num_tokens),
            num_rows,
            width,
            cut.block_n,
            cut.block_k,
            vector_width(gate_weight),
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
            programmatic,
            **chosen,
        )
