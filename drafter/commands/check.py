"""`specmodel drafter check`: kernels of this machine against the fp64 reference."""

import click

from drafter.check_cases import INTERPRETED_PARAMETERS, LIMITS, CheckResult
from drafter.commands.options import device_errors, show
from drafter.extra import require_extra
from drafter.processes import run_interpreted
from specmodel.errors import ParameterError, SpecModelError


@click.command()
@click.argument("model", metavar="[CHECKPOINT|SHAPE]", required=False)
@click.option(
    "--dtype",
    type=click.Choice(list(LIMITS)),
    default="bfloat16",
    show_default=True,
    help="Storage type of CHECKPOINT; small models are checked in every type.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(*, model: str | None, dtype: str, as_json: bool) -> None:
    """Check the kernels against an fp64 reference, on this machine.

    Drafts of small models with every switch, chain and tree; with CHECKPOINT (a folder, or the name of
    a public shape) drafts of that one. On a GPU also: captured graphs give the same bits as launches in
    turn, and launches that overlap the same tokens, and the same scores and cache within the error that
    is allowed. Without a GPU the kernels run in Triton's interpreter, in a process of its own, in about
    a minute. Exit code 1 when a check fails.

    Allowed is the error that is usual for the storage type; of CHECKPOINT's own weights, which may be
    badly scaled, also twice what plain torch loses on the same draft in the same type, up to 0.1.

    \b
    specmodel drafter check
    specmodel drafter check path/to/checkpoint --dtype float16
    """
    require_extra("torch", "triton", what="specmodel drafter check")
    from drafter.report import checks_json, checks_text
    from drafter.torch_extra import torch

    if torch.cuda.is_available():
        from drafter.checks import checks

        with device_errors("free some of it, or check a smaller model"):
            where = torch.cuda.get_device_name()
            results = list(checks(model, dtype=dtype, device=torch.device("cuda")))
    else:
        where = "the CPU, in Triton's interpreter"
        if model is not None:
            _check_size(model)
        answer = run_interpreted("check", model=model, dtype=dtype)
        results = [CheckResult(**row) for row in answer["rows"]]
    show(as_json, checks_json, checks_text, results, where)
    failed = sum(not each.passed for each in results)
    if failed:
        raise SpecModelError(
            f"{failed} of {len(results)} checks failed; trust no time of these kernels"
        )


def _check_size(model: str) -> None:
    """Refuse what the interpreter would multiply for hours."""
    from drafter.floors import step_weights
    from drafter.public_models import named_subject

    parameters = step_weights(named_subject(model).spec).step
    if parameters > INTERPRETED_PARAMETERS:
        raise ParameterError(
            "parameters of a step",
            f"{parameters:.3g}",
            f"at most {INTERPRETED_PARAMETERS:.3g} without a GPU",
            "the interpreter would take hours",
        )
