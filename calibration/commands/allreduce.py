"""`specmodel allreduce`: from the output of a benchmark of collectives to what a step pays."""

import json
from pathlib import Path

import click

from calibration.allreduce.runs import MOST_RANKS
from calibration.commands.option_values import picture
from calibration.commands.output_files import check_outputs
from calibration.report.layout import wrapped
from specmodel.ask import UsageError

DEFAULT_OUTPUT = "allreduce.json"
"""Written where no other file is named."""

_MOST_TOKEN_BYTES = 1 << 24


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What an all-reduce costs on this machine."""


@command.command("fit")
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--ranks", type=click.IntRange(2, MOST_RANKS), help="Ranks, where a file does not say."
)
@click.option(
    "--tokens-bytes",
    type=click.IntRange(1, _MOST_TOKEN_BYTES),
    help="Bytes that a token sends: hidden size x 2 in bf16; shows the time by tokens.",
)
@click.option("--accept-incomplete", is_flag=True, help="Use a run that ended early.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    help="Curves and laws.",
)
@click.option("--plot", metavar="FILE", callback=picture, help="Draw time against size.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def fit_command(
    *,
    logs: tuple[Path, ...],
    ranks: int | None,
    tokens_bytes: int | None,
    accept_incomplete: bool,
    output: Path,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fit measured all-reduces: floor, bandwidths, switch of protocols, one-shot law.

    LOGS are outputs of nccl-tests or rccl-tests (text of any version, or JSON), or tables with the
    columns size_bytes and time_us. Wrong values, one rank, other collectives and runs that hung are
    refused.

    \b
    specmodel allreduce fit all_reduce.txt --tokens-bytes 14336
    specmodel allreduce fit oneshot.csv --ranks 4 --plot allreduce.png
    """
    if not logs:
        raise UsageError("the output of all_reduce_perf", "nothing to read")
    check_outputs([output, plot], list(logs))
    from calibration.allreduce.curves import measure_all_reduces
    from calibration.allreduce.fitting import (
        all_reduce_json,
        save_all_reduces,
    )
    from calibration.report.allreduce_text import (
        all_reduces_text,
        tokens_beyond,
    )

    found = measure_all_reduces(list(logs), num_ranks=ranks, accept_incomplete=accept_incomplete)
    save_all_reduces(output, found.all_reduces)
    if as_json:
        click.echo(json.dumps(all_reduce_json(found.all_reduces), indent=1, allow_nan=False))
    else:
        click.echo(all_reduces_text(found.all_reduces, tokens_bytes))
    notes = [f"{one.file}: {note}" for one in found.all_reduces for note in one.notes]
    for note in [*found.refused, *notes, *tokens_beyond(found.all_reduces, tokens_bytes)]:
        click.echo(wrapped(note, first="Note: ", indent=6), err=True)
    click.echo(f"Written: {output}", err=True)
    if plot is not None:
        from calibration.plots.allreduce_plot import (
            plot_all_reduces,
        )

        plot_all_reduces(found.all_reduces, plot)
        click.echo(f"Drawn: {plot}", err=True)
