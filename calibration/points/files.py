"""Files that belong together: found in folders, recognised, read, those of one server as a series."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, cast

from calibration.readers import (
    LogReader,
    Reader,
    Reading,
    SeriesReader,
    SourceText,
    recognise_file,
)
from specmodel.errors import FormatError, ParameterError

PathLike: TypeAlias = Path | str

MAX_FILES: Final = 10_000
"""Most files of a folder that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one format that were read together, or one that could not be read."""

    format: str  # the format as recognised from the content; empty where none was
    files: tuple[Path, ...]  # in the order in which they were named
    readings: tuple[Reading, ...] = ()  # what they say; one for all files of a series
    error: FormatError | None = None  # why there is nothing
    named: bool = True  # whether the user named the file; otherwise it was found in a folder


def read_groups(
    paths: PathLike | Sequence[PathLike], *, progress: Callable[[int], None] | None = None
) -> tuple[FileGroup, ...]:
    """Return what some files and folders say, by groups of files that belong together.

    Files of one format are one group. Scrapes of a server's counters are a group for each server;
    a file that cannot be read is one by itself.
    """
    named = [paths] if isinstance(paths, Path | str) else list(paths)
    if not named:
        raise ParameterError("paths", "none", "one file or more")
    groups: dict[tuple[object, ...], list[_Opened]] = defaultdict(list)
    order: list[FileGroup | tuple[object, ...]] = []
    for path, is_named in files_of(named):
        opened = _open(path, is_named=is_named, progress=progress)
        if isinstance(opened, FileGroup):
            order.append(opened)
            continue
        key = (opened.reader.FORMAT, *opened.series)
        if key not in groups:
            order.append(key)
        groups[key].append(opened)
    result: list[FileGroup] = []
    for item in order:
        result += [item] if isinstance(item, FileGroup) else _read_group(groups[item])
    return tuple(result)


def files_of(paths: Sequence[PathLike]) -> tuple[tuple[Path, bool], ...]:
    """Return the files that are named or lie in named folders, each once."""
    found: dict[Path, bool] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            if not path.exists():  # said before anything is read, for nothing would say it later
                raise FormatError(path, "no such file; check the path", code="not_found")
            found[path] = True
            continue
        inside = _files_inside(path)
        if not inside:
            raise FormatError(path, "no file in this folder; name another one", code="no_files")
        for file in inside:
            found.setdefault(file, False)
    return tuple(found.items())


def _files_inside(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it, in the order of their names."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(names) if not name.startswith(".")]
        if len(found) > MAX_FILES:
            raise FormatError(
                folder,
                f"more than {MAX_FILES} files; name the ones to read",
                code="too_many_files",
            )
    return [path for path in found if path.is_file()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A file whose reader is known; `reading` is what it says by itself.

    The text is kept only where the format is read as a series: a folder may hold much of it.
    """

    path: Path
    is_named: bool
    reader: Reader | LogReader
    reading: Reading | FormatError
    series: tuple[str, ...] = ()
    source: SourceText | None = None


def _open(
    path: Path, *, is_named: bool, progress: Callable[[int], None] | None
) -> _Opened | FileGroup:
    """Return a file, recognised and read, or the group of a file that is of no format."""
    try:
        found = recognise_file(path, progress=progress)
    except FormatError as error:
        return FileGroup(format="", files=(path,), error=error, named=is_named)
    if progress is not None and isinstance(found.source, SourceText):
        progress(path.stat().st_size)  # a log tells by itself, as it is read
    series: tuple[str, ...] = ()
    reading: Reading | FormatError
    try:
        series = found.series
        reading = found.read()
    except FormatError as error:
        reading = error
    return _Opened(
        path=path,
        is_named=is_named,
        reader=found.reader,
        reading=reading,
        series=series,
        source=found.source if series and isinstance(found.source, SourceText) else None,
    )


def _read_group(opened: list[_Opened]) -> list[FileGroup]:
    """Return the group of some files of one format, and those of the files that are broken."""
    name = opened[0].reader.FORMAT
    if len(opened) > 1 and opened[0].series:
        return [_read_series(opened)]
    groups = [
        FileGroup(format=name, files=(one.path,), error=one.reading, named=one.is_named)
        for one in opened
        if isinstance(one.reading, FormatError)
    ]
    sound = [one for one in opened if isinstance(one.reading, Reading)]
    if sound:
        together = FileGroup(
            format=name,
            files=tuple(one.path for one in sound),
            readings=tuple(one.reading for one in sound if isinstance(one.reading, Reading)),
            named=any(one.is_named for one in sound),
        )
        groups.insert(0, together)
    return groups


def _read_series(opened: list[_Opened]) -> FileGroup:
    """Return the group of the moments of one server, or why they cannot be read together."""
    sources = [one.source for one in opened if one.source is not None]
    files = tuple(one.path for one in opened)
    name = opened[0].reader.FORMAT
    named = any(one.is_named for one in opened)
    try:
        reading = cast("SeriesReader", opened[0].reader).read_series(sources)
    except FormatError as error:
        return FileGroup(format=name, files=files, error=error, named=named)
    return FileGroup(format=name, files=files, readings=(reading,), named=named)
