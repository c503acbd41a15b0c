"""A kernel that only reads: it flushes the last-level cache, and its rate is the ceiling of a draft step."""

import torch
import triton
import triton.language as tl

from drafter.kernels.argument_checks import check_range, check_tensor

BLOCK = 4096
"""Elements that a program reads at a time, [-]."""

PARTS = 8
"""Blocks that a program reads, [-]."""

LINE = BLOCK * PARTS
"""Elements that a program reads, [-]."""


@triton.jit
def memory_read_kernel(
    source: tl.tensor, sums: tl.tensor, block: tl.constexpr, parts: tl.constexpr
) -> None:
    """One program adds up block * parts fp32 numbers, so that no load is left out: sums [programs]."""
    program = tl.program_id(0)
    start = program.to(tl.int64) * (block * parts)
    lane = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for part in tl.static_range(parts):
        total += tl.load(source + start + part * block + lane)
    tl.store(sums + program, tl.sum(total, axis=0))


def memory_read(source: torch.Tensor, sums: torch.Tensor) -> None:
    r"""Read a buffer once, and write the sum of each of its lines.

    .. math:: s_i = \sum_j x_{ij}

    Parameters
    ----------
    source : torch.Tensor, shape (n, LINE)
        :math:`x`, fp32.
    sums : torch.Tensor, shape (n,)
        :math:`s`, fp32.

    Raises
    ------
    ParameterError
        If shapes or types do not fit.

    Notes
    -----
    Eight independent loads of 128 bits a thread. A fill with zeros would leave dirty lines, which are
    written back while the next kernel is timed. drafter.md 20.

    Examples
    --------
    >>> memory_read(torch.ones(2, 8), torch.empty(2))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: source must be of shape (2, 32768), got (2, 8)
    """
    lines = source.shape[0]
    check_range("lines", lines, 1, 2**31 - 1)
    check_tensor("source", source, (lines, LINE), (torch.float32,))
    check_tensor("sums", sums, (lines,), (torch.float32,), source)
    memory_read_kernel[(lines,)](source, sums, BLOCK, PARTS, num_warps=8, enable_fp_fusion=True)


class ReadBuffer:
    """A buffer of random numbers that is read to flush a cache or to measure a rate.

    Parameters
    ----------
    num_bytes : int
        Least size; rounded up to whole lines, [B].
    device : torch.device
        Where.

    Notes
    -----
    Random, since constant data can be faster.

    Examples
    --------
    >>> ReadBuffer(1000, torch.device("cpu")).num_bytes
    131072
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        lines = -(-max(num_bytes, 1) // (4 * LINE))
        self._source = torch.rand(lines, LINE, dtype=torch.float32, device=device)
        self._sums = torch.empty(lines, dtype=torch.float32, device=device)

    @property
    def num_bytes(self) -> int:
        """Bytes that one reading reads, [B]."""
        return self._source.numel() * self._source.element_size()

    def read(self) -> None:
        """Launch one reading.

        Examples
        --------
        >>> ReadBuffer.read.__name__
        'read'
        """
        memory_read(self._source, self._sums)
