"""Tables drawn with ``|``: markdown and what consoles print, found in any text by their headings."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

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
