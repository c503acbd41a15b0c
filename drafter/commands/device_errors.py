"""Errors of the GPU, and of what compiles for it, as one line for the user."""

from collections.abc import Iterator
from contextlib import contextmanager

from specmodel.errors import SpecModelError


class OutOfMemoryError(SpecModelError, MemoryError):
    """The device has too little memory.

    Parameters
    ----------
    reason : str
        What it said.
    hint : str
        What to do.
    """

    def __init__(self, reason: str, hint: str) -> None:
        self.reason, self.hint = reason, hint
        super().__init__(f"the device has too little memory: {reason}; {hint}")


class DeviceFailedError(SpecModelError, RuntimeError):
    """The device failed, or Triton cannot compile a kernel for it.

    Parameters
    ----------
    reason : str
        What was said.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the device failed, or triton cannot compile for it: {reason}")


@contextmanager
def device_errors(hint: str) -> Iterator[None]:
    r"""Turn what the device or Triton raises into an error of one line.

    Parameters
    ----------
    hint : str
        What to do where memory does not suffice.

    Yields
    ------
    None

    Raises
    ------
    OutOfMemoryError
        If the device has too little memory.
    DeviceFailedError
        If it fails otherwise, or Triton raises an error of its own kind.

    Notes
    -----
    Any other error passes: one that is a defect should show where it comes from.

    Examples
    --------
    >>> from drafter.torch_extra import torch
    >>> with device_errors("free some of it"):
    ...     raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
    Traceback (most recent call last):
    ...
    drafter.commands.device_errors.OutOfMemoryError: the device has ...: CUDA out of memory; free ...
    """
    from drafter.timing.device_failures import (
        first_line,
        is_compiler_error,
    )
    from drafter.torch_extra import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(first_line(error).partition(".")[0], hint) from None
    except Exception as error:
        if not (isinstance(error, torch.AcceleratorError) or is_compiler_error(error)):
            raise
        raise DeviceFailedError(first_line(error)) from error
