"""`specmodel ingest`: engine logs and benchmark files to canonical points."""

import json
from pathlib import Path

import click

from calibration.commands.large_files import progress_of
from calibration.commands.output_files import check_outputs
from specmodel.ask import UsageError


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Table of points to write; without it nothing is written.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Say what the numbers mean, why lines were left out and which checks failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(*, files: tuple[Path, ...], output: Path | None, explain: bool, as_json: bool) -> None:
    """Read engine logs and benchmark files, and write them as one table of points.

    FILES are files or folders, recognised by their content: SGLang server logs, bench_speculative,
    bench_serving, bench_one_batch_server, server info, meta_info, SpecForge results; vLLM logs,
    bench serve results, per-request metrics; Prometheus scrapes; TensorRT-LLM, llama.cpp,
    speculators, Model-Optimizer and AIPerf results; tables of points. Plain or gzip.

    \b
    specmodel ingest server.log baseline.log -o bench.csv
    specmodel ingest results/ --explain
    """
    if not files:
        raise UsageError("a file or a folder", "nothing to read")
    check_outputs([output], files)
    from calibration.points.ingestion import first_error, ingest
    from calibration.points.points import write_points
    from calibration.report.layout import wrapped

    with progress_of(files) as progress:
        found = ingest(files, progress=progress)
    written = None
    if output is not None and found.points is not None:
        write_points(found.points, output)
        written = str(output)
    if as_json:
        from calibration.report.ingest_json import ingest_json

        click.echo(json.dumps(ingest_json(found, written), indent=1, allow_nan=False))
    elif found.usable:
        from calibration.report.ingest_text import ingest_text

        click.echo(ingest_text(found, written, explain=explain))
    error = first_error(found)
    if error is not None:
        raise error
    explained = explain and not as_json  # the text has the warnings of what was read
    notes = [str(one) for one in (found.left_out if explained else found.warnings)]
    if output is not None and written is None:
        notes.append(f"no row to write; {output} was not written")
    for note in notes:
        click.echo(wrapped(note, first="Warning: ", indent=9), err=True)
