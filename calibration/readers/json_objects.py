r"""The objects of a JSON file, however they were written together: one, a list, or one a line."""

from typing import Final

from calibration.readers.findings import Findings
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    JsonRecords,
    broken_json,
    json_records,
)
from calibration.readers.reading import SourceText

MALFORMED_JSON: Final = "malformed_json"
"""Code of a text that starts like JSON and does not parse."""


def json_objects(source: SourceText, findings: Findings) -> tuple[JsonRecord, ...]:
    r"""Return the objects of a file: alone, in a list, one a line, or several lists appended.

    Parameters
    ----------
    source : SourceText
        The text of the file.
    findings : Findings
        Told the lines that begin a value which does not parse.

    Returns
    -------
    tuple of JsonRecord
        The objects, each with the line on which it or its list begins. Numbers and texts between
        them are nothing.

    Raises
    ------
    FormatError
        With code ``malformed_json``: no object parses, or the list with which the file begins is
        cut off, so that nobody knows how much is missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> text = '[{"a": 1}, {"a": 2}]\n[{"a": 3}]\n{"a": '
    >>> source = SourceText(path=Path("a.json"), text=text, encoding="utf-8")
    >>> findings = Findings(source.path, {})
    >>> [record.value["a"] for record in json_objects(source, findings)]
    [1, 2, 3]
    """
    found = json_records(source)
    first = source.text.lstrip("\N{BYTE ORDER MARK} \t\r\n")
    earliest = min((record.line for record in found.records), default=None)
    cut_list = first.startswith("[") and bool(found.broken) and _comes_first(found, earliest)
    objects = tuple(
        JsonRecord(line=record.line, value=value)
        for record in found.records
        for value in (record.value if isinstance(record.value, list) else (record.value,))
        if isinstance(value, dict)
    )
    if found.broken and (cut_list or not objects):
        raise broken_json(
            source, found.broken[0], "a value that is not closed", code=MALFORMED_JSON
        )
    findings.drop_cut_off(found.broken, CUT_OFF)
    return objects


def _comes_first(found: JsonRecords, earliest: int | None) -> bool:
    """Return whether the first value of a file is one that does not parse."""
    return earliest is None or found.broken[0] < earliest
