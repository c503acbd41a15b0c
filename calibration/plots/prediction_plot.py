"""The picture of a prediction: throughput against accept length, and against depth."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calibration.plots.accept_panel import MOST_BANDS, draw_accept_panel
from calibration.plots.depth_panel import draw_depth_panel
from calibration.plots.figure_file import figure_format, save_figure
from calibration.plots.point_groups import NOTATION_LABEL
from calibration.plots.prediction_lines import PredictionLines, prediction_lines
from calibration.plots.style import (
    CATEGORIES,
    INK,
    QUIET,
    figure_style,
    legend_below,
    legend_mm,
    new_figure,
    ordered_colours,
)
from specmodel.calibration import Calibration
from specmodel.prediction import Prediction
from specmodel.question import Estimate, Question

_ACCEPT_PANEL_MM, _DEPTH_PANEL_MM = 62.0, 48.0
_MOST_NAMED, _MOST_LISTED = 8, 4


def prediction_figure(
    calibration: Calibration,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    *,
    best: int | None = None,
) -> Figure:
    r"""Figure of throughput against accept length, and of the answers against depth.

    .. math:: y(\tau) = y_0 \, S(\tau)

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    questions : sequence of Question
        What was asked, at least one.
    predictions : sequence of Prediction
        The answers, in the same order.
    best : int, optional
        Position of the recommended question; by default the one with the highest median.

    Returns
    -------
    matplotlib.figure.Figure
        One panel; a second one over depth where only the depth differs among questions.

    Raises
    ------
    ParameterError
        If there is no question, or not one answer for each.

    Notes
    -----
    Results are speed-ups where no baseline is known or the questions have several. Lines are for
    exact accept lengths; the bar of an answer includes the spread of its accept length. The
    break-even is of the mean round, and its bar has no measurement noise. Measured points of the
    same configuration are scaled to the baseline that is shown.

    Examples
    --------
    >>> from specmodel.question import Configuration
    >>> from specmodel.prediction import predict
    >>> from specmodel.question import AcceptLength
    >>> prior = Calibration.from_prior()
    >>> asked = [
    ...     Question(
    ...         accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=steps)
    ...     )
    ...     for steps in (3, 5)
    ... ]
    >>> figure = prediction_figure(prior, asked, predict(prior, asked))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['speed-up (ratio)', 'speed-up (ratio)']
    """
    shown = prediction_lines(calibration, questions, predictions)
    count = len(shown.lines)
    if best is None:
        best = max(range(count), key=lambda index: shown.lines[index].answer.median)
    colours = list(CATEGORIES[:count]) if count <= MOST_BANDS else ordered_colours(count)
    handles = _handles(shown, colours, best)
    body_mm = _ACCEPT_PANEL_MM + (_DEPTH_PANEL_MM if shown.by_depth else 0.0)
    with figure_style():
        figure = new_figure(
            _title(calibration, questions, shown), body_mm + legend_mm(len(handles), columns=1)
        )
        if shown.by_depth:
            above, below = figure.subplots(2, 1, height_ratios=[_ACCEPT_PANEL_MM, _DEPTH_PANEL_MM])
            draw_depth_panel(below, shown, colours, best)
        else:
            above = figure.subplots()
        draw_accept_panel(above, shown, colours, best)
        legend_below(figure, handles, columns=1)
    return figure


def plot_prediction(
    calibration: Calibration,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    path: Path | str,
    *,
    best: int | None = None,
) -> None:
    r"""Write the picture of a prediction; see `prediction_figure`.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    questions : sequence of Question
        What was asked, at least one.
    predictions : sequence of Prediction
        The answers, in the same order.
    path : path
        The file, ending in .png, .svg or .pdf; the old one stays whole when writing fails.
    best : int, optional
        Position of the recommended question; by default the one with the highest median.

    Raises
    ------
    ParameterError
        If the suffix is another one, there is no question, or not one answer for each.
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from specmodel.question import Configuration
    >>> from specmodel.prediction import predict
    >>> from specmodel.question import AcceptLength
    >>> prior = Calibration.from_prior()
    >>> asked = [
    ...     Question(accept_length=AcceptLength.exact(2.75), configuration=Configuration(num_steps=5))
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = Path(folder) / "prediction.pdf"
    ...     plot_prediction(prior, asked, predict(prior, asked), picture)
    ...     picture.read_bytes()[:5]
    b'%PDF-'
    """
    figure_format(path)
    save_figure(prediction_figure(calibration, questions, predictions, best=best), path)


def _title(
    calibration: Calibration, questions: Sequence[Question], shown: PredictionLines
) -> list[str]:
    """What is predicted, and from what."""
    points = calibration.num_points
    configurations = [question.configuration for question in questions]
    parts = [str(one).split(", ") for one in configurations]
    common = [part for part in parts[0] if all(part in other for other in parts)]
    depths = [f"{depth:g}" for depth in sorted({one.num_steps or 0.0 for one in configurations})]
    if len(depths) > _MOST_LISTED:
        common.insert(0, f"depths {depths[0]} to {depths[-1]}")
    elif len(depths) > 1:
        common.insert(0, f"depths {', '.join(depths)}")
    workloads = {question.workload for question in questions}
    workload = workloads.pop() if len(workloads) == 1 else None
    return [
        calibration.label if points else "packaged prior, no points of this system",
        (f"{points} point{'s' * (points > 1)}; " if points else "") + ", ".join(common),
        f"workload {workload}" if workload else "",
        f"lines: {NOTATION_LABEL}" if shown.by_notation else "",
    ]


def _handles(shown: PredictionLines, colours: Sequence[str], best: int) -> list[Artist]:
    """What the legend explains, with the numbers that are read most."""
    lines, chosen, colour = shown.lines, shown.lines[best], colours[best]
    single = len(lines) == 1
    level = "" if shown.is_speedup else f": {shown.baseline:.4g}{shown.unit}"
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            color=INK,
            linewidth=0.9,
            linestyle=(0, (4, 2)),
            label=f"no speculation{level}",
        )
    ]
    interval = "90 % interval of a new measurement"
    if not single and len(lines) <= MOST_BANDS:
        handles.append(Patch(color=QUIET, alpha=0.3, label=interval))
    else:
        which = "" if single else f", {_called(shown, [best])}"
        handles.append(Patch(color=colour, alpha=0.3, label=interval + which))
    if any(line.reaches_baseline for line in lines):
        numbers = f": {_interval(chosen.break_even, 2)}" if single else ""
        handles.append(
            _marker(f"break-even accept length{numbers}", "D", colour if single else INK, "white")
        )
    elif single:
        text = f"break-even {chosen.break_even.median:.2f}: above the most, {chosen.longest:g}"
        handles.append(_marker(text, "", INK))
    answer = _interval(chosen.answer, 2 if shown.is_speedup else 0) + shown.unit
    if single:
        handles.append(_marker(f"at {chosen.asked.median:.2f}: {answer}", "o", colour))
    else:
        handles += [
            _marker("answer at the accept length of each line", "o", INK),
            _marker(f"best, {_called(shown, [best])}: {answer}", "o", INK, colour),
        ]
    measured = [index for index, line in enumerate(lines) if line.measured]
    if measured:
        which = "" if single else f", {_called(shown, measured)}"
        handles.append(_marker(f"measured{which}", "x", INK))
    return handles


def _called(shown: PredictionLines, chosen: Sequence[int]) -> str:
    """Some lines by their names."""
    names = [shown.lines[index].name for index in chosen]
    if len(names) > _MOST_NAMED:
        names = [names[0], "...", names[-1]]
    title = shown.title and f"{shown.title} "
    return title + ", ".join(names)


def _interval(estimate: Estimate, decimals: int) -> str:
    """Median and interval."""
    median, low, high = (
        f"{value:.{decimals}f}" for value in (estimate.median, estimate.low, estimate.high)
    )
    return f"{median} ({low} to {high})"


def _marker(label: str, marker: str, colour: str, face: str | None = None) -> Line2D:
    """Legend entry of a mark."""
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=marker,
        markersize=5,
        color=face or colour,
        markeredgecolor=colour,
        markeredgewidth=1.2,
        label=label,
    )
