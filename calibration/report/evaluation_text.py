"""An evaluation as tables for people and as JSON for machines."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from calibration.evaluate import Evaluation
from calibration.evaluate_splits import Overall, Score


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Progress over systems on stderr; yields what to call before each."""
    columns = (
        TextColumn("{task.description:30.30}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        started = False

        def advance(name: str) -> None:
            nonlocal started
            bar.update(task, description=name, advance=1 if started else 0)
            started = True

        yield advance


def _percent(value: float, digits: int = 1) -> str:
    """A share in per cent; a dash where there is none."""
    return "-" if math.isnan(value) else f"{100 * value:.{digits}f}"


def _interval(low: float, high: float) -> str:
    """Two shares in per cent; a dash where there are too few systems."""
    return "-" if math.isnan(low) else f"{_percent(low, 0)}-{_percent(high, 0)}"


def print_evaluation(result: Evaluation, set_aside: tuple[str, ...]) -> None:
    """Print one table per split and one over all, in per cent of the speed-up."""
    console = Console(highlight=False, soft_wrap=False)
    for split in result.not_applicable:
        console.print(f"{_title(split)}: no system has rows for this.", markup=False)
    for overall in result.overall:
        console.print(
            _table(overall, [score for score in result.scores if score.split == overall.split])
        )
    if not result.overall:
        return
    console.print(_summary(result.overall))
    console.print(
        "Error: |predicted / measured - 1| of the speed-up, in %. cover: share of measurements inside "
        "their 90 % interval, with its own interval (bootstrap over targets). rows: the mean error of "
        "a user who knows no baseline but those of the calibrating rows and each row's own, over some of "
        "the rows, and its cover. oneR: a constant round cost. text: accept length / (1 + c * depth). regret: throughput lost by running the "
        "configuration that the predictions call best."
    )
    for line in (*set_aside, *result.set_aside):
        console.print(f"set aside: {line}", markup=False)


def _table(overall: Overall, scores: list[Score]) -> Table:
    """One split, system by system."""
    table = Table(title=_title(overall.split), title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("system", no_wrap=True, max_width=27)
    for name in ("n", "mean", "med", "p90", "max", "cover", "oneR", "text", "regret"):
        table.add_column(name, justify="right", no_wrap=True)
    for score in scores:
        table.add_row(
            score.system,
            str(score.num_predictions),
            _percent(score.mape),
            _percent(score.median),
            _percent(score.p90),
            _percent(score.worst, 0),
            _percent(score.coverage, 0),
            _percent(score.constant_mape),
            _percent(score.textbook_mape),
            _percent(score.regret),
        )
    return table


_TITLES = {
    "workload": "A workload not seen (its baseline is known)",
    "config": "A (depth, topk, draft tokens) not seen",
    "row": "One row not seen",
    "load, measured": "Other batches and contexts, baseline measured at the verified rows",
    "load, elsewhere": "Other batches and contexts, baseline not measured at the verified rows",
    "fitted": "Fitted rows (seen): what a user would decide from all points",
}


def _title(split: str) -> str:
    """Heading of a split."""
    return _TITLES.get(split, f"Calibrated on {split}, all others predicted")


def _summary(overall: tuple[Overall, ...]) -> Table:
    """All splits, mean over systems."""
    table = Table(title="Mean over systems", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("not seen", no_wrap=True)
    for name in (
        "systems",
        "n",
        "mean",
        "cover",
        "90 %",
        "rows",
        "cover",
        "oneR",
        "text",
        "regret",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for one in overall:
        table.add_row(
            one.split,
            str(one.num_systems),
            str(one.num_predictions),
            _percent(one.mape, 2),
            _percent(one.coverage),
            _interval(one.coverage_low, one.coverage_high),
            _percent(one.rows_only_mape, 2),
            _percent(one.rows_only_coverage),
            _percent(one.constant_mape),
            _percent(one.textbook_mape),
            _percent(one.regret, 2),
        )
    return table
