"""The blocks that clients print at the end of a run: labels and values under a title."""

import re
from collections.abc import Iterator
from typing import Final

from calibration.readers.formats import messages
from calibration.readers.json_text import JsonRecord
from calibration.readers.log_file import without_escapes

SERVING: Final = "serving benchmark result"

_TITLE = re.compile(r"={3,} ?([A-Za-z][A-Za-z ]{3,60}?) ?={3,}")
_END = re.compile(r"={10,}")
_LINE = re.compile(r"([A-Za-z][^:]{2,60}?)\s*:\s+(\S.{0,200})")
_POSITION = re.compile(r"position (\d{1,2})")
_HINT = re.compile("Serving Benchmark Result|Successful requests")
_FIRST_LABEL = "successful requests"  # of a block whose title was not pasted
_QUOTE = "> \t|`"
_LONGEST_LINE = 400


def serving_labels(head: str) -> frozenset[str]:
    """Return the labels of the blocks of results of serving in a text."""
    return frozenset(label for _, fields in _blocks(head) for label in fields)


def serving_records(text: str, format_name: str) -> tuple[JsonRecord, ...]:
    """Return each block as the JSON that the same client writes; labels are data of the format."""
    names = messages(format_name, "console")
    records = []
    for line, fields in _blocks(text):
        value: dict[str, object] = {}
        rates = {}
        for label, written in fields.items():
            try:
                number: object = float(written.replace(",", "").removesuffix("%"))
            except ValueError:
                number = written
            position = _POSITION.fullmatch(label)
            if position and isinstance(number, float):
                rates[int(position[1])] = number / 100
            elif label in names:
                value[names[label]] = number
        if rates:
            value[names["position"]] = [rates[place] for place in sorted(rates)]
        records.append(JsonRecord(line=line, value=value))
    return tuple(records)


def _blocks(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line on which a block begins, and its values by label in lower case."""
    block: tuple[int, dict[str, str]] | None = None
    lines = text.split("\n") if _HINT.search(text) else []
    for number, written in enumerate(lines, start=1):
        line = without_escapes(written).strip().strip(_QUOTE)
        title = _TITLE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        if title or _END.fullmatch(line):
            if block is not None and block[1]:
                yield block
            block = (number, {}) if title and title[1].casefold() == SERVING else None
            continue
        found = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        if found is not None:
            label = found[1].casefold()
            if block is None and label == _FIRST_LABEL:
                block = (number, {})
            if block is not None:
                block[1].setdefault(label, found[2].strip())
    if block is not None and block[1]:
        yield block
