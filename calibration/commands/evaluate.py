"""`specmodel evaluate`: how wrong is the model on points it has not seen."""

from pathlib import Path

import click

from calibration.commands.options import INPUT_FILE, json_option, progress_of, show
from calibration.evaluate import SPLITS
from specmodel.errors import FitError


@click.command()
@click.argument("points", nargs=-1, type=INPUT_FILE)
@click.option(
    "--data", "names", multiple=True, help="Packaged table, or a pattern such as 'specbundle-*'."
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    type=click.Choice([*SPLITS, "all"]),
    default=("all",),
    show_default=True,
    help="What is not seen: workloads, configurations, single rows, all but a few rows, other loads; "
    "'fitted' predicts what was fitted.",
)
@click.option("--rows", "num_rows", type=click.IntRange(min=0), help="Rows that 'few' sees.")
@click.option("--draws", type=click.IntRange(1, 10_000), default=25, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True)
@json_option
def command(
    *,
    points: tuple[Path, ...],
    names: tuple[str, ...],
    splits: tuple[str, ...],
    num_rows: int | None,
    draws: int,
    seed: int,
    as_json: bool,
) -> None:
    """Predict points that were not seen; POINTS are files, by default the packaged data.

    A file is a table of points or anything that `specmodel ingest` reads.

    The error is the relative error of the speed-up. Priors leave out every system of the same target
    model. Beside the model: one constant round cost, and the textbook formula.
    """
    from calibration.evaluate import evaluate, nothing_to_evaluate, systems_to_evaluate
    from calibration.report.as_json import answer_json
    from calibration.report.evaluation_text import print_evaluation, progress_bar

    with progress_of(points) as reading:
        found, set_aside = systems_to_evaluate(points, names, progress=reading)
    if not found:
        raise FitError(nothing_to_evaluate(set_aside))
    with progress_bar(len(found)) as advance:
        result = evaluate(
            found, splits=splits, num_rows=num_rows, draws=draws, seed=seed, progress=advance
        )
    if as_json:
        show(answer_json(result, set_aside=(*set_aside, *result.set_aside)))
    else:
        print_evaluation(result, set_aside)
