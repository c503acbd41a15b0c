"""Options of the load that a floor holds for, shared by the commands."""

from collections.abc import Callable
from typing import Any, Final

import click

from drafter.floors import USUAL_CONTEXT_TOKENS, USUAL_GPUS
from specmodel.errors import ParameterError
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
