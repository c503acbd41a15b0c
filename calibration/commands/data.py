"""`specmodel data`: the packaged systems."""

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(*, as_json: bool) -> None:
    """List the packaged systems: name, class, rows, what varies, source."""
    from calibration.points.packaged import packaged_tables
    from calibration.report.packaged_systems import (
        packaged_json,
        packaged_text,
    )

    if as_json:
        click.echo(json.dumps(packaged_json(packaged_tables()), indent=1, allow_nan=False))
    else:
        click.echo(packaged_text(packaged_tables()))
