"""The parts of a cut context put together."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import device_sm, options, power_of_two
from drafter.kernels.numerics import rounded

ROWS_INTERPRETED = 16
"""Rows of one program without a GPU, [-]."""

VALUES_PER_WARP = 1024
"""Values of all parts that one warp holds, up to 8 warps: 32 registers a thread, [-]."""

MOST_COLUMNS = 128
"""Columns of one program, [-]."""


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def attention_merge_kernel(
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    num_splits: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program merges BLOCK_D columns of the parts of BLOCK_R rows: out [T NH, D].

    A row is a head of a token.
    """
    row = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    lane = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_row = row < num_rows
    is_part = is_row[:, None] & (split < num_splits)[None, :]  # [BLOCK_R, BLOCK_S]
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    part = row[:, None] * num_splits + split[None, :]
    log = tl.load(part_log + part, mask=is_part, other=float("-inf"))
    biggest = tl.max(log, axis=1)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    weight = tl.exp2(log - shift[:, None])
    place = part_out + part[:, :, None] * HEAD_DIM + lane[None, None, :]
    # a part that nothing is seen of may hold anything
    is_seen = (log > float("-inf"))[:, :, None] & (lane < HEAD_DIM)[None, None, :]
    values = tl.load(place, mask=is_seen, other=0.0)
    total = tl.sum(weight, axis=1)
    result = tl.sum(values * weight[:, :, None], axis=1)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    inside = is_row[:, None] & (lane < HEAD_DIM)[None, :]
    merged = out + row[:, None] * HEAD_DIM + lane[None, :]
    tl.store(merged, rounded(result, out.dtype.element_ty), mask=inside)


def attention_merge(
    part_out: torch.Tensor,
    part_log: torch.Tensor,
    out: torch.Tensor,
    *,
    programmatic: bool = False,
) -> None:
    r"""Write the attention output of each token and head from its parts.

    .. math:: o = \frac{\sum_s 2^{\ell_s} o_s}{\sum_s 2^{\ell_s}}

    Parameters
    ----------
    part_out : torch.Tensor, shape (T, NH, P, D)
        :math:`o_s`, fp32.
    part_log : torch.Tensor, shape (T, NH, P)
        :math:`\ell_s`, fp32.
    out : torch.Tensor, shape (T, NH D)
        :math:`o`; zeros where no part has weight.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    Exact for any cut of the context.

    Examples
    --------
    >>> attention_merge(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3), torch.empty(1, 9))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: out must be of shape (1, 8), got (1, 9)
    """
    num_tokens, num_heads, num_splits, head_dim = part_out.shape
    check_tensor("part_out", part_out, part_out.shape, (torch.float32,))
    check_tensor("part_log", part_log, part_out.shape[:3], (torch.float32,), part_out)
    check_tensor("out", out, (num_tokens, num_heads * head_dim), STORAGE_TYPES, part_out)
    # the interpreter pays by the program, a GPU by the row that waits
    rows = 1 if device_sm(out.device) else ROWS_INTERPRETED
    num_rows = num_tokens * num_heads
    block_s, block_d = power_of_two(num_splits), min(power_of_two(head_dim), MOST_COLUMNS)
    warps = min(8, max(2, rows * block_s * block_d // VALUES_PER_WARP))
    attention_merge_kernel[(triton.cdiv(num_rows, rows), triton.cdiv(head_dim, block_d))](
        part_out,
        part_log,
        out,
        num_rows,
        num_splits,
        head_dim,
        rows,
        block_s,
        block_d,
        programmatic,
        **options(warps, 1, programmatic),
    )
