"""The file of a drafter record: JSON with a checksum, whole when written, checked when read."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from specmodel.checked_json import JsonKind, load_checked_json, save_checked_json
from specmodel.errors import FormatError, ParameterError
from specmodel.measurement.draft_record import (
    SCHEMA_VERSION,
    Clocks,
    DraftRecord,
    DraftShapes,
    DraftTiming,
    ExtendTiming,
    KernelTiming,
    StepTiming,
)

Row = TypeVar("Row")

_AGAIN: Final = "run `specmodel drafter time` again to write a new one"
_KIND: Final = JsonKind(
    name="drafter record",
    schema_version=SCHEMA_VERSION,
    marks=("steps", "extends"),
    lacking="no times of steps and extend passes",
    write="`specmodel drafter time`",
    again=_AGAIN,
)
_FILE_KEYS: Final = ("schema_version", "content_sha256")
_ROWS: Final = {
    "steps": StepTiming,
    "extends": ExtendTiming,
    "drafts": DraftTiming,
    "kernels": KernelTiming,
}
_PARTS: Final = {"shapes": DraftShapes, "clocks_before": Clocks, "clocks_after": Clocks}
_TEXTS: Final = (
    "kind",
    "draft_model",
    "layout",
    "dtype",
    "device",
    "device_state",
    "torch_version",
    "triton_version",
    "package_version",
    "cache_state",
    "kernels_of",
)
_TEXT_LISTS: Final = ("substituted", "notes")


def save_record(record: DraftRecord, path: Path | str) -> None:
    """Write a record as JSON, so that an interruption leaves the old file whole."""
    save_checked_json({"schema_version": SCHEMA_VERSION, **asdict(record)}, path)


def load_record(path: Path | str, *, allow_dry: bool = False) -> DraftRecord:
    """Read a record; that of a dry run or of a hot cache predicts nothing and is read only if allowed."""
    content = load_checked_json(path, _KIND)
    try:
        record = _record(content)
        if not allow_dry:
            record.check_usable()
    except ParameterError as error:
        code = "not_usable" if error.name in {"kind", "cache_state"} else "edited"
        _refuse(path, str(error), code)
    return record


def _record(content: Mapping[str, Any]) -> DraftRecord:
    """The record in a file's content."""
    values = {name: value for name, value in content.items() if name not in _FILE_KEYS}
    _check_keys("the record", DraftRecord, values)
    for name, kind in _ROWS.items():
        rows = values.get(name)
        if not isinstance(rows, list):
            raise ParameterError(name, type(rows).__name__, "a list of rows")
        values[name] = tuple(_built(f"{name}[{i}]", kind, row) for i, row in enumerate(rows))
    for name, part in _PARTS.items():
        if values.get(name) is not None or name == "shapes":
            values[name] = _built(name, part, values.get(name))
    for name in _TEXT_LISTS:
        texts = values.get(name)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ParameterError(name, repr(texts)[:80], "a list of texts")
        values[name] = tuple(texts)
    for name in (*_TEXTS, "device_uuid", "driver"):
        value = values.get(name)
        if not isinstance(value, str) and (name in _TEXTS or value is not None):
            raise ParameterError(name, repr(value)[:80], "a text")
    return DraftRecord(**values)


def _built(place: str, kind: Callable[..., Row], values: object) -> Row:
    """A record or a row from its keys, none unknown and none missing."""
    if not isinstance(values, Mapping):
        raise ParameterError(place, type(values).__name__, "an object with keys")
    _check_keys(place, kind, values)
    try:
        return kind(**values)
    except ParameterError as error:
        name = f"{place}: {error.name}"
        raise ParameterError(name, error.value, error.allowed, error.hint) from None


def _check_keys(place: str, kind: Callable[..., object], values: Mapping[str, Any]) -> None:
    """Refuse keys that are unknown or missing."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ParameterError(f"keys of {place}", unknown[0], f"among {', '.join(known)}")
    for name, field in known.items():
        if name not in values and field.default is MISSING:
            raise ParameterError(place, f"no {name}", f"an object with {name}")


def _refuse(path: Path | str, reason: str, code: str) -> NoReturn:
    """Say what is wrong and what to do."""
    raise FormatError(path, f"{reason}; {_AGAIN}", code=code) from None
