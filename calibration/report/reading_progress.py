"""Progress of reading large files, on standard error, with the time that is left."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

QUIET_S = 2.0
"""Nothing is shown of what takes less, [s]."""


@contextmanager
def reading_progress(paths: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Show how far the reading of some files is, once it has taken two seconds.

    Parameters
    ----------
    paths : sequence of Path
        Files and folders that are about to be read.

    Yields
    ------
    callable
        To be told how many bytes have been read since it was told last.
    """
    columns = (
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=sum(_size(path) for path in paths) or None)
    begun = time.monotonic()
    shown = False

    def tell(num_bytes: int) -> None:
        nonlocal shown
        bar.update(task, advance=num_bytes)
        if not shown and time.monotonic() - begun > QUIET_S:
            bar.start()
            shown = True

    try:
        yield tell
    finally:
        if shown:
            bar.stop()


def _size(path: Path) -> int:
    """Return how many bytes a file has, or the files of a folder; 0 where that is not known."""
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path.stat().st_size
    except OSError:
        return 0
