"""What a device says of itself, how it fails, how fast it reads, and the kernels of a trace."""

import ctypes
from collections.abc import Callable, Iterable
from typing import Final

import torch
import triton
import triton.language as tl

from specmodel.measurement import Clocks, KernelTiming
from specmodel.units import MEGA, MICRO


def is_compiler_error(error: BaseException) -> bool:
    """Whether Triton raised an error of its own kind.

    Its kinds stand in several modules and have moved between versions, so they are known by their package.
    """
    return any(each.__module__.partition(".")[0] == "triton" for each in type(error).__mro__)


def is_device_failure(error: BaseException) -> bool:
    """Whether an error may strike at one load after others were measured well.

    torch has ``RuntimeError`` and kinds below it; what Triton raises is not below it.
    """
    return isinstance(error, RuntimeError) or is_compiler_error(error)


def first_line(error: BaseException) -> str:
    """What an error says on its first line that is not empty; the reason where Triton shows a source first."""
    kind = type(error).__name__
    reason = getattr(error, "error_message", None) if is_compiler_error(error) else None
    lines = (" ".join(line.split()) for line in str(reason or error).splitlines())
    said = next(filter(None, lines), kind)
    return f"{kind}: {said}" if reason else said


class DeviceFacts:
    """What the driver's management library says of one device.

    Where the library is missing or does not answer, facts are None: they are said to be unknown, and never
    guessed. Nothing is set.
    """

    def __init__(self, device: torch.device) -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        is_cuda = device.type == "cuda"
        found = getattr(torch.cuda.get_device_properties(device), "uuid", None) if is_cuda else None
        self.uuid = None if found is None else f"GPU-{found}"
        try:
            library = None if self.uuid is None else ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library is not None and self.uuid is not None and library.nvmlInit_v2() == 0:
            name = ctypes.c_char_p(self.uuid.encode())
            if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle)) == 0:
                self._library = library

    def clocks(self) -> Clocks | None:
        """Clocks of multiprocessors (1) and memory (2) at this moment."""
        one, other = (self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(n)) for n in (1, 2))
        return Clocks(one * MEGA, other * MEGA) if one and other else None

    def driver(self) -> str | None:
        """Version of the driver."""
        text = ctypes.create_string_buffer(96)
        library = self._library
        if library is None or library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96)) != 0:
            return None
        return text.value.decode(errors="replace")

    def state(self) -> str:
        """Error correction and partitioning, where they are known."""
        told = []
        for name, function in (("ECC", "nvmlDeviceGetEccMode"), ("MIG", "nvmlDeviceGetMigMode")):
            mode = self._number(function, ctypes.byref(ctypes.c_uint(0)), comes_first=True)
            if mode is not None:
                told.append(f"{name} {'on' if mode else 'off'}")
        return ", ".join(told)

    def _number(self, function: str, other: object, *, comes_first: bool = False) -> int | None:
        """What a function writes to a place before or after another argument; None where it does not answer."""
        if self._library is None:
            return None
        value = ctypes.c_uint(0)
        place = ctypes.byref(value)
        arguments = (place, other) if comes_first else (other, place)
        status = getattr(self._library, function)(self._handle, *arguments)
        return value.value if status == 0 else None


BLOCK, PARTS = 4096, 8
LINE: Final = BLOCK * PARTS
"""Elements that a program reads, eight blocks one after another, [-]."""


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


class ReadBuffer:
    """A buffer that is read to flush a cache or to measure a rate.

    Random numbers, since constant data can be faster. It is read and its sums are written: a fill with
    zeros would leave dirty lines, which are written back while the next kernel is timed. drafter.md 20.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        lines = -(-max(num_bytes, 1) // (4 * LINE))
        self.source = torch.rand(lines, LINE, dtype=torch.float32, device=device)
        self.sums = torch.empty(lines, dtype=torch.float32, device=device)
        self.num_bytes = 4 * lines * LINE

    def read(self) -> None:
        """Launch one reading: eight independent loads of 128 bits a thread."""
        grid = (len(self.sums),)
        memory_read_kernel[grid](
            self.source, self.sums, BLOCK, PARTS, num_warps=8, enable_fp_fusion=True
        )


REPLAYS: Final = 20
"""Replays that are traced, [-]."""


def kernel_times(replay: Callable[[], None]) -> tuple[KernelTiming, ...]:
    """Mean time of each kernel of a replayed graph.

    Tracing needs rights that some hosts do not give. It slows the gaps between kernels and not the
    kernels, so nothing but their own times is taken from it.
    """
    if not torch.cuda.is_available():
        return ()
    from torch.profiler import ProfilerActivity, profile

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
