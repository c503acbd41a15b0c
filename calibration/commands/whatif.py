"""`specmodel whatif`: what a rig gives from names alone, and what one change of it would do."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.bounds import BOUNDS
from calibration.commands.option_values import DEEPEST, Number
from specmodel.errors import FormatError, ParameterError

if TYPE_CHECKING:
    from specmodel.cost.allreduce_curve import AllReduceCurve

_MOST_GPUS = 4096
_MOST_TOKENS = int(BOUNDS["num_draft_tokens"].most)


def _changes(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Keys and texts of ``KEY=VALUE``."""
    pairs = []
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not text.strip():
            raise click.BadParameter(f"{value[:60]!r} is not KEY=VALUE", ctx, param)
        pairs.append((key.strip(), text.strip()))
    return tuple(pairs)


@click.command()
@click.option("--model", required=True, help="Name of a packaged model, or its config.json.")
@click.option("--gpu", required=True, help="Name of a GPU, such as H100.")
@click.option(
    "--num-gpus", type=click.IntRange(1, _MOST_GPUS), default=1, show_default=True, help="GPUs."
)
@click.option("--interconnect", default="", help="Link between them, such as nvlink4 or pcie5.")
@click.option("--dtype", default="", help="Stored weights, such as fp8.  [default: as released]")
@click.option(
    "--allreduce",
    type=click.Path(path_type=Path),
    help="Measured all-reduces, of `specmodel allreduce fit`.",
)
@click.option("--depth", type=click.IntRange(1, DEEPEST), required=True, help="Draft depth.")
@click.option(
    "--topk", type=click.IntRange(1, _MOST_TOKENS), default=1, show_default=True, help="Branches."
)
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(1, _MOST_TOKENS),
    help="Verified tokens, root included; needed where --topk is above 1.",
)
@click.option("--batch-size", type=Number("batch_size"), default=1, help="Running requests.")
@click.option("--context-tokens", type=Number("context_tokens"), default=0, help="Context length.")
@click.option(
    "--accept", type=Number("accept_length"), required=True, help="Accept length, held fixed."
)
@click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_changes,
    help="A change to price, each alone and then all together: interconnect, tp_size (or num_gpus), "
    "batch_size, context_tokens, dtype, depth, gpu.  [default: changes that make sense for the rig]",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(  # noqa: PLR0917 - click passes by name
    model: str,
    gpu: str,
    num_gpus: int,
    interconnect: str,
    dtype: str,
    allreduce: Path | None,
    depth: int,
    topk: int,
    num_draft_tokens: int | None,
    batch_size: float,
    context_tokens: float,
    accept: float,
    changes: tuple[tuple[str, str], ...],
    *,
    as_json: bool,
) -> None:
    """Price a rig from names alone, and what a change of it does to the speed-up.

    A physical prior, from datasheets and public measurements: it is not fitted to your points yet.
    The draft model is assumed: the model's MTP layer, else an EAGLE-3 head.

    \b
    specmodel whatif --model QwQ-32B --gpu H100 --depth 3 --accept 2.5
    specmodel whatif --model Kimi-K2.6 --gpu "RTX PRO 6000 Server" --num-gpus 8 \\
      --interconnect pcie5 --depth 3 --accept 2.5 --set interconnect=nvlink5
    """  # noqa: D301 - click wants the backspace itself
    from calibration.model_config import named_model  # noqa: PLC0415 - on demand
    from calibration.scenario import Scenario  # noqa: PLC0415 - as above
    from calibration.whatif import what_if  # noqa: PLC0415 - as above

    curves = () if allreduce is None else _curves(allreduce, num_gpus)
    try:
        found = what_if(
            Scenario(
                model=named_model(model),
                gpu=gpu,
                tp_size=num_gpus,
                interconnect=interconnect,
                dtype=dtype,
                curves=curves,
                depth=depth,
                topk=topk,
                num_draft_tokens=num_draft_tokens,
                batch_size=batch_size,
                context_tokens=context_tokens,
                accept_length=accept,
            ),
            changes,
        )
    except ParameterError as error:  # all that can be out of range here was given by option
        raise click.UsageError(str(error)) from None
    if as_json:
        from calibration.report.whatif_json import what_if_json  # noqa: PLC0415 - on demand

        click.echo(json.dumps(what_if_json(found), indent=1, allow_nan=False))
    else:
        from calibration.report.whatif_text import what_if_text  # noqa: PLC0415 - on demand

        click.echo(what_if_text(found))


def _curves(path: Path, num_gpus: int) -> "tuple[tuple[int, AllReduceCurve], ...]":
    """Measured all-reduces by ranks; those of the base must be among them."""
    from calibration.allreduce.allreduce_file import load_all_reduces  # noqa: PLC0415 - scipy

    found = tuple((one.fit.num_ranks, one.fit.curve) for one in load_all_reduces(path))
    ranks = sorted({count for count, _ in found})
    if num_gpus not in ranks:
        known = ", ".join(map(str, ranks)) or "none"
        raise FormatError(path, f"no all-reduce of {num_gpus} ranks; it has {known}")
    return found
