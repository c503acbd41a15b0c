"""`specmodel drafter time`: how long a draft step takes on this GPU, written to a record."""

import dataclasses
import math
import tempfile
from pathlib import Path

import click
from click.core import ParameterSource

from drafter.commands.options import device_errors, require_folder, show
from drafter.extra import require_extra
from drafter.processes import run_interpreted
from specmodel.errors import ParameterError
from specmodel.files import STANDARD_OUTPUT
from specmodel.measurement import DraftRecord, load_record, save_record

_MOST_REQUESTS = 64


def _a_number(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no number: no bound of a range does."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds", ctx, param)
    return value


@click.command()
@click.argument("model", metavar="[CHECKPOINT|SHAPE]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    default=Path("drafter.json"),
    show_default=True,
    help="The record.",
)
@click.option(
    "--grid",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="Loads that are timed.",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(1, _MOST_REQUESTS),
    multiple=True,
    help="Batches instead of the grid's.",
)
@click.option(
    "--context-tokens",
    "contexts",
    type=click.IntRange(0, 10**7),
    multiple=True,
    help="Contexts instead of the grid's.",
)
@click.option(
    "--topk",
    "topks",
    type=click.IntRange(1, 10),
    multiple=True,
    help="Branches instead of the grid's; 1 is a chain.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16"]),
    default="bfloat16",
    show_default=True,
    help="Storage type of weights and cache.",
)
@click.option(
    "--target",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the target model, for tensors that CHECKPOINT does not bring.",
)
@click.option(
    "--most-s",
    type=click.FloatRange(0.0, 86400.0),
    callback=_a_number,
    help="Seconds after which no further load is begun; what was measured is kept.  "
    "[default: no limit]",
)
@click.option("--dry", is_flag=True, help="Rehearse on the CPU; the record says that it is dry.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    model: str | None,
    output: Path,
    grid: str,
    batch_sizes: tuple[int, ...],
    contexts: tuple[int, ...],
    topks: tuple[int, ...],
    dtype: str,
    target: str | None,
    most_s: float | None,
    dry: bool,
    as_json: bool,
) -> None:
    """Time the draft steps of a model on this GPU and write a record.

    Weights are cold: what fills the last-level cache is read before each draft, as a pass of the
    target would. A step is the slope of whole drafts over their depth, in captured graphs; beside it stand its
    floor at the bandwidth that is measured first, and the same step in torch with library products. What
    cannot be trusted (clocks that move, runs that do not repeat, a compilation while timing) is refused
    and named. With a public SHAPE weights are random, and the record says so.

    A table says whether a step is faster than torch by more than runs differ. An error at a later load
    ends the run with exit code 1, and the loads before it are written.

    --dry goes the same way on a CPU with a tiny model and tiny loads, so it takes no other option than
    -o and --json; its times are of the interpreter, and nothing is predicted from its record.

    \b
    specmodel drafter time path/to/checkpoint -o drafter.json
    specmodel drafter time Llama-3.1-8B --grid full --most-s 600
    specmodel drafter time --dry -o dry.json
    """
    require_extra("torch", "triton", what="specmodel drafter time")
    from drafter.report import record_json, record_text

    require_folder(output)
    if dry:
        if model is not None:
            raise click.UsageError("--dry has a tiny model of its own; leave CHECKPOINT out")
        _refuse_beside_dry(ctx)
        with tempfile.TemporaryDirectory() as folder:
            rehearsed = Path(folder, "record.json")
            run_interpreted("time", output=str(rehearsed))
            record = load_record(rehearsed, allow_dry=True)
        save_record(record, output)
    elif model is None:
        raise click.UsageError("name a CHECKPOINT or a SHAPE, or give --dry")
    else:
        axes = {"batch_sizes": batch_sizes, "contexts": contexts, "topks": topks}
        chosen = {name: tuple(sorted(set(values))) for name, values in axes.items() if values}
        from drafter.timing.stopwatch import MeasurementError

        try:
            record = _measured(model, grid, chosen, dtype, target, most_s=most_s)
        except MeasurementError as error:
            if error.record is not None:
                save_record(error.record, output)
                click.echo(f"wrote {output}", err=True)
            raise
        save_record(record, output)
    beside = str(output) == STANDARD_OUTPUT  # of the record
    show(as_json, record_json, record_text, record, err=beside)
    click.echo(f"wrote {output}", err=True)


def _refuse_beside_dry(ctx: click.Context) -> None:
    """Refuse options of a measurement, which a rehearsal would ignore."""
    given = [
        param.opts[0]
        for param in ctx.command.params
        if param.name not in {"dry", "output", "as_json"}
        and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--dry has tiny loads of its own; leave {', '.join(given)} out")


def _measured(
    model: str,
    grid: str,
    axes: dict[str, tuple[int, ...]],
    dtype: str,
    target: str | None,
    *,
    most_s: float | None,
) -> DraftRecord:
    """The record of a model on the GPU of this machine."""
    from drafter.public_models import named_subject
    from drafter.torch_extra import torch

    named_subject(model)  # what is no draft model is said even where there is no device
    if not torch.cuda.is_available():
        hint = "there is nothing to time; --dry rehearses on the CPU"
        raise ParameterError("device", "none", "a CUDA device", hint)
    from drafter.checkpoint import model_to_run
    from drafter.timing.measuring import measured_record
    from drafter.timing.stopwatch import CudaStopwatch
    from drafter.timing.works import GRIDS

    device = torch.device("cuda", torch.cuda.current_device())
    stopwatch = CudaStopwatch(device)
    until_s = None if most_s is None else stopwatch.host_s() + most_s
    try:
        with device_errors("give a smaller --batch-size or --context-tokens"):
            return measured_record(
                model_to_run(model, device="cuda", target=target),
                dataclasses.replace(GRIDS[grid], **axes),  # type: ignore[arg-type]
                stopwatch,
                device=device,
                dtype=getattr(torch, dtype),
                until_s=until_s,
                tell=lambda line: click.echo(line, err=True),
            )
    finally:
        stopwatch.close()
