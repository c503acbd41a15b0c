"""Plain tables: comma, semicolon or tab separated, with the canonical columns or other names."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from calibration.readers.cells import read_cell
from calibration.readers.check import check_row, number
from calibration.readers.columns import Kind
from calibration.readers.formats import messages
from calibration.readers.header import HeaderColumn, canonical_name, closest_name, match_header
from calibration.readers.numerals import is_missing, uses_decimal_comma
from calibration.readers.reading import ORIGIN_NAMES, Cell, Reading, Row, SourceText
from calibration.readers.text_tables import Record, Table, split_table
from specmodel.errors import FormatError, LeftOut, Note
from specmodel.units import MILLI

FORMAT = "points_csv"

_ROW_WARNINGS: Final = messages("points_csv", "row_warnings")
_SPEEDUP_TOLERANCE = 0.05
_LARGEST_SPREAD = 0.5  # beyond it, it is a percentage, or the runs were no repeats
_MOST_REASONS = 3
_RESERVED = (
    "file",
    "line",
    *ORIGIN_NAMES,
    "_load",
    "_details",
)  # where a row comes from; see calibration.table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How a table is to be read."""

    separator: str
    decimal_comma: bool
    columns: tuple[HeaderColumn, ...]
    extra_names: Mapping[int, str]  # of the columns whose meaning is not known

    @property
    def width(self) -> int:
        """How many columns have a name or stand before one that has."""
        return max((c.index for c in self.columns), default=-1) + 1

    @property
    def by_name(self) -> dict[str, HeaderColumn]:
        """The known columns by their canonical name."""
        return {c.column.name: c for c in self.columns if c.column is not None}


def recognise(head: str) -> bool:
    """Return whether a text is a table of points.

    It is one if its header has a column about acceptance, or if it is a table of depths and
    throughputs with runs at ``num_steps`` 0, which is how a baseline is written down.
    """
    table = split_table(head, _is_known)
    if table is None:
        return False
    by_name = _layout(table).by_name
    if "accept_length" in by_name or "full_accuracy" in by_name:
        return True
    if "num_steps" not in by_name or "output_tokens_per_s" not in by_name:
        return False
    steps = by_name["num_steps"].index
    return any(r.cells[steps : steps + 1] in {("0",), ("0.0",)} for r in table.records)


def read(source: SourceText) -> Reading:
    """Return the rows of a table, the rows that were dropped and why."""
    table = split_table(source.text, _is_known)
    if table is None:
        raise FormatError(source.path, "nothing but comments", code="empty_file")
    layout = _layout(table)
    names = {name: column.written for name, column in layout.by_name.items()}
    rows: list[Row] = []
    dropped: list[LeftOut] = []
    noted: dict[str, list[int]] = defaultdict(list)
    seen: dict[tuple[object, ...], int] = {}
    for record in table.records:
        row = _read_record(record, layout, noted)
        if isinstance(row, Row):
            first = seen.setdefault(row.content, row.line)
            if first == row.line:
                rows.append(row)
                continue
            row = LeftOut(
                code="duplicate_row", column="", message=f"equal to line {first} in every column"
            )
        if row is not None:
            dropped.append(
                LeftOut(
                    path=source.path,
                    line=record.line,
                    code=row.code,
                    message=row.message,
                    column=names.get(row.column, row.column),
                )
            )
    if not rows:
        raise FormatError(source.path, _no_points(dropped), code="no_points")
    return Reading(
        path=source.path,
        format=FORMAT,
        rows=tuple(rows),
        dropped=tuple(dropped),
        warnings=tuple(_warnings(source, layout, noted)),
    )


def _is_known(written: str) -> bool:
    """Return whether a header cell names a column that is known."""
    return canonical_name(written) is not None


def _layout(table: Table) -> _Layout:
    """Return how a table is to be read."""
    columns = match_header(table.header.cells)
    comma = table.separator != "," and uses_decimal_comma(_number_cells(table, columns))
    taken = {*_RESERVED, *(c.column.name for c in columns if c.column is not None)}
    extra_names = {}
    counts: dict[str, int] = defaultdict(lambda: 1)  # kept: a header may repeat a name many times
    for column in columns:
        if column.column is None:
            name = column.written
            while name in taken:
                counts[column.written] += 1
                name = f"{column.written} ({counts[column.written]})"
            taken.add(name)
            extra_names[column.index] = name
    return _Layout(
        separator=table.separator, decimal_comma=comma, columns=columns, extra_names=extra_names
    )


def _number_cells(table: Table, columns: tuple[HeaderColumn, ...]) -> Iterable[str]:
    """Yield the cells of the columns that hold numbers."""
    indices = [c.index for c in columns if c.column is not None and c.column.kind is not Kind.TEXT]
    for record in table.records:
        for index in indices:
            if index < len(record.cells):
                yield record.cells[index]


def _read_record(
    record: Record, layout: _Layout, noted: dict[str, list[int]]
) -> Row | LeftOut | None:
    """Return the row of a record, why it is refused, or None where nothing but blanks is there."""
    if any(record.cells[layout.width :]):
        return LeftOut(
            code="ragged_row",
            column="",
            message=f"{len(record.cells)} cells, but the header has {layout.width} columns; quote "
            f"cells that hold {layout.separator!r}",
        )
    cells: dict[str, Cell] = {}
    extra: dict[str, str] = {}
    spread_ignored = False
    for column in layout.columns:
        written = record.cells[column.index] if column.index < len(record.cells) else ""
        if is_missing(written):
            continue
        if column.column is None:
            extra[layout.extra_names[column.index]] = written
            continue
        value = read_cell(written, column.column, column.factor, decimal_comma=layout.decimal_comma)
        if isinstance(value, LeftOut):
            return value
        if column.column.name == "spread" and isinstance(value, float) and value > _LARGEST_SPREAD:
            spread_ignored = True
            continue
        cells[column.column.name] = value
        if column.scope and column.column.name == "output_tokens_per_s":
            cells.setdefault("throughput_scope", column.scope)
    if not cells and not extra:
        return None
    row = _complete(record.line, cells, extra, noted)
    if spread_ignored and isinstance(row, Row):
        noted["spread_too_large"].append(record.line)
    return row


def _complete(
    line: int, cells: Mapping[str, Cell], extra: Mapping[str, str], noted: dict[str, list[int]]
) -> Row | LeftOut:
    """Return the row with what follows from its cells, or why it is refused."""
    if "output_tokens_per_s" not in cells and not _step_time_gives_throughput(cells):
        return LeftOut(
            code="missing_throughput",
            column="output_tokens_per_s",
            message="no throughput, and no step_time_ms and batch_size that give it",
        )
    checked = check_row(cells)
    if isinstance(checked, LeftOut):
        if checked.looks_like_percent:
            noted["looks_like_percent"].append(line)
        return checked
    complete = dict(checked.cells)
    notes = list(checked.notes)
    if "output_tokens_per_s" not in complete:
        batch_size, step_time_ms = number(complete, "batch_size"), number(complete, "step_time_ms")
        if batch_size is None or step_time_ms is None:
            raise AssertionError("batch_size and step_time_ms were checked before")
        emitted = number(complete, "accept_length") or 1.0  # one a step without speculation
        complete["output_tokens_per_s"] = emitted * batch_size / (step_time_ms * MILLI)
        complete["throughput_origin"] = "step_time"
        notes.append("throughput_from_step_time")
    notes += _fill_baseline(complete)
    for note in notes:
        noted[note].append(line)
    return Row(line=line, cells=complete, extra=extra)


def _step_time_gives_throughput(cells: Mapping[str, Cell]) -> bool:
    """Return whether the step time and the batch give the throughput of the whole batch.

    Beside a measured baseline they do not: it may hold prefill, the step time never does.
    """
    aggregate = cells.get("throughput_scope", "aggregate") == "aggregate"
    alone = "baseline_tokens_per_s" not in cells
    return aggregate and alone and "step_time_ms" in cells and "batch_size" in cells


def _fill_baseline(cells: dict[str, Cell]) -> list[str]:
    """Fill the baseline that follows from the speed-up; return the codes of what is to be said."""
    speedup = cells.pop("speedup", None)
    output, baseline = number(cells, "output_tokens_per_s"), number(cells, "baseline_tokens_per_s")
    if not isinstance(speedup, float) or output is None or number(cells, "num_steps") == 0:
        return []
    if baseline is None:
        cells["baseline_tokens_per_s"] = output / speedup
        cells["baseline_origin"] = "speedup"
        return []
    mismatch = abs(speedup * baseline / output - 1) > _SPEEDUP_TOLERANCE
    return ["speedup_mismatch"] if mismatch else []


def _no_points(dropped: list[LeftOut]) -> str:
    """Return why nothing is left of a file."""
    if not dropped:
        return "a header, and no row below it; add one row per measurement"
    reasons = "; ".join(row.within_file for row in dropped[:_MOST_REASONS])
    more = len(dropped) - _MOST_REASONS
    return f"no usable row: {reasons}" + (f"; and {more} more" if more > 0 else "")


def _warnings(
    source: SourceText, layout: _Layout, noted: Mapping[str, list[int]]
) -> Iterable[Note]:
    """Yield what is to be said about a file, each code once."""
    if source.guessed:
        yield Note(
            code="encoding_guessed",
            message=f"not UTF-8; read as {source.encoding}",
            path=source.path,
        )
    unknown = [_unknown(c.written, layout) for c in layout.columns if c.column is None]
    if unknown:
        yield Note(code="unknown_column", message="; ".join(unknown), path=source.path)
    for code in sorted(noted):
        yield Note(
            code=code, message=_ROW_WARNINGS[code], path=source.path, lines=tuple(noted[code])
        )


def _unknown(written: str, layout: _Layout) -> str:
    """Return what is said of a column whose meaning is not known or already given."""
    meaning = canonical_name(written)
    if meaning in layout.by_name:
        other = layout.by_name[meaning].written
        return f"column {written!r} means {meaning}, which {other!r} gives; kept as it is"
    if meaning is not None:
        return f"column {written!r} has a unit that {meaning} cannot have; kept as it is"
    close = closest_name(written)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"column {written!r} is not known; kept as it is{hint}"
