"""Files of ours: whole when written, also when interrupted; refused in one line where they are not sound."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from specmodel.errors import FormatError, SpecModelError

STANDARD_OUTPUT: Final = "-"
"""Name of the file that is standard output."""

_CHECKSUM: Final = "content_sha256"
_VERSION: Final = "schema_version"


class OutputError(SpecModelError, OSError):
    """A file cannot be written; `reason` says why, and what to do."""

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"{path}: {reason}")


def write_text_atomically(path: Path | str, text: str) -> None:
    r"""Write text in UTF-8 through a temporary file in the same folder, which must exist.

    A reader of `path` finds the old content or the new one, never a part. A link is followed; what is no
    regular file (a pipe, ``/dev/stdout``) is written directly. Raises `OutputError`, leaving nothing behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "calibration.json"
    ...     write_text_atomically(file, "{}\n")
    ...     file.read_text(), len(list(Path(folder).iterdir()))
    ('{}\n', 1)
    """
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path | str, data: bytes) -> None:
    """Write bytes as `write_text_atomically` writes text; ``-`` is standard output."""
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
            return
        _replace(target, data)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        why = f"cannot be written: {reason}; name a file in a folder that you can write to"
        raise OutputError(path, why) from None


def _replace(target: Path, data: bytes) -> None:
    """Put the data in place of a file, or leave everything as it was."""
    import secrets

    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class CheckedJson(NamedTuple):
    """A kind of file with a schema version and a checksum over its content."""

    name: str
    schema_version: int  # the newest that this release reads
    marks: tuple[str, ...]  # keys of which such a file has one at least
    lacking: str  # said of a file that has none of them
    write: str  # what writes one
    again: str  # what to do about a damaged one

    def save(self, path: Path | str, record: Mapping[str, Any]) -> None:
        """Write a record of plain JSON; raises `OutputError`."""
        content = {_VERSION: self.schema_version, **record}
        content[_CHECKSUM] = checksum(content)
        write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def load(self, path: Path | str) -> tuple[int, dict[str, Any]]:
        """Schema version and record of a file; raises `FormatError` where it is not whole or not ours."""
        record = self._content(path)
        if not isinstance(record, dict) or _VERSION not in record:
            message = f"not a {self.name}: no {_VERSION}; {self.again}"
            raise FormatError(path, message, code=f"not_a_{self.name.split()[-1]}")
        if not any(mark in record for mark in self.marks):
            message = f"not a {self.name}: {self.lacking}; {self.again}"
            raise FormatError(path, message, code="other_json")
        version = record[_VERSION]
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            message = f"{_VERSION} must be a whole number from 1, got {version!r}; {self.again}"
            raise FormatError(path, message, code="edited")
        if version > self.schema_version:
            newer = f"{_VERSION} {version} is newer than this release reads ({self.schema_version})"
            message = f"{newer}; upgrade specmodel, or {self.again}"
            raise FormatError(path, message, code="newer_schema")
        if record.get(_CHECKSUM) != checksum(record):
            message = "the checksum does not fit the content: truncated or edited by hand"
            raise FormatError(path, f"{message}; {self.again}", code="edited")
        return version, {key: record[key] for key in record if key not in {_VERSION, _CHECKSUM}}

    def _content(self, path: Path | str) -> Any:
        """What a file holds, or one line on why it cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            message = f"no such file; write one with {self.write}"
            raise FormatError(path, message, code="not_found") from None
        except UnicodeDecodeError:
            message = f"not a {self.name}: the content is not text"
            raise FormatError(path, message, code="not_text") from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            reason = getattr(error, "strerror", None) or str(error)
            raise FormatError(path, f"cannot be read: {reason}", code="unreadable") from None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            line = getattr(error, "lineno", None)
            reason = getattr(error, "msg", "nested too deep or a number too long")
            message = f"not valid JSON ({reason}); truncated? {self.again}"
            raise FormatError(path, message, line=line, code="not_json") from None


def checksum(record: Mapping[str, Any]) -> str:
    """Hash of everything in a record but its hash, whatever the order of keys."""
    import hashlib  # a prediction from the packaged prior reads no such file

    content = {key: value for key, value in record.items() if key != _CHECKSUM}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
