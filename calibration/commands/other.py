"""`specmodel ingest`, `whatif`, `allreduce`, `data` and `examples`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.allreduce.runs import MOST_RANKS
from calibration.commands.options import (
    DEEPEST,
    DEFAULT_CALIBRATION,
    INPUT_FILE,
    LOAD,
    Change,
    Number,
    check_outputs,
    chosen_calibration,
    json_option,
    load_options,
    named_output,
    plot_option,
    progress_of,
    say_drawn,
    show,
    show_answer,
    show_notes,
)
from calibration.commands.rig_options import asked_rig, rig_options
from specmodel.ask import Ask
from specmodel.errors import ParameterError, UsageError
from specmodel.files import OutputError, write_bytes_atomically
from specmodel.notes import ROUNDING

if TYPE_CHECKING:
    from calibration.rig.scenario import Scenario

_MOST_TOKEN_BYTES = 1 << 24


@click.command()
@click.argument("files", nargs=-1, type=INPUT_FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Table of points to write; without it nothing is written.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Say what the numbers mean, why lines were left out and which checks failed.",
)
@json_option
def ingest(*, files: tuple[Path, ...], output: Path | None, explain: bool, as_json: bool) -> None:
    """Read engine logs and benchmark files, and write them as one table of points.

    FILES are files or folders, recognised by their content: SGLang server logs, bench_speculative,
    bench_serving, bench_one_batch_server, server info, meta_info, SpecForge results; vLLM logs,
    bench serve results, per-request metrics; Prometheus scrapes; TensorRT-LLM, llama.cpp,
    speculators, Model-Optimizer and AIPerf results; tables of points, also in Markdown. Plain or
    gzip.

    \b
    specmodel ingest server.log baseline.log -o bench.csv
    specmodel ingest results/ --explain
    """
    if not files:
        raise UsageError("a file or a folder", "nothing to read")
    check_outputs([output], files)
    from calibration.points.reading import first_error, ingest
    from calibration.points.table import write_points
    from calibration.report.ingest_text import ingest_text

    with progress_of(files) as progress:
        found = ingest(files, progress=progress)
    written = None
    if output is not None and found.points is not None:
        write_points(found.points, output)
        written = named_output(output)
    if as_json or found.usable:
        text = partial(ingest_text, output=written, explain=explain)
        show_answer(found, text, [output], as_json=as_json, output=written)
    error = first_error(found)
    if error is not None:
        raise error
    explained = explain and not as_json  # the text has the warnings of what was read
    notes = [str(one) for one in (found.left_out if explained else found.warnings)]
    if output is not None and written is None:
        notes.append(f"no row to write; {output} was not written")
    show_notes(notes, "Warning: ")


@click.command()
@rig_options
@click.option(
    "--calibration",
    type=INPUT_FILE,
    help=f"Written by `specmodel fit` for a known rig.  [default: ./{DEFAULT_CALIBRATION}, where no "
    "--model and --gpu are given]",
)
@click.option("--depth", type=click.IntRange(1, DEEPEST), help="Draft depth.")
@load_options
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
    type=Change(),
    help="A change to price, each alone and then all together: interconnect, allreduce, tp_size, gpu, "
    "model, dtype, kv_dtype, batch_size, context_tokens, depth, topk, num_draft_tokens, schedule, capture_limit, "
    "draft.kind, draft.vocab, draft.tp_size, draft.step_ms, draft.record.  [default: changes that make "
    "sense for the rig]",
)
@json_option
def whatif(
    *,
    calibration: Path | None,
    depth: int | None,
    accept: float | None,
    changes: tuple[tuple[str, str], ...],
    as_json: bool,
    **rig: Any,
) -> None:
    """Price a rig, and what a change of it does to the speed-up, largest effect first.

    The rig is that of a calibration whose points say their model and GPU, or named by --model and
    --gpu. A named rig has a physical prior, from datasheets and public measurements: it is not
    fitted to your points yet. What is not said of the draft model is assumed. Batch and context are
    those of the calibration where they are not given, of a named rig 1 and 0.

    \b
    specmodel whatif
    specmodel whatif --model QwQ-32B --gpu H100 --depth 3 --accept 2.5
    specmodel whatif --model Kimi-K2.6 --gpu "RTX PRO 6000 Server" --num-gpus 8 \\
      --interconnect pcie5 --depth 3 --accept 2.5 --set interconnect=nvlink5
    """
    load = {name: rig.pop(name) for name in LOAD}
    asked = Ask(num_steps=None if depth is None else (depth,), **load)
    named = any(value for value in rig.values())
    if named and calibration is not None:
        raise UsageError("one of them", "--calibration and --model both say what the rig is")
    from calibration.report.prediction_text import calibration_words
    from calibration.report.rig_text import what_if_text
    from calibration.rig.prediction import calibrated_scenario
    from calibration.rig.whatif import what_if
    from specmodel.answer import used

    known, source = (None, "") if named else chosen_calibration(calibration)
    try:
        if known is None:
            base, fit = _named_scenario(rig, asked, accept), None
        elif known.num_points:
            base, fit = calibrated_scenario(known, asked, accept_length=accept)
        else:
            raise UsageError(
                "--model and --gpu, or --calibration", f"there is no ./{DEFAULT_CALIBRATION} here"
            )
        found = what_if(base, changes, fit=fit)
    except ParameterError as error:  # all that can be out of range here was given by option
        raise click.UsageError(str(error)) from None
    text = partial(what_if_text, head="" if known is None else calibration_words(known, source))
    show_answer(found, text, as_json=as_json, **used(known, source))
    priced = (found.base, *(row.priced for row in found.all_rows))
    costs = [one.implied_round_cost for one in priced if one]
    if min(costs) < 1.0 - ROUNDING:
        said = f"rounds of {min(costs):.3g} steps and more are implied; none takes less than one"
        show_notes([f"{said}, so they are taken as 1"])


def _named_scenario(rig: dict[str, Any], asked: Ask, accept: float | None) -> "Scenario":
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def allreduce() -> None:
    """What an all-reduce costs on this machine."""


@allreduce.command("fit")
@click.argument("logs", nargs=-1, type=INPUT_FILE)
@click.option(
    "--ranks", type=click.IntRange(2, MOST_RANKS), help="Ranks, where a file does not say."
)
@click.option(
    "--tokens-bytes",
    type=click.IntRange(1, _MOST_TOKEN_BYTES),
    help="Bytes that a token sends: hidden size x 2 in bf16; shows the time by tokens.",
)
@click.option("--accept-incomplete", is_flag=True, help="Use a run that ended early.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default="allreduce.json",
    show_default=True,
    help="Curves and laws.",
)
@plot_option
@json_option
def allreduce_fit(
    *,
    logs: tuple[Path, ...],
    ranks: int | None,
    tokens_bytes: int | None,
    accept_incomplete: bool,
    output: Path,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fit measured all-reduces: floor, bandwidths, switch of protocols, one-shot law.

    LOGS are outputs of nccl-tests or rccl-tests (text of any version, or JSON), or tables with the
    columns size_bytes and time_us. Wrong values, one rank, other collectives and runs that hung are
    refused.

    \b
    specmodel allreduce fit all_reduce.txt --tokens-bytes 14336
    specmodel allreduce fit oneshot.csv --ranks 4 --plot allreduce.png
    """
    if not logs:
        raise UsageError("the output of all_reduce_perf", "nothing to read")
    check_outputs([output, plot], list(logs))
    from calibration.allreduce.curves import measure_all_reduces
    from calibration.allreduce.fitting import all_reduce_json, save_all_reduces
    from calibration.report.data_text import all_reduces_text, tokens_beyond

    found = measure_all_reduces(list(logs), num_ranks=ranks, accept_incomplete=accept_incomplete)
    save_all_reduces(output, found.all_reduces)
    answer = all_reduce_json if as_json else lambda some: all_reduces_text(some, tokens_bytes)
    show(answer(found.all_reduces), [output, plot])
    notes = [f"{one.file}: {note}" for one in found.all_reduces for note in one.notes]
    show_notes([*found.refused, *notes, *tokens_beyond(found.all_reduces, tokens_bytes)])
    click.echo(f"Written: {named_output(output)}", err=True)
    if plot is not None:
        from calibration.plots import all_reduce_figure, save_figure

        save_figure(all_reduce_figure(found.all_reduces), plot)
        say_drawn(plot)


@click.command()
@json_option
def data(*, as_json: bool) -> None:
    """List the packaged systems: name, class, rows, what varies, source."""
    from calibration.points.packaged import packaged_tables
    from calibration.report.as_json import packaged_json
    from calibration.report.data_text import packaged_text

    show((packaged_json if as_json else packaged_text)(packaged_tables()))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--force", is_flag=True, help="Write over files that hold something else.")
def examples(*, folder: Path, force: bool) -> None:
    """Write the files that the README works with into a folder, which is made where it is not there.

    A benchmark of one line, a sweep, server logs, the log of a run in training, and the output of
    nccl-tests. All are made up, in the formats of the real ones.

    \b
    specmodel examples demo && cd demo
    specmodel fit bench.csv
    """
    from calibration.points.packaged import EXAMPLES

    contents = {file.name: file.read_bytes() for file in sorted(EXAMPLES.iterdir())}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [
            name
            for name, content in contents.items()
            if (folder / name).exists() and (folder / name).read_bytes() != content
        ]
    except OSError as error:
        raise OutputError(folder, f"cannot be written: {error.strerror or error}") from None
    if others and not force:
        raise OutputError(
            folder / others[0], "is there with other content; name another folder, or give --force"
        )
    for name, content in contents.items():
        write_bytes_atomically(folder / name, content)
    show(f"{folder}: {', '.join(contents)}")
