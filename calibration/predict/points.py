"""Predict every row of a points file: what a calibration says of measurements, made or planned."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.points.arrays import measured_share
from calibration.points.table import SYSTEM_COLUMNS, numbers, texts
from calibration.predict.planned_points import PlannedPoints, read_planned_points
from specmodel.accept_lengths import accept_lengths
from specmodel.ask import Ask, configurations, question_of
from specmodel.calibration import Calibration
from specmodel.errors import ImpossibleAnswerError, Note, ParameterError, SpecModelError, UsageError
from specmodel.notes import calibration_notes, prediction_notes
from specmodel.prediction import Prediction, predict_each
from specmodel.question import BOUNDS, Estimate, Question

_MOST_NAMES = 8
_NOT_OF_THE_RIG = ("source_id",)
_CONFIGURATION = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")


class PointPrediction(NamedTuple):
    """The prediction for one row; numbers are None where there is none, and `warnings` say why."""

    output_tokens_per_s: Estimate | None
    speedup: Estimate | None
    warnings: tuple[Note, ...]


class PointPredictions(NamedTuple):
    """Predictions of a file: one for each of its rows, in its order."""

    points: PlannedPoints
    predictions: tuple[PointPrediction, ...]
    notes: tuple[Note, ...]


def predict_points(
    calibration: Calibration, path: Path, *, progress: Callable[[int], None] | None = None
) -> PointPredictions:
    r"""Predict every row of a points file from its accept length, configuration and baseline.

    Parameters
    ----------
    calibration : Calibration
        Of the system.
    path : path
        A table as `read_points` reads it; a throughput is not needed, and not used.
    progress : callable, optional
        Told how many bytes of a log have been read since it was told last.

    Returns
    -------
    PointPredictions
        As many as the file has rows. A row that cannot be used has no prediction and says why; a row
        without speculation (``num_steps`` 0) is its own baseline, at speed-up 1.

    Raises
    ------
    FormatError
        If the file cannot be read, is no table of points or has no row.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     planned = Path(folder) / "planned.csv"
    ...     _ = planned.write_text("accept_length,num_steps\n2.75,5\n9.9,5\n")
    ...     found = predict_points(Calibration.from_prior(), planned).predictions
    >>> [one.speedup is None for one in found], found[1].warnings[0].code
    ([False, True], 'accept_length_out_of_range')
    """
    points = read_planned_points(path, progress=progress)
    found = dict(zip(points.places, predict_rows(calibration, points.frame), strict=True))
    unread = Note("not_read", "this row could not be read")
    return PointPredictions(
        points=points,
        predictions=tuple(
            found.get(place, PointPrediction(None, None, (points.refused.get(place, unread),)))
            for place in range(len(points.lines))
        ),
        notes=calibration_notes(calibration),
    )


def predict_rows(calibration: Calibration, frame: pd.DataFrame) -> list[PointPrediction]:
    """Predictions of rows that could be read, in their order."""
    shares = measured_share(frame)[0].tolist()
    asked: dict[int, Question] = {}
    answered: dict[int, PointPrediction] = {}
    for index, row in enumerate(_rows(frame)):
        if row["num_steps"] == 0:
            answered[index] = _without_speculation(row)
            continue
        try:
            asked[index] = _question(calibration, row, shares[index])
        except UsageError as error:
            answered[index] = PointPrediction(None, None, (Note("incomplete", error.reason),))
        except SpecModelError as error:
            answered[index] = PointPrediction(None, None, (Note("impossible", str(error)),))
    others = _other_systems(calibration, frame)
    for index, prediction in zip(asked, predict_each(calibration, [*asked.values()]), strict=True):
        if isinstance(prediction, ImpossibleAnswerError):
            answered[index] = PointPrediction(None, None, (Note("impossible", str(prediction)),))
            continue
        answered[index] = PointPrediction(
            output_tokens_per_s=prediction.output_tokens_per_s,
            speedup=prediction.speedup,
            warnings=(*others[index], *_notes(calibration, prediction)),
        )
    return [answered[index] for index in range(len(frame))]


def _notes(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """Remarks on a row; where it has no baseline, in the words of a file."""
    return [
        Note(note.code, _missing_baseline(calibration, prediction.question))
        if note.code == "no_baseline"
        else note
        for note in prediction_notes(calibration, prediction)
    ]


def _missing_baseline(calibration: Calibration, question: Question) -> str:
    """Why a row has no baseline, and what to do."""
    known = list(dict.fromkeys(entry.workload for entry in calibration.baselines.entries))
    named = [name for name in known if name]
    if question.workload is None:
        what = "no baseline is known at this load"
    elif question.workload in known:
        what = f"no baseline of workload {question.workload!r} is known at this load"
    else:
        what = f"workload {question.workload!r} is not in the calibration"
        what += f" ({', '.join(named[:_MOST_NAMES])})" if named else ""
    return f"{what}, so there is a speed-up and no tokens/s; fill baseline_tokens_per_s"


class _Row(dict[str, float]):
    """Numbers of a row by column, with its workload."""

    workload: str = ""


def _rows(frame: pd.DataFrame) -> list[_Row]:
    """Rows with what a question needs."""
    names = (*_CONFIGURATION, "accept_length", "baseline_tokens_per_s", "output_tokens_per_s")
    columns = [numbers(frame, name).tolist() for name in names]
    rows = []
    for workload, *values in zip(texts(frame, "workload"), *columns, strict=True):
        row = _Row(zip(names, values, strict=True))
        row.workload = workload
        rows.append(row)
    return rows


def _without_speculation(row: _Row) -> PointPrediction:
    """A baseline row is its own prediction."""
    rate = row["output_tokens_per_s"]
    one = Estimate(1.0, 1.0, 1.0)
    return PointPrediction(None if math.isnan(rate) else one.scaled(rate), one, ())


def _question(calibration: Calibration, row: _Row, share: float) -> Question:
    """The question that a row is, completed from the calibration."""
    for name, bounds in BOUNDS.items():
        value = _stated(row.get(name, math.nan))
        if value is not None and not bounds.hold(value):
            raise ParameterError(name, f"{value:g}", f"in {bounds}")
    if math.isnan(row["accept_length"]):
        raise UsageError("accept_length", "no accept length to predict from")
    given: dict[str, Any] = {name: _stated(row[name]) for name in _CONFIGURATION}
    if given["num_steps"] is not None:
        given["num_steps"] = (int(given["num_steps"]),)
    ask = Ask(
        **given,
        accept_length=row["accept_length"],
        workload=row.workload or None,
        baseline_tokens_per_s=_stated(row["baseline_tokens_per_s"]),
    )
    found = configurations(calibration, ask)
    accepted = accept_lengths(ask, found)
    question = question_of(calibration, ask._replace(workload=None), found[0], accepted[0][0])
    return replace(
        question, workload=ask.workload or question.workload, non_decode_share=_stated(share)
    )


def _stated(value: float) -> float | None:
    """A number; None where it is not stated."""
    return None if math.isnan(value) else value


def _other_systems(calibration: Calibration, frame: pd.DataFrame) -> list[tuple[Note, ...]]:
    """For each row, in which column it is of another system than the calibration."""
    found: list[list[str]] = [[] for _ in range(len(frame))]
    for name in SYSTEM_COLUMNS:
        calibrated = calibration.system.get(name)
        if calibrated is None or name in _NOT_OF_THE_RIG:
            continue
        for index, cell in enumerate(frame[name].tolist()):
            stated = cell != "" and cell == cell  # noqa: PLR0124 - NaN is not equal to itself
            if stated and str(cell) != calibrated:
                found[index].append(f"{name} {cell} (calibrated: {calibrated})")
    return [
        (Note("other_system", f"another system: {', '.join(names)}"),) if names else ()
        for names in found
    ]
