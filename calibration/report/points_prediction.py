"""Predictions of a points file: the file with columns added, or JSON."""

import csv
import io
from typing import Any

from calibration.points.notes import Note
from calibration.predict.points import PointPrediction, PointPredictions

SCHEMA_VERSION = 1
"""Version of the JSON of predicted points. 1: first release."""

COLUMNS = (
    "predicted_output_tokens_per_s",
    "predicted_low_tokens_per_s",
    "predicted_high_tokens_per_s",
    "predicted_speedup",
    "warnings",
)
"""Columns that are added; those of an earlier prediction are replaced."""

_DIGITS = 6


def points_prediction_csv(found: PointPredictions) -> str:
    """Return the rows of the file, as written, with the predictions beside them.

    Parameters
    ----------
    found : PointPredictions
        One per row.

    Returns
    -------
    str
        A table separated by commas, one line per row of the file.
    """
    points = found.points
    kept = [place for place, name in enumerate(points.header) if name not in COLUMNS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(points.header[place] for place in kept), *COLUMNS])
    for cells, prediction in zip(points.cells, found.predictions, strict=True):
        numbers = ["" if one is None else f"{one:.{_DIGITS}g}" for one in _numbers(prediction)]
        said = "; ".join(f"{note.code}: {note.message}" for note in prediction.warnings)
        writer.writerow([*(cells[place] for place in kept), *numbers, said])
    return text.getvalue()


def points_prediction_json(found: PointPredictions) -> dict[str, Any]:
    """Return the predictions as plain dicts, lists and numbers.

    Parameters
    ----------
    found : PointPredictions
        One per row.

    Returns
    -------
    dict
        ``points`` has one entry per row of the file: its line, its cells by name, and the columns
        that the table has too; None where nothing is predicted.
    """
    points = found.points
    return {
        "schema_version": SCHEMA_VERSION,
        "warnings": [_note(note) for note in found.notes],
        "points": [
            {
                "line": line,
                "row": dict(zip(points.header, cells, strict=True)),
                **dict(zip(COLUMNS[:-1], _numbers(prediction), strict=True)),
                "warnings": [_note(note) for note in prediction.warnings],
            }
            for line, cells, prediction in zip(
                points.lines, points.cells, found.predictions, strict=True
            )
        ],
    }


def _numbers(prediction: PointPrediction) -> tuple[float | None, ...]:
    """Median, low and high throughput, and speed-up."""
    output, speedup = prediction.output_tokens_per_s, prediction.speedup
    rates = (None,) * 3 if output is None else (output.median, output.low, output.high)
    return (*rates, None if speedup is None else speedup.median)


def _note(note: Note) -> dict[str, str]:
    """A remark."""
    return {"code": note.code, "message": note.message}
