"""`specmodel drafter floor`: the least time of a draft step, by draft model and GPU."""

import click

from drafter.commands.options import load_options, show
from specmodel.hardware import Gpu


@click.command()
@load_options
def command(*, gpus: tuple[Gpu, ...], context_tokens: int, batch_size: int, as_json: bool) -> None:
    """Show the floor of a draft step for every public draft model.

    The bytes that a step must read, over the memory bandwidth of the datasheet: no kernel is faster.
    Nothing is measured, and no GPU is needed.

    \b
    specmodel drafter floor --gpu H100 --gpu B200 --context-tokens 32768
    """
    from drafter.floors import step_floor
    from drafter.public_models import public_shapes
    from drafter.report.inspection_text import floors_json, floors_text

    floors = {
        name: [
            step_floor(shape.spec, gpu, context_tokens=context_tokens, batch_size=batch_size)
            for gpu in gpus
        ]
        for name, shape in public_shapes().items()
    }
    show(as_json, floors_json, floors_text, floors, context_tokens, batch_size)
