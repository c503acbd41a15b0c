"""JSON files of ours: whole when written, and when read refused in one line where they are not sound."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from specmodel.atomic_file import write_text_atomically
from specmodel.errors import FormatError

_CHECKSUM: Final = "content_sha256"
_VERSION: Final = "schema_version"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonKind:
    """A kind of file.

    Parameters
    ----------
    name : str
        What such a file is called.
    schema_version : int
        Newest layout that this release reads, [-].
    marks : tuple of str
        Keys of which such a file has one at least.
    lacking : str
        Said of a file that has none of them.
    write : str
        What writes one.
    again : str
        What to do about a damaged one.

    Examples
    --------
    >>> JsonKind(name="calibration", schema_version=1, marks=("covariance",), lacking="no constants",
    ...          write="`specmodel fit`", again="fit again").schema_version
    1
    """

    name: str
    schema_version: int
    marks: tuple[str, ...]
    lacking: str
    write: str
    again: str


def save_checked_json(record: Mapping[str, Any], path: Path | str) -> None:
    r"""Write a record with its checksum, so that an interruption leaves the old file whole.

    .. math:: \text{load}(\text{save}(r)) = r

    Parameters
    ----------
    record : mapping
        Plain numbers, strings, lists and dicts.
    path : path
        The file; its folder must exist.

    Raises
    ------
    OutputError
        If the file cannot be written; nothing is left behind.

    Notes
    -----
    The checksum tells a truncated or edited file from a whole one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checked_json({"schema_version": 1}, Path(folder) / "file.json")
    """
    content = {**record, _CHECKSUM: checksum(record)}
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def load_checked_json(path: Path | str, kind: JsonKind) -> dict[str, Any]:
    r"""Read a record whose checksum fits.

    .. math:: \text{file} \mapsto r

    Parameters
    ----------
    path : path
        The file.
    kind : JsonKind
        What it must be.

    Returns
    -------
    dict
        With its checksum and schema version.

    Raises
    ------
    FormatError
        If the file is missing, no JSON, of another kind, of a newer schema, truncated or edited.

    Notes
    -----
    A newer schema is refused with its version named, so that nothing is read wrongly.

    Examples
    --------
    >>> kind = JsonKind(name="record", schema_version=1, marks=("a",), lacking="no a", write="me", again="-")
    >>> load_checked_json("nowhere.json", kind)
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: nowhere.json: no such file; write one with me
    """
    record = _content(path, kind)
    if not isinstance(record, dict) or _VERSION not in record:
        message = f"not a {kind.name}: no {_VERSION}; {kind.again}"
        raise FormatError(path, message, code=f"not_a_{kind.name.split()[-1]}")
    if not any(mark in record for mark in kind.marks):
        message = f"not a {kind.name}: {kind.lacking}; {kind.again}"
        raise FormatError(path, message, code="other_json")
    version = record[_VERSION]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        message = f"{_VERSION} must be a whole number from 1, got {version!r}; {kind.again}"
        raise FormatError(path, message, code="edited")
    if version > kind.schema_version:
        raise FormatError(
            path,
            f"{_VERSION} {version} is newer than this release reads ({kind.schema_version}); "
            f"upgrade specmodel, or {kind.again}",
            code="newer_schema",
        )
    if record.get(_CHECKSUM) != checksum(record):
        message = "the checksum does not fit the content: truncated or edited by hand"
        raise FormatError(path, f"{message}; {kind.again}", code="edited")
    return record


def checksum(record: Mapping[str, Any]) -> str:
    r"""Hash of everything in a record but its hash.

    .. math:: \text{SHA-256}

    Parameters
    ----------
    record : mapping
        Plain JSON.

    Returns
    -------
    str
        Hexadecimal.

    Notes
    -----
    The order of keys does not matter.

    Examples
    --------
    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1, "content_sha256": ""})
    True
    """
    content = {key: value for key, value in record.items() if key != _CHECKSUM}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _content(path: Path | str, kind: JsonKind) -> Any:
    """What a file holds, or one line on why it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"no such file; write one with {kind.write}"
        raise FormatError(path, message, code="not_found") from None
    except UnicodeDecodeError:
        message = f"not a {kind.name}: the content is not text"
        raise FormatError(path, message, code="not_text") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(path, f"cannot be read: {reason}", code="unreadable") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", "nested too deep or a number too long")
        message = f"not valid JSON ({reason}); truncated? {kind.again}"
        raise FormatError(path, message, line=line, code="not_json") from None
