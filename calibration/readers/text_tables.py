"""Tables in text: delimited with comments and quotes, or drawn with ``|``."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

# What may stand between the columns.
SEPARATORS = (",", ";", "\t")

_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR_LINE = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
_LONGEST_CELL_LINES = 500  # a quote that is not closed by then was none


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The cells of one row."""

    line: int  # line of the file in which it begins, 1-based
    cells: tuple[str, ...]  # as written, without the quotes and without white space at the ends

    @property
    def filled(self) -> bool:
        """Whether any cell holds something."""
        return any(self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A header and the records below it."""

    separator: str  # what separates the columns
    header: Record  # the first record
    records: tuple[Record, ...]  # the others that hold something


def split_table(text: str, is_known_name: Callable[[str], bool]) -> Table | None:
    """Return the records of a delimited text.

    Lines that begin with ``#`` and blank lines count for nothing. The separator is the one that
    a first line ``sep=;`` names, otherwise the one that splits the header into most columns with
    a known name, then into most columns.
    """
    lines = _LINE_END.split(text)
    numbered = _content_lines(lines)
    first = next(numbered, None)
    if first is None:
        return None
    named = _SEPARATOR_LINE.fullmatch(first[1])
    if named:
        first = next(numbered, None)
        if first is None:
            return None
        separator = named[1]
    else:
        separator = _best_separator(lines, first[0], is_known_name)
    records = _records(lines, first[0], separator)
    header = next(records)
    return Table(separator=separator, header=header, records=tuple(r for r in records if r.filled))


def _content_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the index and text of every line that is neither blank nor a comment."""
    for index, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            yield index, line


def _best_separator(lines: list[str], index: int, is_known_name: Callable[[str], bool]) -> str:
    """Return the separator that splits the header best."""

    def score(separator: str) -> tuple[int, int]:
        cells = next(_records(lines, index, separator)).cells
        return sum(map(is_known_name, cells)), len(cells)

    return max(SEPARATORS, key=score)


def _records(lines: list[str], index: int, separator: str) -> Iterator[Record]:
    """Yield the records from a line on; a quoted cell may hold line ends."""
    while index < len(lines):
        line = lines[index]
        if not line.strip() or line.lstrip().startswith("#"):
            index += 1
            continue
        if '"' not in line:
            yield Record(line=index + 1, cells=_stripped(line.split(separator)))
            index += 1
            continue
        count = _lines_in_quotes(lines, index)
        parsed = _parse(lines[index : index + count], separator) if count > 1 else None
        if parsed is None:
            count = 1
            parsed = _parse([line], separator) or [(0, line.split(separator))]
        for offset, cells in parsed:
            yield Record(line=index + offset + 1, cells=_stripped(cells))
        index += count


def _lines_in_quotes(lines: list[str], index: int) -> int:
    """Return over how many lines the quotes that open in a line run; 1 where they never close."""
    quotes = 0
    for count, line in enumerate(lines[index : index + _LONGEST_CELL_LINES], start=1):
        quotes += line.count('"')
        if quotes % 2 == 0:
            return count
    return 1


def _parse(lines: list[str], separator: str) -> list[tuple[int, list[str]]] | None:
    """Return offset and cells of each record in some lines, None where the quotes are broken."""
    reader = csv.reader(
        (line + "\n" for line in lines),
        delimiter=separator,
        skipinitialspace=separator != " ",
        strict=len(lines) > 1,
    )
    parsed = []
    offset = 0
    try:
        for cells in reader:
            parsed.append((offset, cells))
            offset = reader.line_num
    except csv.Error:
        return None
    return parsed


def _stripped(cells: list[str]) -> tuple[str, ...]:
    """Return the cells without white space at the ends."""
    return tuple(cell.strip() for cell in cells)


Headings: TypeAlias = tuple[str, ...]

_UNIT = re.compile(r"\([^()]*\)")
_RULE: Final = frozenset("-=:+| \t")
_EMPHASIS = "*` \t"
_MOST_CHARACTERS = 4000  # of a row; what is longer is no row of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeRow:
    """One row of a table."""

    line: int  # its line, 1-based
    cells: Mapping[str, str]  # by heading, as `heading` gives it
    is_complete: bool  # whether it has a cell for every heading


def heading(written: str) -> str:
    """Return a heading without its unit, emphasis and case."""
    return " ".join(_UNIT.sub(" ", written).strip(_EMPHASIS).casefold().split())


def has_table(text: str, is_known: Callable[[Headings], bool]) -> bool:
    """Return whether a text has a line of headings that are known."""
    return any(
        is_known(_headings(line)) for line in text.split("\n") if line.lstrip().startswith("|")
    )


def pipe_rows(text: str, is_known: Callable[[Headings], bool]) -> Iterator[PipeRow]:
    """Yield the rows of every table whose headings are known; other text is passed over."""
    headings: Headings = ()
    in_table = False
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped.startswith(("|", "+")) or len(stripped) > _MOST_CHARACTERS:
            in_table, headings = False, ()
            continue
        if _RULE.issuperset(stripped):
            continue
        found = _headings(stripped)
        if not in_table or is_known(found):
            in_table = True
            headings = found if is_known(found) else ()
            continue
        if headings:
            cells = _cells(stripped)
            yield PipeRow(
                line=number,
                cells=dict(zip(headings, cells, strict=False)),
                is_complete=len(cells) >= len(headings),
            )


def _headings(line: str) -> Headings:
    """Return what the cells of a line are called if it is a line of headings."""
    if len(line) > _MOST_CHARACTERS:
        return ()
    return tuple(heading(cell) for cell in _cells(line.strip()))


def _cells(line: str) -> list[str]:
    """Return the cells of a line that begins with a bar."""
    return [cell.strip(_EMPHASIS) for cell in line[1:].removesuffix("|").split("|")]
