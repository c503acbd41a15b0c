"""Where the tokens of an extend pass stand, from counts that live on the device."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import check_tensor
from drafter.kernels.launch_plan import options, power_of_two

NO_REQUEST = -(2**30)
"""Tokens in the cache of a row of the batch without a request: none of its drafts has a slot, [tokens]."""


@triton.jit(do_not_specialize=["width"])
def extend_plan_kernel(
    before: tl.tensor,
    accepted: tl.tensor,
    positions: tl.tensor,
    lengths: tl.tensor,
    last_rows: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One program places the width rows of one request: positions [B, width]."""
    request = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    start = tl.load(before + request)
    count = tl.minimum(tl.load(accepted + request), width)
    place = positions + request.to(tl.int64) * width + row
    tl.store(place, tl.where(row < count, start + row, -1), mask=row < width)
    tl.store(lengths + request, start + count)
    tl.store(last_rows + request, request * width + tl.maximum(count - 1, 0))


def extend_plan(
    before: torch.Tensor,
    accepted: torch.Tensor,
    positions: torch.Tensor,
    lengths: torch.Tensor,
    last_rows: torch.Tensor,
    *,
    programmatic: bool = False,
) -> None:
    r"""Write position, length and last row of each request's newly accepted tokens.

    .. math:: \text{position}_{bi} = n_b + i \text{ for } i < m_b, \text{ else } -1

    Parameters
    ----------
    before : torch.Tensor, shape (B,)
        :math:`n`, int32 tokens in the cache before the pass; `NO_REQUEST` for a row of the batch that
        has no request, [tokens].
    accepted : torch.Tensor, shape (B,)
        :math:`m`, int32 new tokens of each request, between 1 and M; 0 without a request, [tokens].
    positions : torch.Tensor, shape (B M,)
        int32; -1 for rows without a token.
    lengths : torch.Tensor, shape (B,)
        int32 :math:`n + m`.
    last_rows : torch.Tensor, shape (B,)
        int32 row of the last token of each request.
    programmatic : bool
        Ask for programmatic dependent launch.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    The counts are not read back, so one graph serves every number of accepted tokens.

    Examples
    --------
    >>> one = torch.zeros(1, dtype=torch.int32)
    >>> extend_plan(one, one, one, one, torch.zeros(2, dtype=torch.int32))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: last_rows must be of shape (1,), got (2,)
    """
    batch_size = before.shape[0]
    width = positions.shape[0] // batch_size
    check_tensor("before", before, (batch_size,), (torch.int32,))
    check_tensor("accepted", accepted, (batch_size,), (torch.int32,), before)
    check_tensor("positions", positions, (batch_size * width,), (torch.int32,), before)
    check_tensor("lengths", lengths, (batch_size,), (torch.int32,), before)
    check_tensor("last_rows", last_rows, (batch_size,), (torch.int32,), before)
    extend_plan_kernel[(batch_size,)](
        before,
        accepted,
        positions,
        lengths,
        last_rows,
        width,
        power_of_two(width),
        programmatic,
        **options(1, 1, programmatic),
    )
