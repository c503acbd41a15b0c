"""`specmodel drafter tune`: tiles that are fastest on this GPU, written to the table of launches."""

import datetime as dt
from pathlib import Path

import click

from drafter.extra import require_extra
from specmodel.errors import ParameterError
from specmodel.units import MICRO


@click.command()
@click.argument("model", metavar="CHECKPOINT|SHAPE")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
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

    Offline, since a sweep at the first call could fall into the capture of a graph. Each product is
    launched as a draft step does: the head with the final norm and its maxima, the MLP with its norm, the
    others with residual and bias. Weights are cold: copies of several times the last-level cache are
    rotated. Tiles whose result is not that of fp64 are left out; the best of the others get a row where
    they beat the rule by more than noise. Rows of other kinds of GPU stay.

    \b
    specmodel drafter tune Llama-3.1-8B
    specmodel drafter tune gpt-oss --tokens 1 -o launch.toml
    """  # noqa: D301 - click wants the backspace itself
    require_extra("torch", "triton", what="specmodel drafter tune")
    from drafter.subject import named_subject  # noqa: PLC0415 - on demand
    from drafter.torch_extra import torch  # noqa: PLC0415 - as above

    spec = named_subject(model).spec
    if not torch.cuda.is_available():
        hint = "there is nothing to tune without one"
        raise ParameterError("device", "none", "a CUDA device", hint)
    import triton  # noqa: PLC0415 - as above

    from drafter.timing.cuda_stopwatch import CudaStopwatch  # noqa: PLC0415 - as above
    from drafter.timing.refusals import MeasurementRefusedError  # noqa: PLC0415 - as above
    from drafter.tuned_products import by_row, products  # noqa: PLC0415 - as above
    from drafter.tuning import TOKENS, best_tiles, tuned_rows  # noqa: PLC0415 - as above
    from drafter.tuning_table import merged, read_table, shipped_table, table_text  # noqa: PLC0415
    from specmodel.atomic_file import write_text_atomically  # noqa: PLC0415 - as above

    path = output or shipped_table()
    old = read_table(path if path.exists() else shipped_table())
    device = torch.device("cuda", torch.cuda.current_device())
    stopwatch = CudaStopwatch(device)
    found = []
    try:
        for count in sorted(set(tokens or TOKENS)):
            for row in by_row(products(spec)):
                try:
                    best = best_tiles(row, count, stopwatch, device=device)
                except MeasurementRefusedError as error:
                    click.echo(str(error), err=True)
                    continue
                found.append(best)
                click.echo(
                    f"{' + '.join(each.name for each in row)}, {count} tokens: {best.time_s / MICRO:.1f} us, "
                    f"by the rule {best.default_s / MICRO:.1f} us",
                    err=True,
                )
    finally:
        stopwatch.close()
    facts = stopwatch.described()
    day = dt.datetime.now(tz=dt.UTC).date()
    record = f"{facts.name}, driver {facts.driver}, triton {triton.__version__}, {model}, {day}"
    rows = tuned_rows(found, sm=facts.sm, record=record)
    write_text_atomically(path, table_text(merged(old, rows)))
    click.echo(f"{len(rows)} of {len(found)} rows are faster than by the rule; wrote {path}")
