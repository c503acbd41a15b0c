"""`specmodel drafter tune`: tiles that are fastest on this GPU, written to the table of launches."""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter.commands.options import device_errors, require_folder
from drafter.extra import require_extra
from specmodel.errors import ParameterError
from specmodel.units import MICRO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from drafter.spec import DraftSpec
    from drafter.timing.stopwatch import Described, Stopwatch
    from drafter.tuning import Found
    from drafter.tuning_table import TileRow


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

    Offline, since a sweep at the first call could fall into the capture of a graph. Each product is
    launched as a draft step does: the head with the final norm and its maxima, the MLP with its norm,
    the others with residual and bias. Weights are cold: copies of several times the last-level cache
    are rotated. Tiles whose result is not that of fp64 are left out; the best of the others get a row
    where they beat the rule by more than noise. Rows of other kinds of GPU stay. An error ends the
    sweep with exit code 1, and what was found before it is written.

    \b
    specmodel drafter tune Llama-3.1-8B
    specmodel drafter tune gpt-oss --tokens 1 -o launch.toml
    """
    require_extra("torch", "triton", what="specmodel drafter tune")
    from drafter.public_models import named_subject
    from drafter.torch_extra import torch

    spec = named_subject(model).spec
    if output is not None:
        require_folder(output)
    if not torch.cuda.is_available():
        hint = "there is nothing to tune without one"
        raise ParameterError("device", "none", "a CUDA device", hint)
    from drafter.timing.stopwatch import CudaStopwatch
    from drafter.tuning import TOKENS
    from drafter.tuning_table import read_table, shipped_table

    path = output or shipped_table()
    old = read_table(path if path.exists() else shipped_table())
    device = torch.device("cuda", torch.cuda.current_device())
    stopwatch = CudaStopwatch(device)
    described = stopwatch.described()  # now: a device that is lost does not say it any more
    found: list[Found] = []
    is_complete = False
    try:
        with device_errors("free some of it, or give fewer --tokens"):
            for best in _swept(spec, sorted(set(tokens or TOKENS)), stopwatch, device):
                found.append(best)
                click.echo(_line(best), err=True)
        is_complete = True
    finally:
        stopwatch.close()
        if found or is_complete:  # a sweep takes minutes: an error does not lose what it found
            _write(path, old, found, described, model)


def _swept(
    spec: "DraftSpec", tokens: "Sequence[int]", stopwatch: "Stopwatch", device: "torch.device"
) -> "Iterator[Found]":
    """Best tiles of each row of the table, as they are found; what is refused is said."""
    from drafter.timing.refusals import MeasurementRefusedError
    from drafter.tuning import best_tiles, by_row, products

    for count in tokens:
        for row in by_row(products(spec)):
            try:
                yield best_tiles(row, count, stopwatch, device=device)
            except MeasurementRefusedError as error:
                click.echo(str(error), err=True)


def _line(best: "Found") -> str:
    """The best tiles of a row for the user."""
    names = " + ".join(each.name for each in best.products)
    times = f"{best.time_s / MICRO:.1f} us, by the rule {best.default_s / MICRO:.1f} us"
    return f"{names}, {best.tokens} tokens: {times}"


def _write(
    path: Path,
    old: "Sequence[TileRow]",
    found: "Sequence[Found]",
    described: "Described",
    model: str,
) -> None:
    """Write the rows that are faster than by the rule, among those that were there."""
    import triton

    from drafter.tuning import tuned_rows
    from drafter.tuning_table import merged, table_text
    from specmodel.files import STANDARD_OUTPUT, write_text_atomically

    day = dt.datetime.now(tz=dt.UTC).date()
    device = f"{described.name}, driver {described.driver}"
    record = f"{device}, triton {triton.__version__}, {model}, {day}"
    rows = tuned_rows(found, sm=described.sm, record=record)
    write_text_atomically(path, table_text(merged(old, rows)))
    said = f"{len(rows)} of {len(found)} rows are faster than by the rule; wrote {path}"
    click.echo(said, err=str(path) == STANDARD_OUTPUT)
