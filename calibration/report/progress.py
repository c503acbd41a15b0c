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

from specmodel.units import MEGA

QUIET_S = 2.0
"""Nothing is shown of what takes less, [s]."""

LINE_S = 10.0
"""Time between two lines where there is no terminal to draw a bar on, [s]."""


@contextmanager
def reading_progress(paths: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Show how far the reading of some files is, once it has taken two seconds."""
    console = Console(stderr=True)
    total = sum(_size(path) for path in paths)
    with _bar(console, total) if console.is_terminal else _lines(console, total) as tell:
        yield tell


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    """Draw a bar that is gone when everything is read."""
    columns = (
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=total or None)
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


@contextmanager
def _lines(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    """Write a line now and then."""
    begun = time.monotonic()
    said = begun + QUIET_S - LINE_S
    read = 0

    def tell(num_bytes: int) -> None:
        nonlocal said, read
        read += num_bytes
        now = time.monotonic()
        if now - said > LINE_S and 0 < read < total:
            said = now
            console.print(_line(read, total, now - begun), highlight=False)

    yield tell


def _line(read: int, total: int, elapsed_s: float) -> str:
    """Return how far the reading is, how fast, and how long it still takes.

    Examples
    --------
    >>> _line(500_000_000, 2_000_000_000, 4.0)
    'reading: 25 % of 2000 MB, 125 MB/s, 12 s left'
    """
    speed = read / elapsed_s
    left_s = (total - read) / speed
    return (
        f"reading: {read / total:.0%} of {total / MEGA:.0f} MB, ".replace("%", " %")
        + f"{speed / MEGA:.0f} MB/s, {left_s:.0f} s left"
    )


def _size(path: Path) -> int:
    """Return how many bytes a file has, or the files of a folder; 0 where that is not known."""
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path.stat().st_size
    except OSError:
        return 0
