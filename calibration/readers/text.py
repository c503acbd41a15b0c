"""Bytes of a file to text: encodings, compression, a bound on size; what may be shown of it."""

import codecs
import gzip
import io
import re
import zlib
from pathlib import Path

from calibration.readers.reading import SourceText
from specmodel.errors import FormatError
from specmodel.units import MEBI

# Largest content that is read, decompressed, [bytes]; a week of a server's log.
MAX_BYTES = 128 * MEBI

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # of zlib: a gzip header, the largest window
_KNOWN_BINARY = {
    b"PK\x03\x04": "a workbook or another zip archive; export the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old workbook; export the sheet as CSV",
    b"%PDF": "a PDF; export the table as CSV",
    b"PAR1": "a parquet file; export it as CSV",
    b"SQLite format 3": "a database; export the table as CSV",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it or use gzip",
    b"\xfd7zXZ": "compressed with xz; decompress it or use gzip",
    b"BZh": "compressed with bzip2; decompress it or use gzip",
}
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # tab, line ends, form feed, escape stay


def read_text(path: Path | str, *, max_bytes: int = MAX_BYTES) -> SourceText:
    """Return the text of a file: UTF-8, UTF-16 with a byte order mark, plain or gzip.

    Where carriage returns alone end the lines, line feeds take their place.

    Bytes that are no UTF-8 and hold no control characters are read as Windows-1252, the encoding
    of spreadsheets on many desktops, and marked as guessed.
    """
    path = Path(path)
    text, encoding = _decode(path, _content(path, max_bytes))
    if not text.strip():
        raise FormatError(path, "the file is empty", code="empty_file")
    return SourceText(
        path=path,
        text=text if "\n" in text else text.replace("\r", "\n"),
        encoding=encoding,
        guessed=encoding == "cp1252",
    )


def read_head(path: Path | str, num_bytes: int) -> str:
    """Return how a file begins, decompressed; bytes that are no text become U+FFFD."""
    head = _content(Path(path), num_bytes, cut=True)
    utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = head.decode("utf-16" if utf16 else "utf-8-sig", "replace")
    return text if "\n" in text else text.replace("\r", "\n")


def _content(path: Path, max_bytes: int, *, cut: bool = False) -> bytes:
    """Return the bytes of a file, decompressed and bounded; more than that is cut or refused."""
    if path.is_dir():
        raise FormatError(path, "this is a folder; name a file in it", code="not_a_file")
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise FormatError(path, "no such file; check the path", code="not_found") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(path, f"cannot be read: {reason}", code="unreadable") from None
    if data.startswith(_GZIP):
        try:
            data = _unpacked(data, max_bytes + 1, cut=cut)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(
                path, f"broken gzip file ({error}); compress it again", code="not_text"
            ) from None
    if cut:
        return data[:max_bytes]
    if len(data) > max_bytes:
        raise FormatError(
            path,
            f"more than {max_bytes // MEBI} MiB of content; cut it into smaller files",
            code="too_large",
        )
    return data


def _unpacked(data: bytes, size: int, *, cut: bool) -> bytes:
    """Return up to a number of bytes out of gzip data, which may themselves be cut."""
    if cut:
        return zlib.decompressobj(wbits=_GZIP_WINDOW).decompress(data, size)
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        return unpacked.read(size)


def _decode(path: Path, data: bytes) -> tuple[str, str]:
    """Return the text and the name of its encoding."""
    for magic, what in _KNOWN_BINARY.items():
        if data.startswith(magic):
            raise FormatError(path, f"this is not text but {what}", code="not_text")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        candidates = ["utf-16"]
    else:
        candidates = ["utf-8-sig", "cp1252"]
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not _CONTROL.search(text):
            return text, encoding
    raise FormatError(
        path,
        "this is not text; a table in UTF-8, or in UTF-16 with a byte order mark, is needed",
        code="not_text",
    )


_NAMED = re.compile(
    r"(?i)\b[\w-]*(?:(?:key|secret|passw(?:or)?d|credential|auth\w*|bearer)\b\W{0,4}"
    r"|token\b[\s\"']{0,3}[=:][\s\"']{0,3}|(?-i:(?<=_)TOKEN)\b\W{0,4})[^\s,;&]*"
)
_UNITS = r"(?:s|sec|seconds?|step|round|iter|token|tok|user|req|request|gpu|drafted|emitted)\b"
_LONG = re.compile(r"(?=[\w+/=.-]*\d)(?=[\w+/=.-]*[A-Za-z])[\w+=.-]{16,}")
_PATH = re.compile(rf"(?:[A-Za-z]:\\|~?/(?!{_UNITS}))[^\s,;'\"]*")
_MARK = "\N{HORIZONTAL ELLIPSIS}"


def redacted(text: str) -> str:
    """Return a text without what looks like a key, a token or a path."""
    for pattern in (_NAMED, _PATH, _LONG):
        text = pattern.sub(_MARK, text)
    return text
