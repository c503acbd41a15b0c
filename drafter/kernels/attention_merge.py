"""The parts of a cut context put together."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import STORAGE_TYPES, check_tensor
from drafter.kernels.launch_plan import options, power_of_two
from drafter.kernels.numerics import rounded


@triton.jit
def attention_merge_kernel(
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    NUM_SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program merges the parts of one head of one token: out [T, NH, D]."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    lane = tl.arange(0, BLOCK_D)
    is_split = split < NUM_SPLITS
    is_lane = lane < HEAD_DIM
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    log = tl.load(part_log + row * NUM_SPLITS + split, mask=is_split, other=float("-inf"))
    biggest = tl.max(log, axis=0)
    shift = tl.where(biggest == float("-inf"), 0.0, biggest)
    weight = tl.exp2(log - shift)  # [BLOCK_S]
    place = part_out + (row * NUM_SPLITS + split)[:, None] * HEAD_DIM + lane[None, :]
    # a part that nothing is seen of may hold anything
    is_seen = (log > float("-inf"))[:, None] & is_lane[None, :]
    values = tl.load(place, mask=is_seen, other=0.0)
    total = tl.sum(weight, axis=0)
    result = tl.sum(values * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * HEAD_DIM + lane, rounded(result, out.dtype.element_ty), mask=is_lane)


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
    attention_merge_kernel[(num_tokens * num_heads,)](
        part_out,
        part_log,
        out,
        num_splits,
        head_dim,
        power_of_two(num_splits),
        power_of_two(head_dim),
        programmatic,
        **options(2, 1, programmatic),
    )
