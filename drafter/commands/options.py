"""Options and outputs that the commands share, and errors of a device in one line."""

import json
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


def load_options(function: Callable[..., Any]) -> Callable[..., Any]:
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
    found = tuple({each.name: each for each in map(gpu, values or USUAL_GPUS)}.values())
    if len(found) > _MOST_GPUS:
        raise click.BadParameter(f"at most {_MOST_GPUS} at a time", ctx, param)
    for each in found:
        try:
            each.bandwidth_bytes_per_s()
        except ParameterError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return found


def show(
    as_json: bool,
    for_machines: Callable[..., Any],
    for_people: Callable[..., str],
    *found: Any,
    err: bool = False,
) -> None:
    """Write what was found, as JSON or as text."""
    if as_json:
        click.echo(json.dumps(for_machines(*found), indent=1, allow_nan=False), err=err)
    else:
        click.echo(for_people(*found), err=err)


def require_folder(output: Path) -> None:
    """Refuse a file whose folder does not exist."""
    if not output.absolute().parent.is_dir():
        raise OutputError(output, "cannot be written: there is no such folder")


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
        reason = first_line(error).partition(".")[0]
        raise SpecModelError(f"the device has too little memory: {reason}; {hint}") from None
    except Exception as error:
        if not (isinstance(error, torch.AcceleratorError) or is_compiler_error(error)):
            raise
        raise SpecModelError(
            f"the device failed, or triton cannot compile for it: {first_line(error)}"
        ) from error
