"""Writing a file so that an interruption leaves the old one whole."""

import os
from pathlib import Path

from specmodel.errors import SpecModelError


class OutputError(SpecModelError, OSError):
    """A file cannot be written.

    Parameters
    ----------
    path : path
        The file.
    reason : str
        Why, and what to do.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"{path}: {reason}")


def write_text_atomically(path: Path | str, text: str) -> None:
    r"""Write a text file through a temporary file in the same folder.

    A reader of `path` finds the old content or the new one, never a part. A link is followed;
    what is no regular file (a pipe, ``/dev/stdout``) is written directly.

    Parameters
    ----------
    path : path
        The file, new or not. Its folder must exist.
    text : str
        The content, written in UTF-8 with the line ends that it has.

    Raises
    ------
    OutputError
        If the file cannot be written; nothing is left behind.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "calibration.json"
    ...     write_text_atomically(file, "{}\n")
    ...     file.read_text(), len(list(Path(folder).iterdir()))
    ('{}\n', 1)
    """
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path | str, data: bytes) -> None:
    """Write a file of bytes as `write_text_atomically` writes text.

    Parameters
    ----------
    path : path
        The file, new or not. Its folder must exist.
    data : bytes
        The content.

    Raises
    ------
    OutputError
        If the file cannot be written; nothing is left behind.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "fit.png"
    ...     write_bytes_atomically(file, bytes([137, 80]))
    ...     len(file.read_bytes())
    2
    """
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
            return
        _replace(target, data)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            path, f"cannot be written: {reason}; name a file in a folder that you can write to"
        ) from None


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
