"""`specmodel drafter tune`: tiles that are fastest on this GPU, written to the table of launches."""

import datetime as dt
from pathlib import Path

import click

from drafter.commands.options import device_errors, require_folder
from drafter.extra import require_extra
from specmodel.errors import ParameterError
from specmodel.files import STANDARD_OUTPUT, write_text_atomically
from specmodel.units import MICRO


@click.command()
@click.argument("model", metavar="CHECKPOINT|SHAPE")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="The table.  [default: the one that launches read]",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 64),
    multiple=True,
    help="Tokens of a pass.  [default: 1, 2, 4, 8, 16, 32, 64]",
)
def command(*, model: str, output: Path | None, tokens: tuple[int, ...]) -> None:
    """Sweep the tiles of a model's products on this GPU and rewrite the table.

    Offline, since a sweep at the first call could fall into the capture of a graph. Whole passes are
    timed with cold weights, as a draft launches them, with the tiles of one row of the table changed.
    Tiles whose result is not that of the rule's are left out; the best of the others get a row where
    they beat the rule by more than noise. Rows of other kinds of GPU stay. An error ends the sweep with
    exit code 1, and what was found before it is written. Run `specmodel drafter check` afterwards.

    \b
    specmodel drafter tune Llama-3.1-8B
    specmodel drafter tune gpt-oss --tokens 1 -o launch.toml
    """
    require_extra("torch", "triton", what="specmodel drafter tune")
    from drafter.public_models import named_subject
    from drafter.torch_extra import torch

    named_subject(model)
    if output is not None:
        require_folder(output)
    if not torch.cuda.is_available():
        hint = "there is nothing to tune without one"
        raise ParameterError("device", "none", "a CUDA device", hint)
    import triton

    from drafter.checkpoint import model_to_run
    from drafter.engine.draft_engine import SharedState
    from drafter.kernels.launch_plan import read_table, shipped_table
    from drafter.timing.stopwatch import CudaStopwatch, MeasurementError
    from drafter.tuning import CONTEXT, TOKENS, Found, swept, table_text, tuned_rows

    path = output or shipped_table()
    old = read_table(path if path.exists() else shipped_table())
    device = torch.device("cuda", torch.cuda.current_device())
    watch = CudaStopwatch(device)
    named = f"{watch.name}, driver {watch.facts.driver()}"  # a lost device does not say it any more
    found: list[Found] = []
    is_complete = False
    asked = sorted(set(tokens or TOKENS))
    try:
        with device_errors("free some of it, or give fewer --tokens"):
            loaded = model_to_run(model, device="cuda")
            state = SharedState(
                loaded.spec,
                loaded.weights,
                dtype=torch.bfloat16,
                device=device,
                capacity=CONTEXT + 2,
                most_requests=max(asked),
            )
            for count in asked:
                try:
                    for best in swept(state, count, watch):
                        found.append(best)
                        names = " + ".join(each.name for each in best.row)
                        times = f"{best.time_s / MICRO:.1f} us, by the rule {best.default_s / MICRO:.1f}"
                        click.echo(f"{names}, {count} tokens: a pass takes {times} us", err=True)
                except MeasurementError as error:
                    click.echo(str(error), err=True)
        is_complete = True
    finally:
        watch.close()
        if found or is_complete:  # a sweep takes minutes: an error does not lose what it found
            day = dt.datetime.now(tz=dt.UTC).date()
            record = f"{named}, triton {triton.__version__}, {model}, {day}"
            rows = tuned_rows(found, sm=watch.sm, record=record)
            write_text_atomically(path, table_text(old, rows))
            said = f"{len(rows)} of {len(found)} rows are faster than by the rule; wrote {path}"
            click.echo(said, err=str(path) == STANDARD_OUTPUT)
