"""Predictions of a points file: the file with columns added, or JSON."""

import csv
import io

from calibration.predict.points import PointPredictions
from calibration.report.as_json import PREDICTED, predicted_numbers

COLUMNS = (*PREDICTED, "warnings")
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
        numbers = [
            "" if one is None else f"{one:.{_DIGITS}g}" for one in predicted_numbers(prediction)
        ]
        said = "; ".join(f"{note.code}: {note.message}" for note in prediction.warnings)
        writer.writerow([*(cells[place] for place in kept), *numbers, said])
    return text.getvalue()
