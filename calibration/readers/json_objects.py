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

# Code of a text that starts like JSON and does not parse.
MALFORMED_JSON: Final = "malformed_json"


def json_objects(source: SourceText, findings: Findings) -> tuple[JsonRecord, ...]:
    """Return the objects of a file: alone, in a list, one a line, or several lists appended."""
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
