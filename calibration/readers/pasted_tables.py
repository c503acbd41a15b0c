"""Tables as people paste them: drawn with bars or aligned, in a page of prose, on their side."""

from typing import Final

from calibration.readers.points_csv import about_points, known_names, read_tables
from calibration.readers.reading import Reading, SourceText
from calibration.readers.text_tables import Table, page_tables, transposed

FORMAT: Final = "pasted_table"


def recognise(head: str) -> bool:
    """Return whether a text has a table with a column of speeds, and one of acceptance or depth."""
    return bool(_tables(head))


def read(source: SourceText) -> Reading:
    """Return the rows of all such tables of a page."""
    return read_tables(source, _tables(source.text), FORMAT)


def _tables(text: str) -> list[Table]:
    """Return the tables of a page that are about points, upright."""
    upright = []
    for table in page_tables(text):
        known = {one: known_names(one) for one in (table, transposed(table))}
        best = max(known, key=lambda one: len(known[one]))
        if about_points(known[best]):
            upright.append(best)
    return upright
