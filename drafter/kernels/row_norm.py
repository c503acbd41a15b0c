"""RMSNorm of rows, or of equal parts of rows with a weight each."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import row_options
from drafter.kernels.numerics import rounded

WIDEST_BLOCK = 4096
"""Columns in registers at once, [-]."""


@triton.jit
def row_norm_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program normalises one part of one row: inputs and out [T, parts, width]."""
    row = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    part = tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(inputs + row * width + column, mask=column < width, other=0.0)
        value = value.to(tl.float32)
        squares += value * value
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(inputs + row * width + column, mask=inside, other=0.0).to(tl.float32)
        gain = tl.load(weight + part * width + column, mask=inside, other=0.0).to(tl.float32)
        result = rounded(value * scale * gain, out.dtype.element_ty)
        tl.store(out + row * width + column, result, mask=inside)


def row_norm(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float,
    programmatic: bool = False,
) -> None:
    r"""Write RMSNorm of each part of each row to `out`.

    .. math:: y_{tgi} = \frac{w_{gi} x_{tgi}}{\sqrt{\frac{1}{W} \sum_j x_{tgj}^2 + \epsilon}}

    Parameters
    ----------
    inputs : torch.Tensor, shape (T, G, W) or (T, W)
        :math:`x`, T tokens of G parts.
    weight : torch.Tensor, shape (G, W) or (W,)
        :math:`w`, one row per part.
    out : torch.Tensor, shape of `inputs`
        :math:`y`, of any storage type.
    eps : float
        :math:`\epsilon`, [-].
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    fp32 inside, one rounding at the end; implementations that round before the weight differ by one
    unit in the last place. drafter.md 6.

    Examples
    --------
    >>> row_norm(torch.ones(1, 4), torch.ones(3), torch.empty(1, 4), eps=1e-5)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: weight must be of shape (4,), got (3,)
    """
    check_tensor("inputs", inputs, inputs.shape, STORAGE_TYPES)
    check_tensor("weight", weight, inputs.shape[1:], STORAGE_TYPES, inputs)
    check_tensor("out", out, inputs.shape, STORAGE_TYPES, inputs)
    tokens, width = inputs.shape[0], inputs.shape[-1]
    parts = inputs.shape[1:-1].numel()
    block = min(triton.next_power_of_2(width), WIDEST_BLOCK)
    row_norm_kernel[(tokens, parts)](
        inputs, weight, out, eps, width, block, programmatic, **row_options(block, programmatic)
    )
