"""Everything that is said of a file, as `specmodel ingest` says it."""

import json
from pathlib import Path

from calibration.points.reading import ingest
from calibration.points.table import format_points
from calibration.report.as_json import answer_json
from calibration.report.ingest_text import ingest_text
from specmodel.errors import SpecModelError


def one_line(text: str) -> str:
    """Return a message, which must be one line."""
    assert "\n" not in text
    return text


def said_of(path: Path) -> str:
    """Return everything that is said of a file; an error must be one line."""
    try:
        found = ingest(path)
    except SpecModelError as error:
        return one_line(str(error))
    text = json.dumps(answer_json(found, output=None), allow_nan=False)
    text += ingest_text(found, None) + ingest_text(found, None, explain=True)
    return text + (format_points(found.points) if found.points is not None else "")
