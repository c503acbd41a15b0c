"""Tables as people paste them: drawn with bars or aligned, in a page of prose, on their side."""

from itertools import islice
from typing import Final

from calibration.readers.header import match_header
from calibration.readers.points_csv import about_points, is_known, known_names, lacking, read_tables
from calibration.readers.reading import Reading, SourceText
from calibration.readers.text_tables import Table, page_tables, split_table, transposed

FORMAT: Final = "pasted_table"
_MOST_TABLES = 500  # of a page


def recognise(head: str) -> bool:
    """Return whether a text has a table with a column of speeds, and one of acceptance or depth."""
    return bool(_tables(head))


def read(source: SourceText) -> Reading:
    """Return the rows of all such tables of a page."""
    return read_tables(source, _tables(source.text), FORMAT)


def _tables(text: str) -> list[Table]:
    """Return the tables of a page that are about points, upright."""
    upright = []
    for table in islice(page_tables(text), _MOST_TABLES):
        known = {one: known_names(one) for one in (table, transposed(table))}
        best = max(known, key=lambda one: len(known[one]))
        if about_points(known[best]):
            upright.append(best)
    return upright


def understood(text: str) -> str:
    """Return what was understood of a text that is nearly a table of points, and what it lacks."""
    tables = [
        *([one] if (one := split_table(text, is_known)) else []),
        *islice(page_tables(text), _MOST_TABLES),
    ]
    nearest = max(
        (one for table in tables for one in (table, transposed(table))),
        key=lambda one: len(known_names(one)),
        default=None,
    )
    if nearest is None or not known_names(nearest):
        return ""
    columns = [one for one in match_header(nearest.header.cells) if one.column is not None]
    said = ", ".join(f"{one.written!r} as {one.column.name}" for one in columns if one.column)
    return f"nearest is a table of points, of which {said} is understood; it lacks {lacking(known_names(nearest))}"
