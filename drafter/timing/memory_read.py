"""Read bandwidth of a device, and the kernels of a trace."""

from collections.abc import Callable, Iterable
from typing import Final

import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile

from drafter.kernels.launch_plan import check_range, check_tensor
from specmodel.measurement import KernelTiming
from specmodel.units import MICRO

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

    Eight independent loads of 128 bits a thread. A fill with zeros would leave dirty lines, which are
    written back while the next kernel is timed. drafter.md 20.
    """
    lines = source.shape[0]
    check_range("lines", lines, 1, 2**31 - 1)
    check_tensor("source", source, (lines, LINE), (torch.float32,))
    check_tensor("sums", sums, (lines,), (torch.float32,), source)
    memory_read_kernel[(lines,)](source, sums, BLOCK, PARTS, num_warps=8, enable_fp_fusion=True)


class ReadBuffer:
    """A buffer of random numbers that is read to flush a cache or to measure a rate.

    Random, since constant data can be faster.
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
        """Launch one reading."""
        memory_read(self._source, self._sums)


REPLAYS: Final = 20
"""Replays that are traced, [-]."""


def kernel_times(replay: Callable[[], None]) -> tuple[KernelTiming, ...]:
    """Mean time of each kernel of a replayed graph.

    Tracing needs rights that some hosts do not give. It slows the gaps between kernels and not the
    kernels, so nothing but their own times is taken from it.
    """
    if not torch.cuda.is_available():
        return ()
    replay()
    torch.cuda.synchronize()
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
            for _ in range(REPLAYS):
                replay()
            torch.cuda.synchronize()
    except (RuntimeError, TypeError):
        return ()
    rows = [
        (str(row.key), int(row.count), float(getattr(row, "device_time_total", 0.0)))
        for row in trace.key_averages()
    ]
    return summed(rows, replays=REPLAYS)


def summed(rows: Iterable[tuple[str, int, float]], *, replays: int) -> tuple[KernelTiming, ...]:
    """Rows of a trace as timings of one draft."""
    kept = [row for row in rows if row[1] >= replays and row[2] > 0.0]
    kept.sort(key=lambda row: -row[2])
    return tuple(
        KernelTiming(name=name, calls=round(count / replays), time_s=total * MICRO / count)
        for name, count, total in kept
    )
