"""Progress while files are read, where there is so much that somebody would wait."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from specmodel.units import MEBI

_LARGE_BYTES = 16 * MEBI


@contextmanager
def progress_of(paths: Sequence[Path]) -> Iterator[Callable[[int], None] | None]:
    """Show the progress of reading some files; nothing, and nothing is loaded, where they are small.

    Parameters
    ----------
    paths : sequence of Path
        Files and folders that are about to be read.

    Yields
    ------
    callable or None
        To be told how many bytes have been read since it was told last.
    """
    if not any(_is_large(path) for path in paths):
        yield None
        return
    from calibration.report.reading_progress import reading_progress

    with reading_progress(paths) as tell:
        yield tell


def _is_large(path: Path) -> bool:
    """Return whether a file may take a while; a folder may hold anything."""
    try:
        return path.is_dir() or path.stat().st_size > _LARGE_BYTES
    except (OSError, ValueError):  # ValueError: a zero byte in the path
        return False
