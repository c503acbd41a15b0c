"""`specmodel whatif`: what a rig gives, and what one change of it would do to the speed-up."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.calibration_option import DEFAULT_CALIBRATION, chosen_calibration
from calibration.commands.option_values import DEEPEST, Number, changes_of
from calibration.commands.rig_options import asked_rig, rig_options
from calibration.points.notes import ROUNDING
from calibration.report.layout import wrapped
from specmodel.ask import AskedConfiguration, UsageError
from specmodel.bounds import BOUNDS
from specmodel.errors import ParameterError

if TYPE_CHECKING:
    from calibration.rig.scenario import Scenario
    from specmodel.physical_fit import PhysicalFit

_MOST_TOKENS = int(BOUNDS["num_draft_tokens"].most)


@click.command()
@rig_options
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help=f"Written by `specmodel fit` for a known rig.  [default: ./{DEFAULT_CALIBRATION}, where no "
    "--model and --gpu are given]",
)
@click.option("--depth", type=click.IntRange(1, DEEPEST), help="Draft depth.")
@click.option("--topk", type=click.IntRange(1, _MOST_TOKENS), help="Branches.  [default: 1]")
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(1, _MOST_TOKENS),
    help="Verified tokens, root included; needed where --topk is above 1.",
)
@click.option(
    "--batch-size", type=Number("batch_size"), help="Running requests.  [default: 1, or calibrated]"
)
@click.option(
    "--context-tokens",
    type=Number("context_tokens"),
    help="Context length.  [default: 0, or calibrated]",
)
@click.option(
    "--accept",
    type=Number("accept_length"),
    help="Accept length, held fixed.  [default: the measured one]",
)
@click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    callback=changes_of,
    help="A change to price, each alone and then all together: interconnect, allreduce, tp_size, gpu, "
    "model, dtype, kv_dtype, batch_size, context_tokens, depth, topk, num_draft_tokens, schedule, capture_limit, "
    "draft.kind, draft.vocab, draft.tp_size, draft.step_ms, draft.record.  [default: changes that make "
    "sense for the rig]",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(
    *,
    calibration: Path | None,
    depth: int | None,
    topk: int | None,
    num_draft_tokens: int | None,
    batch_size: float | None,
    context_tokens: float | None,
    accept: float | None,
    changes: tuple[tuple[str, str], ...],
    as_json: bool,
    **rig: Any,
) -> None:
    """Price a rig, and what a change of it does to the speed-up, largest effect first.

    The rig is that of a calibration whose points say their model and GPU, or named by --model and
    --gpu. A named rig has a physical prior, from datasheets and public measurements: it is not
    fitted to your points yet. What is not said of the draft model is assumed.

    \b
    specmodel whatif
    specmodel whatif --model QwQ-32B --gpu H100 --depth 3 --accept 2.5
    specmodel whatif --model Kimi-K2.6 --gpu "RTX PRO 6000 Server" --num-gpus 8 \\
      --interconnect pcie5 --depth 3 --accept 2.5 --set interconnect=nvlink5
    """
    asked = AskedConfiguration(
        num_steps=None if depth is None else (depth,),
        topk=topk,
        num_draft_tokens=num_draft_tokens,
        batch_size=batch_size,
        context_tokens=context_tokens,
    )
    named = any(value for value in rig.values())
    if named and calibration is not None:
        raise UsageError("one of them", "--calibration and --model both say what the rig is")
    from calibration.rig.whatif import what_if

    try:
        if named:
            base, fit = _named(rig, asked, accept), None
        else:
            base, fit = _calibrated(calibration, asked, accept)
        found = what_if(base, changes, fit=fit)
    except ParameterError as error:  # all that can be out of range here was given by option
        raise click.UsageError(str(error)) from None
    if as_json:
        from calibration.report.whatif_json import what_if_json

        click.echo(json.dumps(what_if_json(found), indent=1, allow_nan=False))
    else:
        from calibration.report.whatif_text import what_if_text

        click.echo(what_if_text(found))
    prices = [
        found.base,
        *(row.priced for row in (*found.rows, found.together) if row and row.priced),
    ]
    if held := [
        one.implied_round_cost for one in prices if one.implied_round_cost < 1.0 - ROUNDING
    ]:
        said = f"rounds of {min(held):.3g} steps and more are implied; none takes less than one, so they "
        click.echo(wrapped(f"{said}are taken as 1", first="Note: ", indent=6), err=True)


def _named(rig: dict[str, Any], asked: AskedConfiguration, accept: float | None) -> "Scenario":
    """A rig from names, at the load that was asked for."""
    from calibration.rig.draft import DraftChoice
    from calibration.rig.from_points import named_model
    from calibration.rig.scenario import KV_BYTES, Scenario, card_link, edition_of

    given = asked_rig(**rig)
    for option, value in (
        ("--model", given.model),
        ("--gpu", given.gpu),
        ("--depth", asked.num_steps),
        ("--accept", accept),
    ):
        if not value:
            raise UsageError(option, "a rig from names has no measured configuration")
    depth = (asked.num_steps or (1,))[0]
    card, ranks = edition_of(given.gpu)[0], given.num_gpus or 1
    linked = ranks == 1 or given.interconnect or ranks in dict(given.curves)
    return Scenario(
        model=named_model(given.model),
        gpu=card,
        tp_size=ranks,
        interconnect=given.interconnect if linked else card_link(card),
        dtype=given.dtype,
        kv_bytes_per_value=KV_BYTES[given.kv_dtype or "bf16"],
        curves=given.curves,
        kernel=given.kernel,
        draft=given.draft or DraftChoice(),
        depth=depth,
        topk=int(asked.topk or 1),
        num_draft_tokens=None if asked.num_draft_tokens is None else int(asked.num_draft_tokens),
        batch_size=asked.batch_size or 1,
        context_tokens=asked.context_tokens or 0,
        accept_length=accept or 1.0,
    )


def _calibrated(
    path: Path | None, asked: AskedConfiguration, accept: float | None
) -> "tuple[Scenario, PhysicalFit]":
    """The rig of a calibration at one of its configurations, with its fit."""
    from calibration.rig.prediction import calibrated_scenario

    known, _ = chosen_calibration(path)
    if not known.num_points:
        raise UsageError(
            "--model and --gpu, or --calibration", f"there is no ./{DEFAULT_CALIBRATION} here"
        )
    return calibrated_scenario(known, asked, accept_length=accept)
