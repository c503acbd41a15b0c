"""`specmodel compare`: which of two is faster, and why."""

from pathlib import Path

import click

from calibration.commands.options import INPUT_FILE, json_option, show_answer, show_notes
from specmodel.errors import UsageError


@click.command()
@click.argument("files", nargs=-1, type=INPUT_FILE)
@click.option("--by", metavar="COLUMN", help="Compare the two values of a column of FILES instead.")
@json_option
def command(*, files: tuple[Path, ...], by: str | None, as_json: bool) -> None:
    """Compare two ways of serving at the loads that both have: A and B are files or folders.

    The ratio of speeds is that of accept lengths times that of rounds times that of the time outside decoding,
    each with what repeats and counts say of its noise.

    \b
    specmodel compare before.csv after.csv
    specmodel compare bench.csv --by mode
    """
    if by is None and len(files) != 2:
        raise UsageError(
            "two files or folders, or one and --by COLUMN", "a comparison has two sides"
        )
    if not files:
        raise UsageError("a file", "nothing to compare")
    from calibration.points.reading import read_points
    from calibration.report.compare_text import compare_text
    from calibration.tune.compare import compare, split_by

    if by is None:
        a, b = (read_points(file) for file in files)
        names = (str(files[0]), str(files[1]))
    else:
        a, b, names = split_by(read_points(list(files)), by)
    found = compare(a, b, names)
    show_answer(found, compare_text, as_json=as_json)
    codes = ("waiting", "baselines_differ", "synthetic_acceptance")
    notes = [str(note) for side in (a, b) for note in side.warnings if note.code in codes]
    show_notes(dict.fromkeys(notes))
