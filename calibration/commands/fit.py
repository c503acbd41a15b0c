"""`specmodel fit`: constants of one system from its benchmark points."""

import json
from pathlib import Path
from typing import Any

import click

from calibration.commands.large_files import progress_of
from calibration.commands.option_values import picture
from calibration.commands.output_files import check_outputs
from calibration.commands.rig_options import asked_rig, rig_options
from specmodel.ask import UsageError


@click.command()
@click.argument("bench", nargs=-1, type=click.Path(path_type=Path))
@click.option("--system", metavar="TEXT", help="Part of the label of the system to fit.")
@click.option("--data", "name", metavar="NAME", help="Fit a packaged table; see `specmodel data`.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("calibration.json"),
    show_default=True,
    help="Calibration file to write; standard output (-) has the report and is refused.",
)
@rig_options
@click.option("--explain", is_flag=True, help="Say what a round is made of, term by term.")
@click.option("--force", is_flag=True, help="Fit although the baselines are unsound.")
@click.option("--plot", metavar="FILE", callback=picture, help="Draw predicted against measured.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(
    *,
    bench: tuple[Path, ...],
    system: str | None,
    name: str | None,
    output: Path,
    explain: bool,
    force: bool,
    plot: Path | None,
    as_json: bool,
    **rig: Any,
) -> None:
    """Fit the constants of one system from benchmark points, and write calibration.json.

    BENCH is one file or several of one system: a table with accept_length, throughput and baseline,
    or anything that `specmodel ingest` reads, such as a server log.

    \b
    specmodel fit bench.csv
    specmodel fit server.log baseline.log
    specmodel fit --data specbundle-llama31-8b -o llama.json --plot llama.png
    specmodel fit bench.csv --model Qwen3-8B --gpu H100 --explain
    """
    if bench and name:
        raise UsageError("one of them", "BENCH and --data both name points")
    if not bench and not name:
        raise UsageError("a file or --data NAME", "nothing to fit")
    if str(output) == "-":
        raise UsageError("the name of a file", "standard output has the report, so -o cannot be -")
    from calibration.fit.summary import fit_summary
    from calibration.points.packaged import packaged_table
    from calibration.report.layout import wrapped

    table = packaged_table(name) if name else None
    check_outputs([output, plot], [*bench, table.path if table else None])
    with progress_of(bench) as progress:
        summary = fit_summary(
            bench,
            system=system,
            force=force,
            table=table,
            progress=progress,
            rig=asked_rig(**rig),
        )
    summary.calibration.save(output)
    if as_json:
        from calibration.report.fit_json import fit_json

        click.echo(json.dumps(fit_json(summary, str(output)), indent=1, allow_nan=False))
    else:
        from calibration.report.fit_text import fit_text

        click.echo(fit_text(summary, str(output), explained=explain))
    for note in summary.notes:
        click.echo(wrapped(note.message, first="Warning: ", indent=9), err=True)
    if plot is not None:
        from calibration.plots import plot_fit

        plot_fit(summary.calibration, summary.rows, plot)
        click.echo(f"Drawn: {plot}", err=True)
