"""Files that belong together: found in folders, recognised, read, those of one server as a series."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from calibration.readers import LogReader, Reader, Reading, SeriesReader, SourceText, recognise_file
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
    for path, is_named in files_of(named):
        one = _open(path, is_named=is_named, progress=progress)
        known = (one.group.format, *one.series)
        groups[known if one.reader is not None else (path,)].append(one)
    return tuple(group for opened in groups.values() for group in _together(opened))


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
                folder, f"more than {MAX_FILES} files; name the ones to read", code="too_many_files"
            )
    return [path for path in found if path.is_file()]


class _Opened(NamedTuple):
    """A file by itself; its text is kept only where the format is read as a series."""

    group: FileGroup
    reader: Reader | LogReader | None = None  # None where the file is of no format
    series: tuple[str, ...] = ()
    source: SourceText | None = None


def _open(path: Path, *, is_named: bool, progress: Callable[[int], None] | None) -> _Opened:
    """Return a file, recognised and read."""
    try:
        found = recognise_file(path, progress=progress)
    except FormatError as error:
        return _Opened(FileGroup(format="", files=(path,), error=error, named=is_named))
    if progress is not None and isinstance(found.source, SourceText):
        progress(path.stat().st_size)  # a log tells by itself, as it is read
    group = FileGroup(format=found.reader.FORMAT, files=(path,), named=is_named)
    series: tuple[str, ...] = ()
    try:
        series = found.series
        group = replace(group, readings=found.read())
    except FormatError as error:
        group = replace(group, error=error)
    source = found.source if series and isinstance(found.source, SourceText) else None
    return _Opened(group, found.reader, series, source)


def _together(opened: list[_Opened]) -> list[FileGroup]:
    """Return files of one format as one group, those of one server as a series; broken ones apart."""
    groups = [one.group for one in opened]
    is_series = len(opened) > 1 and bool(opened[0].series)
    sound = [group for group in groups if is_series or group.error is None]
    broken = [group for group in groups if not is_series and group.error is not None]
    if not sound:
        return broken
    together = replace(
        sound[0],
        files=tuple(file for group in sound for file in group.files),
        readings=tuple(reading for group in sound for reading in group.readings),
        named=any(group.named for group in sound),
    )
    if is_series:
        sources = [one.source for one in opened if one.source is not None]
        together = replace(together, readings=(), error=None)
        try:
            reading = cast("SeriesReader", opened[0].reader).read_series(sources)
            together = replace(together, readings=(reading,))
        except FormatError as error:
            together = replace(together, error=error)
    return [together, *broken]
