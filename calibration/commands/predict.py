"""`specmodel predict`: speed-up and tokens/s at an accept length, with an interval."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calibration.commands.options import (
    DEEPEST,
    DEFAULT_CALIBRATION,
    INPUT_FILE,
    MATCHED,
    Accuracies,
    Change,
    Depths,
    Number,
    calibration_option,
    check_outputs,
    chosen_calibration,
    json_option,
    load_options,
    plot_option,
    progress_of,
    say_drawn,
    show_answer,
    show_notes,
)
from calibration.report.prediction_text import (
    calibration_words,
    points_prediction_csv,
    prediction_text,
)
from specmodel.answer import answer, note_lines, used
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError, UsageError
from specmodel.question import BOUNDS
from specmodel.units import MILLI

if TYPE_CHECKING:
    from specmodel.arrival import AskedArrival


_ACCEPTANCE = ("--accept", "--full", "--conditional", "--log")
_BESIDE_POINTS = ("--points", "--calibration", "--json")
_BESIDE_ARRIVAL = ("--output-tokens", "--prefill-ms", "--max-running")
_NOT_AT_A_RATE = ("--batch-size", "--baseline", "--target-speedup", "--claim", "--plot")


@click.command()
@click.option(
    "--accept",
    "accept_length",
    type=Number("accept_length", from_below=True),
    help="Accept length, bonus token included.",
)
@click.option(
    "--full",
    "full_accuracy",
    metavar="A,A,...",
    type=Accuracies(),
    help="Full (joint) accuracies, depth 1 first.",
)
@click.option(
    "--conditional",
    "conditional_accuracy",
    metavar="A,A,...",
    type=Accuracies(),
    help="Conditional accuracies, depth 1 first.",
)
@click.option("--log", type=INPUT_FILE, help="Training log; see also `specmodel train`.")
@click.option(
    "--accuracy-from",
    type=click.Choice(["served", *MATCHED]),
    help="Where the acceptance was measured; that of training is transferred to serving, surer where the "
    "served prompts are known to be like its data or not.  [default: served, of --log training]",
)
@click.option(
    "--depth",
    "num_steps",
    metavar="N | N:M",
    type=Depths(),
    help="Draft depth (num_steps), or a range of depths.",
)
@click.option(
    "--accept-depth",
    type=click.IntRange(min=1, max=DEEPEST),
    help="Depth at which the acceptance was served; it is carried to --depth.  [default for a list: its length]",
)
@load_options
@click.option("--workload", help="Workload of the calibration, for its baseline.")
@click.option(
    "--baseline",
    "baseline_tokens_per_s",
    type=Number("baseline_tokens_per_s"),
    help="Tokens/s without speculation at this load.",
)
@click.option(
    "--target-speedup", type=Number("speedup"), help="Say the accept length that this needs."
)
@click.option(
    "--claim",
    type=Number("accept_length", from_below=True),
    help="Say what an accept length at --depth would need.",
)
@calibration_option
@click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    type=Change(),
    help="Change the calibrated rig or its load, priced by the physical form: interconnect, allreduce, "
    "tp_size, gpu, dtype, kv_dtype, model, batch_size, context_tokens, depth, topk, "
    "num_draft_tokens, schedule, capture_limit, draft.kind, draft.vocab, draft.tp_size, draft.step_ms, draft.record.",
)
@click.option(
    "--drafter",
    type=INPUT_FILE,
    help="Measured draft passes, of `specmodel drafter time`; as --set draft.record=FILE.",
)
@click.option(
    "--arrival-rate",
    type=Number("arrival_rate_per_s"),
    help="Requests that arrive per second: how many then run, how long they take, and up to which rate "
    "speculation pays.",
)
@click.option(
    "--output-tokens",
    type=Number("output_tokens"),
    help="Tokens decoded per request, with --arrival-rate.",
)
@click.option(
    "--prefill-ms",
    type=Number("prefill_ms"),
    help="Time that the prefill of one request keeps decoding waiting, with --arrival-rate.",
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1, max=int(BOUNDS["max_running"].most)),
    help="Most requests that run at once, with --arrival-rate.  [default: what memory holds by the "
    "physical form, else twice the largest batch measured]",
)
@click.option("--points", type=INPUT_FILE, help="Predict every row of a points file, as CSV.")
@plot_option
@json_option
def command(
    *,
    log: Path | None,
    accuracy_from: str | None,
    calibration: Path | None,
    changes: tuple[tuple[str, str], ...],
    drafter: Path | None,
    arrival_rate: float | None,
    output_tokens: float | None,
    prefill_ms: float | None,
    max_running: int | None,
    points: Path | None,
    plot: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Predict speed-up and tokens/s, with the probability of beating no speculation.

    Acceptance comes from one of --accept, --full, --conditional and --log, else from what the points
    measured at each depth. What is not given is the calibrated configuration where there is a single one.

    \b
    specmodel predict --accept 2.75
    specmodel predict --depth 1:8
    specmodel predict --full .742,.47,.29,.15,.097 --depth 1:10
    specmodel predict --accept 2.75 --accept-depth 5 --depth 10
    specmodel predict --target-speedup 1.3
    specmodel predict --accept 2.75 --set interconnect=nvlink4 --set batch_size=8
    specmodel predict --accept 2.75 --arrival-rate 4 --output-tokens 512
    """
    _check_usage(click.get_current_context())
    if plot is not None:
        check_outputs([plot], [calibration or Path(DEFAULT_CALIBRATION)])
    known, source = chosen_calibration(calibration)
    if points is not None:
        _predict_points(known, points, source=source, as_json=as_json)
        return
    source_of = accuracy_from or ("training" if log else "served")
    ask = Ask(**asked, from_training=source_of in MATCHED, matched_prompts=MATCHED.get(source_of))
    changes = changes if drafter is None else (*changes, ("draft.record", str(drafter)))
    try:
        if log is not None:
            from calibration.training.log_acceptance import asked_by_log

            ask = asked_by_log(log, ask)
        if arrival_rate is not None and output_tokens is not None:
            from specmodel.arrival import AskedArrival

            arrival = AskedArrival(
                arrival_rate_per_s=arrival_rate,
                output_tokens=output_tokens,
                prefill_s=None if prefill_ms is None else prefill_ms * MILLI,
                max_running=max_running,
            )
            _predict_arrival(known, arrival, ask, changes=changes, source=source, as_json=as_json)
            return
        if changes:
            from calibration.predict.models import answer_on_rig

            found = answer_on_rig(known, ask, changes, source=source)
        else:
            found = answer(known, ask, source=source)
    except ParameterError as error:  # all that can be out of range here was given by option
        raise click.UsageError(str(error)) from None
    if plot is not None and not known.baseline_known and asked["baseline_tokens_per_s"] is None:
        raise UsageError("--baseline", "--plot draws speed-ups, and no baseline is known")
    show_answer(found, prediction_text, [plot], as_json=as_json)
    show_notes(note_lines(found))
    if plot is not None:
        from calibration.plots import prediction_figure, save_figure

        predictions = [one.prediction for one in found.depths]
        save_figure(prediction_figure(known, predictions, best=found.best), plot)
        say_drawn(plot)


def _check_usage(context: click.Context) -> None:
    """Refuse options that say a thing twice, or that have no effect beside the others."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
    ]
    idle = [name for name in given if name not in _BESIDE_POINTS]
    if "--points" in given and idle:
        raise UsageError(
            "columns instead",
            f"--points takes everything from its rows, so {' and '.join(idle)} "
            f"{'has' if len(idle) == 1 else 'have'} no effect",
        )
    acceptance = [name for name in given if name in _ACCEPTANCE]
    if len(acceptance) > 1:
        raise UsageError("one of them", f"{' and '.join(acceptance)} say the same thing twice")
    if "--accept-depth" in given and not {"--accept", "--full", "--conditional"} & {*acceptance}:
        said = "--accept-depth says where an acceptance was measured"
        raise UsageError("--accept, --full or --conditional", said)
    if {"--arrival-rate", *_BESIDE_ARRIVAL} & {*given}:
        _check_arrival(given)
    changed = [name for name in ("--set", "--drafter") if name in given]
    if "--plot" in given and changed:
        raise UsageError(
            "one of them", f"--plot draws the calibrated rig, which {changed[0]} changes"
        )
    if "--plot" in given and "--target-speedup" in given and not acceptance:
        raise UsageError("--accept, --full, --conditional or --log", "--plot draws predictions")


def _check_arrival(given: list[str]) -> None:
    """Refuse what has no meaning with an arrival rate, or only with one."""
    if "--arrival-rate" not in given:
        alone = [name for name in given if name in _BESIDE_ARRIVAL]
        if alone:
            raise UsageError("--arrival-rate", f"only a rate of arrivals has {' and '.join(alone)}")
        return
    if "--output-tokens" not in given:
        raise UsageError("--output-tokens", "a rate of arrivals does not say how long requests are")
    idle = [name for name in given if name in _NOT_AT_A_RATE]
    if idle:
        raise UsageError(
            "one of them",
            "at an arrival rate the batch and its baseline follow from the calibration, so "
            f"{' and '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect",
        )


def _predict_arrival(
    calibration: Calibration,
    arrival: "AskedArrival",
    ask: Ask,
    *,
    changes: tuple[tuple[str, str], ...],
    source: str,
    as_json: bool,
) -> None:
    """Answer for a server at an arrival rate."""
    from calibration.predict.arrival import arrival_answer
    from calibration.report.arrival_text import arrival_text

    found = arrival_answer(calibration, arrival, ask, changes=changes, source=source)
    show_answer(found, arrival_text, as_json=as_json)
    show_notes(dict.fromkeys(note.message for note in found.notes))


def _predict_points(calibration: Calibration, path: Path, *, source: str, as_json: bool) -> None:
    """Predict every row of a file."""
    from calibration.predict.points import predict_points

    with progress_of([path]) as progress:
        found = predict_points(calibration, path, progress=progress)
    show_answer(found, points_prediction_csv, as_json=as_json, **used(calibration, source))
    if not as_json:
        show_notes([calibration_words(calibration, source)], "")
    show_notes(note.message for note in found.notes)
