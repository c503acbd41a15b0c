"""Options and outputs that the commands share, and errors of a device in one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from drafter.floors import USUAL_CONTEXT_TOKENS, USUAL_GPUS
from specmodel.errors import ParameterError, SpecModelError
from specmodel.files import OutputError
from specmodel.hardware import Gpu, gpu

_MOST_TOKENS: Final = 10**8
_MOST_REQUESTS: Final = 10**5
_MOST_GPUS: Final = 6

Function = Callable[..., Any]


def load_options(function: Function) -> Function:
    """Add ``--gpu``, ``--context-tokens``, ``--batch-size`` and ``--json`` to a command."""
    options = (
        click.option(
            "--gpu",
            "gpus",
            metavar="NAME",
            multiple=True,
            callback=_known,
            help=f"GPU of the catalogue; up to {_MOST_GPUS}.  [default: {', '.join(USUAL_GPUS)}]",
        ),
        click.option(
            "--context-tokens",
            type=click.IntRange(0, _MOST_TOKENS),
            default=USUAL_CONTEXT_TOKENS,
            show_default=True,
            help="Cached tokens of a request.",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1, _MOST_REQUESTS),
            default=1,
            show_default=True,
            help="Running requests.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Machine-readable output."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _known(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Gpu, ...]:
    """Devices of the catalogue whose bandwidth is known."""
    by_name = {found.name: found for found in map(gpu, values or USUAL_GPUS)}
    found = tuple(by_name.values())
    if len(found) > _MOST_GPUS:
        raise click.BadParameter(f"at most {_MOST_GPUS} at a time", ctx, param)
    for each in found:
        try:
            each.bandwidth_bytes_per_s()
        except ParameterError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return found


def require_folder(output: Path) -> None:
    """Refuse a file whose folder does not exist."""
    if not output.absolute().parent.is_dir():
        raise OutputError(output, "cannot be written: there is no such folder")


class OutOfMemoryError(SpecModelError, MemoryError):
    """The device has too little memory."""

    def __init__(self, reason: str, hint: str) -> None:
        self.reason, self.hint = reason, hint
        super().__init__(f"the device has too little memory: {reason}; {hint}")


class DeviceFailedError(SpecModelError, RuntimeError):
    """The device failed, or Triton cannot compile a kernel for it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the device failed, or triton cannot compile for it: {reason}")


@contextmanager
def device_errors(hint: str) -> Iterator[None]:
    """Turn what the device or Triton raises into an error of one line.

    Any other error passes: one that is a defect should show where it comes from.
    """
    from drafter.timing.device import first_line, is_compiler_error
    from drafter.torch_extra import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(first_line(error).partition(".")[0], hint) from None
    except Exception as error:
        if not (isinstance(error, torch.AcceleratorError) or is_compiler_error(error)):
            raise
        raise DeviceFailedError(first_line(error)) from error
