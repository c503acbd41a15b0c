"""JSON as engines and people write it: one value, one a line, or appended; and what is cut off."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from calibration.readers.findings import Findings
from calibration.readers.reading import SourceText
from specmodel.errors import FormatError

# Code of a text that starts like JSON and does not parse.
BAD_JSON: Final = "bad_json"

# What is said of a value that is left out because it does not parse.
CUT_OFF: Final = "no complete JSON: cut off or half written"

_KEY = re.compile(r'"([A-Za-z_][\w./% -]{0,79})"\s*:', re.ASCII)
_BEGIN = re.compile(  # a log begins with a bracket too: [2026-01-05 11:00:00]
    r'\{\s*["}]|\[\s*(?:[\[{"\]]|(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|null|true|false)\s*[,\]])',
    re.ASCII,
)
_MOST_DIGITS = 18
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecord:
    """One JSON value of a file."""

    line: int  # line on which it begins, 1-based
    value: Any  # what it is: for most formats a mapping

    @property
    def fields(self) -> Mapping[str, Any]:
        """The value where it is an object, else an empty one."""
        return self.value if isinstance(self.value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecords:
    """The JSON values of a file."""

    records: tuple[JsonRecord, ...]  # in the order of the file
    broken: tuple[int, ...] = ()  # lines on which one begins that does not parse


@lru_cache(maxsize=4)
def json_keys(head: str) -> frozenset[str]:
    """Return the names of the fields in a text that begins like JSON, empty in any other text.

    Does not parse, so the text may be cut anywhere.
    """
    if not _BEGIN.match(head.lstrip("\N{BYTE ORDER MARK} \t\r\n")):
        return frozenset()
    return frozenset(_KEY.findall(head))


def json_value(source: SourceText, *, code: str = BAD_JSON) -> Any:
    """Return the one JSON value that a file is."""
    try:
        return _DECODER.decode(source.text.lstrip("\N{BYTE ORDER MARK}"))
    except json.JSONDecodeError as error:
        raise broken_json(source, error.lineno, error.msg, code=code) from None
    except (RecursionError, ValueError) as error:
        raise broken_json(source, 1, _reason(error), code=code) from None


def json_records(source: SourceText) -> JsonRecords:
    """Return the JSON values of a file: one, one a line, or several one after the other.

    The elements of a single list count as values. A value that does not parse is skipped up to the
    next line that begins with ``{`` or ``[``.
    """
    text = source.text
    records: list[JsonRecord] = []
    broken: list[int] = []
    place, line = 0, 1
    while True:
        found = _VALUE.search(text, place)
        start = found.start() if found else -1
        if start < 0:
            break
        line += text.count("\n", place, start)
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (RecursionError, ValueError):
            broken.append(line)
            end = _next_start(text, start)
        else:
            alone = not place and isinstance(value, list) and not text[end:].strip()
            values = value if alone else [value]
            records += [JsonRecord(line=line, value=element) for element in values]
        line += text.count("\n", start, end)
        place = end
    return JsonRecords(records=tuple(records), broken=tuple(broken))


def json_records_or_refuse(source: SourceText, *, code: str = BAD_JSON) -> JsonRecords:
    """Return the JSON values of a file, of which at least one must parse."""
    found = json_records(source)
    if not found.records:
        json_value(source, code=code)
        raise broken_json(source, 1, "no value", code=code)
    return found


def broken_json(source: SourceText, line: int, reason: str, *, code: str = BAD_JSON) -> FormatError:
    """Return the error of a text that starts like JSON and does not parse."""
    return FormatError(
        source.path,
        f"starts like JSON but does not parse ({reason}); is it cut off?",
        line=line,
        code=code,
    )


def number_at(value: Any, *keys: str) -> float | None:
    """Return a finite number at a path of keys, None where there is none.

    A number written as text counts, ``true`` does not.
    """
    found = at(value, *keys)
    if isinstance(found, bool):
        return None
    if isinstance(found, str):
        try:
            found = float(found) if len(found) <= _SHOWN else None
        except ValueError:
            return None
    if not isinstance(found, int | float):
        return None
    return float(found) if math.isfinite(found) else None


def positive_at(value: Any, *keys: str) -> float | None:
    """Return a finite number above zero at a path of keys, None where there is none."""
    found = number_at(value, *keys)
    return found if found is not None and found > 0 else None


def text_at(value: Any, *keys: str) -> str | None:
    """Return a text at a path of keys, None where there is none or it is empty."""
    found = at(value, *keys)
    return found.strip() or None if isinstance(found, str) else None


def numbers_at(value: Any, *keys: str) -> tuple[float, ...] | None:
    """Return a list of finite numbers at a path of keys, None where there is none."""
    found = at(value, *keys)
    if not isinstance(found, list):
        return None
    numbers = [float(n) for n in found if isinstance(n, int | float) and not isinstance(n, bool)]
    return (
        tuple(numbers) if len(numbers) == len(found) and all(map(math.isfinite, numbers)) else None
    )


def at(value: Any, *keys: str) -> Any:
    """Return what stands at a path of keys, None where one is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _whole(digits: str) -> int | float:
    """Return a whole number; one that no counter can reach as a float."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)


_VALUE = re.compile(r"[^\s,\N{BYTE ORDER MARK}]")


def _next_start(text: str, place: int) -> int:
    """Return where the next line begins that may be a value, the end where there is none."""
    found = _START.search(text, place + 1)
    return found.start() if found else len(text)


_START = re.compile(r"(?<=\n)[{\[]")


def _reason(error: Exception) -> str:
    """Return why a text does not parse, in words."""
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:_SHOWN]


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
