"""Tables in text: delimited with comments and quotes, or drawn with ``|``."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeAlias

# What may stand between the columns.
SEPARATORS = (",", ";", "\t")

_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR_LINE = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
_MOST_NAMES = 1000  # of a header, to find out what separates them
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
    title: str = ""  # the line of words above it


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
        return sum(map(is_known_name, cells[:_MOST_NAMES])), len(cells)

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
_RULE: Final = frozenset("-=:+| \t\u2500\u2550\u253c\u256a\u2501")
_BARS = str.maketrans(dict.fromkeys("\u2502\u2503\u2551\u2506\uff5c", "|"))
_CORNERS = frozenset("\u250c\u251c\u2514\u2554\u2560\u255a\u250f\u2523\u2517\u256d\u2570")
_EMPHASIS = "*` \t"
_GAP = re.compile(r"\t+|[ \u3000]{2,}")
_PAIR = re.compile(
    r"([A-Za-z][\w/.-]{0,40})[ ]?[=:][ ]*([+~-]?\d(?:[\d.,]*\d)?(?:[ ]?[%x]|[ ]?tok/s|[ ]?ms)?)"
    r"(?=[\s,;|:)]|$)"
)
_FEW_PAIRS = 2
_HTML_ROW = re.compile(r"<tr[^<>]{0,200}>((?:(?!<tr).){0,4000}?)</tr>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<t[hd][^<>]{0,200}>(.*?)</t[hd]>", re.DOTALL | re.IGNORECASE)
_MOST_CHARACTERS = 4000  # of a row; what is longer is no row of a table


def heading(written: str) -> str:
    """Return a heading without its unit, emphasis and case."""
    return " ".join(_UNIT.sub(" ", written).strip(_EMPHASIS).casefold().split())


def page_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a page: those drawn with bars, and those whose columns stand aligned.

    The header is the row above a rule of bars and hyphens; without one, the first row.
    """
    bare = _HTML_ROW.sub(_html_row, text) if "<t" in text else text
    lines = [line.translate(_BARS).strip() for line in _LINE_END.split(bare)]
    title = ""
    numbered = [(line, number) for number, line in enumerate(lines, start=1)]
    for kind, some in groupby(numbered, key=lambda one: _kind(one[0])):
        block: list[list[Record]] = [[]]  # the rows of each table
        ruled = kind != "bars"
        for line, number in some if kind else ():
            if line[0] in _CORNERS or _RULE.issuperset(line):
                ruled = True
                if "|" in line and len(block[-1]) > 1:
                    block.append([block[-1].pop()])
                continue
            ruled |= line.startswith("|")
            pairs = _PAIR.findall(line) if kind == "aligned" else []
            if len(pairs) > _FEW_PAIRS:  # name=value, as scripts print them
                names, values = zip(*pairs, strict=True)
                rest = _PAIR.sub("", line).strip(" :|,-")
                if not block[-1] or block[-1][0].cells != ("run", *names):
                    block.append([Record(line=number, cells=("run", *names))])
                block[-1].append(Record(line=number, cells=(rest, *values)))
                continue
            cells = _cells(line) if kind == "bars" else tuple(_GAP.split(line))
            block[-1].append(Record(line=number, cells=cells))
        for rows in block:
            same = [rows] if kind == "bars" else [[*of] for _, of in groupby(rows, _num_cells)]
            if kind == "aligned" and len(same) == 2 and _is_indexed(*same):
                header = replace(same[0][0], cells=("", *same[0][0].cells))
                same = [[header, *same[1]]]
            for header, *records in same if ruled and rows else ():
                if kind == "bars" or (records and len(header.cells) > 1):
                    cells = (header.cells[0] or "run", *header.cells[1:])  # a corner names the runs
                    yield Table(
                        separator="|" if kind == "bars" else " ",
                        header=Record(line=header.line, cells=cells),
                        records=tuple(record for record in records if record.filled),
                        title=title,
                    )
                    title = ""
                elif kind == "aligned":
                    title = " ".join((rows[-1]).cells)


def _is_indexed(headers: list[Record], rows: list[Record]) -> bool:
    """Return whether rows have a number each in front, as a data frame prints them."""
    numbers = [record.cells[0] for record in rows]
    wider = len(rows[0].cells) == len(headers[0].cells) + 1
    return len(headers) == 1 and wider and numbers == [str(place) for place in range(len(rows))]


def _html_row(row: re.Match[str]) -> str:
    """Return a row of a table in HTML as one drawn with bars."""
    return f"| {' | '.join(' '.join(cell.split()) for cell in _HTML_CELL.findall(row[1]))} |"


def _kind(line: str) -> str:
    """Return whether a line may be of a table drawn with ``bars``, ``aligned``, or of none."""
    if not line or len(line) > _MOST_CHARACTERS:
        return ""
    drawn = "|" in line or line[0] in _CORNERS or line.startswith(("+-", "+="))
    return "bars" if drawn else "aligned"


def _num_cells(record: Record) -> int:
    """Return how many cells a row has."""
    return len(record.cells)


def transposed(table: Table) -> Table:
    """Return a table whose columns are the rows of another, which begin with their headings."""
    width = max(len(record.cells) for record in (table.header, *table.records))
    rows = (table.header, *table.records)
    filled = [record.cells + ("",) * (width - len(record.cells)) for record in rows]
    header, *columns = (tuple(cells) for cells in zip(*filled, strict=True))
    line = table.header.line
    records = tuple(Record(line=line, cells=cells) for cells in columns)
    return Table(separator=table.separator, header=Record(line=line, cells=header), records=records)


def _cells(line: str) -> tuple[str, ...]:
    """Return the cells of a line with bars."""
    inside = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip(_EMPHASIS) for cell in re.split(r"(?<!\\)\|", inside))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeRow:
    """One row of a table."""

    line: int  # its line, 1-based
    cells: Mapping[str, str]  # by heading, as `heading` gives it
    is_complete: bool  # whether it has a cell for every heading


def has_table(text: str, is_known: Callable[[Headings], bool]) -> bool:
    """Return whether a text has a table with headings that are known."""
    return any(is_known(tuple(map(heading, one.header.cells))) for one in page_tables(text))


def pipe_rows(text: str, is_known: Callable[[Headings], bool]) -> Iterator[PipeRow]:
    """Yield the rows of every table whose headings are known."""
    for table in page_tables(text):
        headings = tuple(map(heading, table.header.cells))
        for record in table.records if table.separator == "|" and is_known(headings) else ():
            cells = dict(zip(headings, record.cells, strict=False))
            is_complete = len(record.cells) >= len(headings)
            yield PipeRow(line=record.line, cells=cells, is_complete=is_complete)
