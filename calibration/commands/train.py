"""`specmodel train`: from a training log to what the drafter is worth in serving."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import (
    DEEPEST,
    INPUT_FILE,
    LOAD,
    MATCHED,
    Number,
    ServedPairs,
    Until,
    calibration_option,
    check_outputs,
    chosen_calibration,
    json_option,
    load_options,
    plot_option,
    progress_of,
    say_drawn,
    show,
    show_answer,
    show_notes,
)
from specmodel.ask import Ask
from specmodel.errors import ParameterError, UsageError

if TYPE_CHECKING:
    from calibration.training.assessment import TrainingQuestion
    from calibration.training.training_log import TrainingLog
    from specmodel.acceptance import TransferFactor
    from specmodel.calibration import Calibration

_MOST_TOKENS = 1e7
_MOST_SECONDS = 1e6


@click.command()
@click.argument("logs", nargs=-1, type=INPUT_FILE)
@calibration_option
@click.option(
    "--bench",
    type=INPUT_FILE,
    multiple=True,
    help="Benchmark points to fit instead, of an earlier drafter.",
)
@click.option("--depth", type=click.IntRange(1, DEEPEST), help="Served draft depth (num_steps).")
@load_options
@click.option("--workload", help="Workload of the calibration, for its baseline.")
@click.option(
    "--baseline",
    "baseline_tokens_per_s",
    type=Number("baseline_tokens_per_s"),
    help="Tokens/s without speculation.",
)
@click.option(
    "--until",
    type=Until(),
    default="end",
    show_default=True,
    help="Last step of the run: a number, or the end that the log tells.",
)
@click.option(
    "--target",
    "target_speedup",
    type=Number("speedup"),
    default=1.3,
    show_default=True,
    help="Speed-up that the drafter should reach.",
)
@click.option(
    "--served-pair",
    "served_pairs",
    type=ServedPairs(),
    multiple=True,
    metavar="LOGGED:SERVED",
    help="Accept length of a similar drafter by its log, and as served at the same depth.",
)
@click.option(
    "--accuracy-from",
    type=click.Choice([*MATCHED]),
    default="training",
    show_default=True,
    help="Whether the served prompts are known to be like the training data.",
)
@click.option(
    "--response-tokens",
    type=click.FloatRange(min=1, max=_MOST_TOKENS),
    help="Mean response length of the training data, to correct the bias at its edges.",
)
@click.option(
    "--seconds-per-step",
    type=click.FloatRange(min=0, min_open=True, max=_MOST_SECONDS),
    help="Of training.",
)
@click.option("--format", "family", metavar="NAME", help="Trainer, where a file holds several.")
@click.option(
    "--accuracy-kind",
    type=click.Choice(["joint", "conditional", "marginal"]),
    help="Of accuracies by depth in a table of a run that does not say it.",
)
@click.option(
    "--correct-alias",
    is_flag=True,
    help="Divide accuracies that speculators 0.6.0 to 0.6.0.2 summed twice over processes.",
)
@click.option("--watch", is_flag=True, help="Follow a growing log until interrupted.")
@click.option(
    "--watch-seconds",
    type=click.FloatRange(min=0.1, max=_MOST_SECONDS),
    default=30.0,
    show_default=True,
    help="Time between two looks.",
)
@plot_option
@json_option
def command(
    *,
    logs: tuple[Path, ...],
    calibration: Path | None,
    bench: tuple[Path, ...],
    depth: int | None,
    served_pairs: tuple[tuple[float, float], ...],
    accuracy_from: str,
    family: str | None,
    correct_alias: bool,
    accuracy_kind: str | None,
    watch: bool,
    watch_seconds: float,
    plot: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what a drafter in training is worth in serving, now and when it is finished.

    LOGS are those of one run, recognised by content: speculators, SpecForge, EAGLE, TorchSpec,
    ModelOpt, NeMo Automodel, Medusa and other Hugging Face trainers; console output, tracker exports
    as CSV, val_metrics.json, and tables of a run as CSV or Markdown. The points of the system are in --calibration or --bench.

    \b
    specmodel train train.log --bench bench.csv
    specmodel train train.log --until 7500 --target 1.3 --plot run.png
    """
    if not logs:
        raise UsageError("the log of a run", "nothing to read")
    if bench and calibration is not None:
        raise UsageError("one of them", "--calibration and --bench both name a system")
    if watch and Path("/dev/stdin") in logs:
        raise UsageError("the name of a file", "standard input is read to its end, so no --watch")
    check_outputs([plot], [*logs, *bench, calibration])
    _check_family(family)
    from calibration.training.assessment import TrainingQuestion

    known, source = _system(calibration, bench)
    load = {name: asked.pop(name) for name in LOAD}
    question = TrainingQuestion(
        configuration=Ask(num_steps=None if depth is None else (depth,), **load),
        transfer=_transfer(served_pairs, matched=MATCHED[accuracy_from]),
        **asked,
    )
    try:
        how = {"family": family, "correct_alias": correct_alias}
        looks = watch_seconds if watch else None
        for log in _logs(logs, how, accuracy_kind, looks, as_json=as_json):
            layout = None if watch else 1  # watched answers are a line each
            _report(log, known, source, question, plot=plot, as_json=as_json, indent=layout)
    except KeyboardInterrupt:
        if not watch:
            raise


def _transfer(pairs: tuple[tuple[float, float], ...], *, matched: bool | None) -> "TransferFactor":
    """What pairs of logged and served accept lengths, and the prompts, say of the transfer."""
    from calibration.training.serving import transfer_of_pairs

    try:
        return transfer_of_pairs(pairs, matched=matched)
    except ParameterError as error:
        which = {"offline": "logged"}.get(error.name, "served")
        raise click.UsageError(
            f"--served-pair: the {which} accept length must be {error.allowed}, got {error.value}"
        ) from None


def _check_family(family: str | None) -> None:
    """Refuse the name of a trainer that is not known."""
    from calibration.training.family_facts import FAMILIES

    if family is not None and family not in FAMILIES:
        raise UsageError(f"one of {', '.join(FAMILIES)}", f"--format {family} is no known trainer")


def _system(calibration: Path | None, bench: tuple[Path, ...]) -> tuple["Calibration", str]:
    """The system that will serve, and where it is from."""
    if not bench:
        return chosen_calibration(calibration)
    from calibration.fit.fit import fit

    with progress_of(bench):
        return fit(list(bench)), ", ".join(path.name for path in bench)


def _logs(
    paths: tuple[Path, ...],
    how: dict[str, Any],
    accuracy_kind: str | None,
    watch_s: float | None,
    *,
    as_json: bool,
) -> Iterator["TrainingLog"]:
    """Yield the log once, or each time it has grown."""
    if watch_s is None:
        yield _read(paths, as_json=as_json, accuracy_kind=accuracy_kind, **how)
        return
    from calibration.training.following import watched_logs

    yield from watched_logs(paths, every_s=watch_s, **how)


def _read(paths: tuple[Path, ...], *, as_json: bool, **how: Any) -> "TrainingLog":
    """The log of a run; with --json a refused one is said on standard output as well."""
    from calibration.report.as_json import answer_json
    from calibration.training.reading import read_training_log
    from calibration.training.training_log import TrainingLogError

    try:
        with progress_of(paths) as progress:
            return read_training_log(list(paths), progress=progress, **how)
    except TrainingLogError as error:
        if as_json:
            show(answer_json(error))
        raise


def _report(
    log: "TrainingLog",
    calibration: "Calibration",
    source: str,
    question: "TrainingQuestion",
    *,
    plot: Path | None,
    as_json: bool,
    indent: int | None,
) -> None:
    """Assess a log and print it."""
    from calibration.training.assessment import assess

    try:
        found = assess(log, calibration, question)
    except ParameterError as error:
        if error.name != "response_length":
            raise
        raise click.UsageError(
            f"--response-tokens must be {error.allowed}, got {error.value}"
        ) from None
    from calibration.report.prediction_text import calibration_words
    from calibration.report.train_text import log_notes, train_text
    from specmodel.answer import used

    text = partial(train_text, system=calibration_words(calibration, source))
    named = used(calibration, source)
    show_answer(found, text, [plot], as_json=as_json, indent=indent, **named)
    decided = () if found.decision is None else found.decision.notes
    show_notes([*log_notes(found), *(note.message for note in decided)])
    if plot is not None and found.decision is None:
        click.echo(f"Note: {plot} was not drawn: nothing is known of serving", err=True)
    elif plot is not None:
        from calibration.plots import save_figure, training_figure

        save_figure(training_figure(found), plot)
        say_drawn(plot)
