"""`specmodel fit`: constants of one system from its benchmark points."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from calibration.commands.options import (
    DEEPEST,
    DEFAULT_CALIBRATION,
    INPUT_FILE,
    check_outputs,
    json_option,
    named_output,
    plot_option,
    progress_of,
    say_drawn,
    show_answer,
    show_notes,
)
from calibration.commands.rig_options import asked_rig, rig_options
from specmodel.calibration import Calibration
from specmodel.errors import FormatError, UsageError
from specmodel.files import OutputError


@click.command()
@click.argument("bench", nargs=-1, type=INPUT_FILE)
@click.option("--system", metavar="TEXT", help="Part of the label of the system to fit.")
@click.option(
    "--num-steps",
    type=click.IntRange(1, DEEPEST),
    help="Draft depth of the rows that do not state theirs.",
)
@click.option("--data", "name", metavar="NAME", help="Fit a packaged table; see `specmodel data`.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=Path(DEFAULT_CALIBRATION),
    show_default=True,
    help="Calibration file to write; with - it is standard output, and the report is standard error.",
)
@rig_options
@click.option("--explain", is_flag=True, help="Say what a round is made of, term by term.")
@click.option(
    "--force",
    is_flag=True,
    help="Fit although the baselines are unsound, and write over the calibration of another system.",
)
@plot_option
@json_option
def command(
    *,
    bench: tuple[Path, ...],
    system: str | None,
    num_steps: int | None,
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
    specmodel fit bench.csv --num-steps 5
    specmodel fit server.log baseline.log
    specmodel fit --data specbundle-llama31-8b -o llama.json --plot llama.png
    specmodel fit bench.csv --model Qwen3-8B --gpu H100 --explain
    """
    if bench and name:
        raise UsageError("one of them", "BENCH and --data both name points")
    if not bench and not name:
        raise UsageError("a file or --data NAME", "nothing to fit")
    from calibration.fit.summary import fit_summary
    from calibration.points.packaged import packaged_table
    from calibration.report.fit_text import fit_text

    table = packaged_table(name) if name else None
    check_outputs([output, plot], [*bench, table.path if table else None])
    with progress_of(bench) as progress:
        summary = fit_summary(
            bench,
            system=system,
            num_steps=num_steps,
            force=force,
            table=table,
            progress=progress,
            rig=asked_rig(**rig),
        )
    if not force:
        _check_same_system(output, summary.calibration)
    summary.calibration.save(output)
    text = partial(fit_text, path=named_output(output), explained=explain)
    show_answer(summary, text, [output, plot], as_json=as_json, path=output)
    show_notes([note.message for note in summary.notes], "Warning: ")
    if plot is not None:
        from calibration.plots import fit_figure, save_figure

        save_figure(fit_figure(summary.calibration, summary.rows), plot)
        say_drawn(plot)


def _check_same_system(output: Path, calibration: Calibration) -> None:
    """Refuse to write over the calibration of another system."""
    try:
        there = Calibration.load(output)
    except FormatError:  # nothing, or nothing that says a system
        return
    if there.system != calibration.system:
        raise OutputError(
            output,
            f"holds the calibration of {there.label}, this one is of {calibration.label}; name "
            "another file with -o, or write over it with --force",
        )
