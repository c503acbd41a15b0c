"""What a device says of itself, and how it fails."""

import ctypes
from typing import Final

import torch

from specmodel.measurement import Clocks
from specmodel.units import MEGA


def is_compiler_error(error: BaseException) -> bool:
    """Whether Triton raised an error of its own kind.

    Its kinds stand in several modules and have moved between versions, so they are known by their
    package.
    """
    return any(each.__module__.partition(".")[0] == "triton" for each in type(error).__mro__)


def is_device_failure(error: BaseException) -> bool:
    """Whether an error may strike at one load after others were measured well.

    torch has ``RuntimeError`` and kinds below it; what Triton raises is not below it.
    """
    return isinstance(error, RuntimeError) or is_compiler_error(error)


def first_line(error: BaseException) -> str:
    """What an error says on its first line that is not empty.

    Where Triton shows the source of a kernel first, the line is that of the reason below it.
    """
    kind = type(error).__name__
    reason = getattr(error, "error_message", None) if is_compiler_error(error) else None
    lines = (" ".join(line.split()) for line in str(reason or error).splitlines())
    said = next(filter(None, lines), kind)
    return f"{kind}: {said}" if reason else said


_MULTIPROCESSOR_CLOCK: Final = 1
_MEMORY_CLOCK: Final = 2
_TEXT_BYTES: Final = 96


class DeviceFacts:
    """What the driver's management library says of one device.

    Where the library is missing or does not answer, facts are None: they are said to be unknown, and never
    guessed. Nothing is set.
    """

    def __init__(self, device: torch.device) -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        self.uuid: str | None = None
        if device.type != "cuda":
            return
        found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        if found is None:
            return
        self.uuid = f"GPU-{found}"
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library.nvmlInit_v2() == 0:
            status = library.nvmlDeviceGetHandleByUUID(
                ctypes.c_char_p(self.uuid.encode()), ctypes.byref(self._handle)
            )
            self._library = library if status == 0 else None

    def clocks(self) -> Clocks | None:
        """Clocks of multiprocessors and memory at this moment."""
        readings = [
            self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(kind))
            for kind in (_MULTIPROCESSOR_CLOCK, _MEMORY_CLOCK)
        ]
        if not readings[0] or not readings[1]:
            return None
        return Clocks(multiprocessor_hz=readings[0] * MEGA, memory_hz=readings[1] * MEGA)

    def driver(self) -> str | None:
        """Version of the driver."""
        if self._library is None:
            return None
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        status = self._library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode(errors="replace") if status == 0 else None

    def state(self) -> str:
        """Error correction and partitioning, where they are known."""
        names = {"ECC": "nvmlDeviceGetEccMode", "MIG": "nvmlDeviceGetMigMode"}
        told = []
        for name, function in names.items():
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
