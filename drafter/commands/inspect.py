"""`specmodel drafter inspect` and `floor`: what a checkpoint is, and the least time of its step."""

import click

from drafter.commands.options import load_options, show
from specmodel.hardware import Gpu


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT|SHAPE")
@load_options
def inspect(
    *, checkpoint: str, gpus: tuple[Gpu, ...], context_tokens: int, batch_size: int, as_json: bool
) -> None:
    """Say what a draft model is: layout, switches, shapes, bytes and floor of a step.

    CHECKPOINT is a folder with config.json and safetensors (or pickles), or a config.json alone; SHAPE the
    name of a public draft model (`specmodel drafter floor` lists them). Headers and the vocabulary map
    are checked; no weight is read, and no GPU is needed.

    \b
    specmodel drafter inspect EAGLE3-LLaMA3.1-Instruct-8B
    specmodel drafter inspect gpt-oss --gpu B200 --json
    """
    from drafter.floors import step_floor
    from drafter.public_models import named_subject
    from drafter.report import inspection_json, inspection_text

    subject = named_subject(checkpoint)
    floors = [
        step_floor(subject.spec, gpu, context_tokens=context_tokens, batch_size=batch_size)
        for gpu in gpus
    ]
    found = (subject, floors, context_tokens, batch_size)
    show(as_json, inspection_json, inspection_text, *found)


@click.command()
@load_options
def floor(*, gpus: tuple[Gpu, ...], context_tokens: int, batch_size: int, as_json: bool) -> None:
    """Show the floor of a draft step for every public draft model.

    The bytes that a step must read, over the memory bandwidth of the datasheet: no kernel is faster.
    Nothing is measured, and no GPU is needed.

    \b
    specmodel drafter floor --gpu H100 --gpu B200 --context-tokens 32768
    """
    from drafter.floors import step_floor
    from drafter.public_models import public_shapes
    from drafter.report import floors_json, floors_text

    floors = {
        name: [
            step_floor(shape.spec, gpu, context_tokens=context_tokens, batch_size=batch_size)
            for gpu in gpus
        ]
        for name, shape in public_shapes().items()
    }
    show(as_json, floors_json, floors_text, floors, context_tokens, batch_size)
