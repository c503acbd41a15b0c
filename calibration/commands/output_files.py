"""Files to write, checked before anything is computed: reachable, and not what is read."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from specmodel.files import OutputError

_STANDARD_STREAMS = {1: "standard output", 2: "standard error"}


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    r"""Refuse outputs that cannot be written, that are inputs, or that are one another.

    Parameters
    ----------
    outputs : sequence of path or None
        To be written; None for one that was not asked for.
    inputs : sequence of path or None
        Read by the same command.

    Raises
    ------
    OutputError
        Before anything is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench = Path(folder) / "bench.csv"
    ...     _ = bench.write_text("accept_length,throughput,baseline\n2.1,82.3,90.0\n")
    ...     check_outputs([bench.with_suffix(".png"), None], [bench])
    """
    wanted = [path for path in outputs if path is not None]
    for place, path in enumerate(wanted):
        try:
            reason = _obstacle(path)
            same = any(_same(path, one) for one in inputs if one is not None)
            twice = any(_same(path, one) for one in wanted[:place])
            stream = _stream(path)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            raise OutputError(
                path, f"cannot be written: {reason}; name a file in a folder that you can write to"
            )
        if same:
            raise OutputError(path, "is read by this command and would be lost; name another file")
        if twice:
            raise OutputError(path, "would be written twice; name two files")
        if stream:
            raise OutputError(path, f"is {stream}, where the report goes; name a file")


def _obstacle(path: Path) -> str:
    """Why no file can be written at a place; empty where one can."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder"
    if _stream(path):  # a pipe has no folder
        return ""
    folder = target.parent
    if not folder.is_dir():
        return f"{folder} {'is no folder' if folder.exists() else 'does not exist'}"
    if not target.exists() and not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write in {folder}"
    with contextlib.suppress(FileNotFoundError):
        target.lstat()  # a name may be too long
    return ""


def _same(path: Path, other: Path) -> bool:
    """Whether two paths are one file, which need not exist yet."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)


def _stream(path: Path) -> str:
    """Name of the standard stream that a path is; empty where it is none, or nowhere."""
    if not path.exists() or path.samefile(os.devnull):
        return ""
    status = path.stat()
    for descriptor, name in _STANDARD_STREAMS.items():
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return name
        except OSError:  # closed
            continue
    return ""
