"""`specmodel drafter inspect`: what a checkpoint is, without reading a weight."""

import click

from drafter.commands.options import load_options, show
from drafter.public_models import named_subject
from specmodel.hardware import Gpu


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT|SHAPE")
@load_options
def command(
    *, checkpoint: str, gpus: tuple[Gpu, ...], context_tokens: int, batch_size: int, as_json: bool
) -> None:
    """Say what a draft model is: layout, switches, shapes, bytes and floor of a step.

    CHECKPOINT is a folder with config.json and safetensors, SHAPE the name of a public draft model
    (`specmodel drafter floor` lists them). Headers and the vocabulary map are checked; no weight is
    read, and neither torch nor a GPU is needed.

    \b
    specmodel drafter inspect EAGLE3-LLaMA3.1-Instruct-8B
    specmodel drafter inspect gpt-oss --gpu B200 --json
    """
    from drafter.floors import step_floor
    from drafter.report.inspection_text import inspection_json, inspection_text

    subject = named_subject(checkpoint)
    floors = [
        step_floor(subject.spec, gpu, context_tokens=context_tokens, batch_size=batch_size)
        for gpu in gpus
    ]
    found = (subject, floors, context_tokens, batch_size)
    show(as_json, inspection_json, inspection_text, *found)
