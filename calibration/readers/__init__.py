"""Readers: one file per input format, from a file to rows in canonical columns.

A reader is a module with ``FORMAT``, ``recognise(head)`` and ``read(source)``; a new one takes its
place in `READERS`, before those that accept more. Readers fit nothing and print nothing.
"""

from pathlib import Path
from typing import Final

from calibration.readers import points_csv
from calibration.readers.columns import CANONICAL_NAMES, NUMBER_NAMES, TEXT_NAMES
from calibration.readers.header import canonical_name
from calibration.readers.reading import (
    ORIGIN_NAMES,
    Cell,
    Dropped,
    PointWarning,
    Reader,
    Reading,
    Row,
    SourceText,
    format_lines,
)
from calibration.readers.text import read_text
from specmodel.errors import FormatError

__all__ = [
    "CANONICAL_NAMES",
    "NUMBER_NAMES",
    "ORIGIN_NAMES",
    "READERS",
    "TEXT_NAMES",
    "Cell",
    "Dropped",
    "PointWarning",
    "Reader",
    "Reading",
    "Row",
    "SourceText",
    "canonical_name",
    "format_lines",
    "read_file",
    "read_text",
]

READERS: Final[tuple[Reader, ...]] = (points_csv,)
"""Every format, the most particular first."""

_HEAD_CHARACTERS = 65536


def read_file(path: Path | str) -> Reading:
    r"""Return what a file says, in whatever known format it is.

    Parameters
    ----------
    path : path
        The file; its name does not matter, its content does.

    Returns
    -------
    Reading
        At least one row, the dropped ones with reasons, and warnings.

    Raises
    ------
    FormatError
        Where the file cannot be read, is of no known format (code ``unknown_format``), or has no
        usable row.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     read_file(bench).rows[0].cells["accept_length"]
    2.1
    """
    source = read_text(path)
    head = source.text[:_HEAD_CHARACTERS]
    for reader in READERS:
        if reader.recognise(head):
            return reader.read(source)
    raise _unknown(source, head)


def _unknown(source: SourceText, head: str) -> FormatError:
    """Return the error of a file that no reader takes."""
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("#")), None)
    if first is None:
        return FormatError(source.path, "nothing but comments", code="empty_file")
    hint = "a table needs a header with accept_length (or acc_length, tau, full_accuracy, ...) and "
    hint += "a throughput, separated by commas, semicolons or tabs"
    commented = (line.lstrip("# ") for line in lines if line.startswith("#"))
    if any(points_csv.recognise(line) for line in commented):
        hint = "its header stands behind a #, which makes it a comment; take the # off"
    shown = first if len(first) <= 60 else first[:57] + "..."
    return FormatError(
        source.path, f"unknown format: it begins with {shown!r}; {hint}", code="unknown_format"
    )
