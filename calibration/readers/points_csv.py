"""Plain tables: comma, semicolon or tab separated, with the canonical columns or other names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Final, NamedTuple

from calibration.readers.cells import dressed, faster, read_cell, repeats, unit_family
from calibration.readers.check import check_row, number
from calibration.readers.columns import DERIVING, Kind, scope_of
from calibration.readers.formats import messages
from calibration.readers.header import (
    HeaderColumn,
    canonical_name,
    closest_name,
    is_label,
    is_prefill,
    match_header,
    plain,
    said_of_run,
    said_of_title,
)
from calibration.readers.numerals import is_missing, parse_number, uses_decimal_comma
from calibration.readers.open_meanings import MEANINGS, Meaning, meant, possible
from calibration.readers.reading import ORIGIN_NAMES, Cell, Reading, Row, SourceText
from calibration.readers.text_tables import Record, Table, split_table
from specmodel.errors import FormatError, LeftOut, Note
from specmodel.units import MILLI

FORMAT = "points_csv"

_ROW_WARNINGS: Final = messages("points_csv", "row_warnings")
_SPEEDUP_TOLERANCE = 0.05
_MOST_APART = 1.15  # of the largest to the smallest of repeats in one cell
_SPEEDS = frozenset(
    ("output_tokens_per_s", "decode_tokens_per_s", "tpot_ms", "step_time_ms", "speedup", "gain")
)
_RATES = ("output_tokens_per_s", "decode_tokens_per_s")
_RUNS = frozenset(
    {
        *("accept_length", "full_accuracy", "conditional_accuracy", "num_steps", "accepted_tokens"),
        "emitted_tokens",
        *("baseline_tokens_per_s", "baseline_decode_tokens_per_s", "baseline_tpot_ms", *MEANINGS),
    }
)
_ONLY_DERIVING = frozenset(column.name for column in DERIVING) - {"speedup"}
_LARGEST_SPREAD = 0.5  # beyond it, it is a percentage, or the runs were no repeats
_MOST_REASONS = 3
_MOST_GUESSES = 50  # columns of which the nearest known name is looked for
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
    labels: frozenset[int]  # those of them that name the runs
    said: Mapping[str, Cell]  # what the line above the table says of all its runs

    @property
    def width(self) -> int:
        """How many columns have a name or stand before one that has."""
        return max((c.index for c in self.columns), default=-1) + 1

    @property
    def by_name(self) -> dict[str, HeaderColumn]:
        """The known columns by their canonical name."""
        return {c.column.name: c for c in self.columns if c.column is not None}


class _Parsed(NamedTuple):
    """A run as its cells say it."""

    line: int
    cells: dict[str, Cell]
    extra: dict[str, str]


def recognise(head: str) -> bool:
    """Return whether a text is a table of points.

    It is one if its header has a column about acceptance, or if it is a table of depths and
    throughputs with runs at ``num_steps`` 0, which is how a baseline is written down.
    """
    table = split_table(head, is_known)
    if table is None:
        return False
    by_name = _layout(table).by_name
    if "accept_length" in by_name or "full_accuracy" in by_name:
        return True
    if _SPEEDS.isdisjoint(by_name) or len(by_name) < 2:
        return False
    if not MEANINGS.keys().isdisjoint(by_name):
        return True
    if "num_steps" not in by_name or "output_tokens_per_s" not in by_name:
        return False
    steps = by_name["num_steps"].index
    return any(r.cells[steps : steps + 1] in {("0",), ("0.0",)} for r in table.records)


def read(source: SourceText) -> Reading:
    """Return the rows of a table, the rows that were dropped and why."""
    table = split_table(source.text, is_known)
    if table is None:
        raise FormatError(source.path, "nothing but comments", code="empty_file")
    return read_tables(source, [table], FORMAT)


def known_names(table: Table) -> frozenset[str]:
    """Return the canonical names of the columns of a table that are known and hold what they say."""
    layout = _layout(table)
    said = (
        said_of_run(cell)
        for record in table.records
        for index in layout.labels
        for cell in record.cells[index : index + 1]
    )
    return frozenset(
        name
        for name, column in layout.by_name.items()
        if not _is_number(column)
        or any(
            dressed(repeats(plain(cell))[0])
            for record in table.records
            for cell in record.cells[column.index :][:1]
        )
    ) | frozenset(name for names in (*said, layout.said) for name in names)


def about_points(names: frozenset[str]) -> bool:
    """Return whether columns have a speed, and acceptance, a depth or a baseline."""
    return not names.isdisjoint(_SPEEDS) and not names.isdisjoint(_RUNS)


def lacking(names: frozenset[str]) -> str:
    """Return which columns a table would have to have besides these."""
    wants = []
    if names.isdisjoint(_SPEEDS):
        wants.append("a speed: tok/s, TPOT (ms) or step_time_ms")
    if names.isdisjoint(_RUNS):
        wants.append("acceptance: accept_length, full_accuracy, or k with 0 for a baseline")
    return " and ".join(wants) or "accept_length, or full_accuracy of each position"


def read_tables(source: SourceText, tables: Sequence[Table], format_name: str) -> Reading:
    """Return the rows of the tables of a file, the rows that were dropped and why."""
    rows: list[Row] = []
    dropped: list[LeftOut] = []
    noted: dict[str, list[int]] = defaultdict(list)
    seen: dict[tuple[object, ...], int] = {}
    warnings: list[Note] = []
    for table in tables:
        layout = _layout(table)
        names = {name: column.written for name, column in layout.by_name.items()}
        parsed = [run for record in table.records for run in _runs(record, layout, noted)]
        known = [run.cells for run in parsed if isinstance(run, _Parsed)]
        said = {name for cells in known for name in cells}
        meanings = {name: possible(name, known) for name in MEANINGS if name in said}
        for run in parsed:
            row = _complete(run, meanings, noted) if isinstance(run, _Parsed) else run
            if isinstance(row, Row):
                first = seen.setdefault(row.content, row.line)
                if first == row.line:
                    rows.append(row)
                    continue
                message = f"equal to line {first} in every column"
                row = LeftOut(code="duplicate_row", message=message)
            column = names.get(row.column, row.column)
            dropped.append(replace(row, path=source.path, line=row.line or run.line, column=column))
        unknown = [
            _unknown(column.written, layout, guess=place < _MOST_GUESSES)
            for place, column in enumerate(layout.columns)
            if column.column is None and column.index not in layout.labels
        ]
        if unknown:
            warnings.append(Note("unknown_column", "; ".join(unknown), source.path))
    if not rows:
        unread = "".join(f"; {note.message}" for note in warnings)
        raise FormatError(source.path, _no_points(dropped) + unread, code="no_points")
    if source.guessed:
        message = f"not UTF-8; read as {source.encoding}"
        warnings.insert(0, Note("encoding_guessed", message, source.path))
    warnings += [
        Note(code, _ROW_WARNINGS[code], source.path, tuple(noted[code])) for code in sorted(noted)
    ]
    return Reading(
        path=source.path,
        format=format_name,
        rows=tuple(rows),
        dropped=tuple(dropped),
        warnings=tuple(warnings),
    )


def is_known(written: str) -> bool:
    """Return whether a header cell names a column that is known."""
    return canonical_name(written) is not None


def _layout(table: Table) -> _Layout:
    """Return how a table is to be read."""
    families: dict[int, str] = {}
    for record in table.records:
        for index, cell in enumerate(record.cells):
            families[index] = families.get(index) or unit_family(repeats(plain(cell))[0])
    columns = match_header(table.header.cells, families)
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
        separator=table.separator,
        decimal_comma=comma,
        columns=columns,
        extra_names=extra_names,
        labels=frozenset(i for i, name in extra_names.items() if is_label(name)),
        said=said_of_title(table.title),
    )


def _number_cells(table: Table, columns: tuple[HeaderColumn, ...]) -> Iterable[str]:
    """Yield the cells of the columns that hold numbers."""
    indices = [c.index for c in columns if c.column is not None and c.column.kind is not Kind.TEXT]
    for record in table.records:
        for index in indices:
            if index < len(record.cells):
                yield record.cells[index]


def _runs(record: Record, layout: _Layout, noted: dict[str, list[int]]) -> list[_Parsed | LeftOut]:
    """Return the runs of a record, or why it is refused; nothing where nothing but blanks is there."""
    if any(record.cells[layout.width :]):
        message = (
            f"{len(record.cells)} cells, but the header has {layout.width} columns; quote "
            f"cells that hold {layout.separator!r}"
        )
        return [LeftOut(code="ragged_row", line=record.line, message=message)]
    found: list[_Parsed | LeftOut] = []
    for given in {column.given: None for column in layout.columns if column.given} or {(): None}:
        columns = [column for column in layout.columns if column.given in {(), given}]
        texts = {
            column.index: repeats(written) if _is_number(column) else (written,)
            for column in columns
            if column.index < len(record.cells)
            for written in [record.cells[column.index]]
            if not is_missing(plain(written))
        }
        counts = {len(parts) for parts in texts.values()} | {1}
        runs = [_run(record.line, columns, texts, place, layout) for place in range(max(counts))]
        apart = _apart([run for run in runs if isinstance(run, _Parsed)], columns)
        if apart or len(counts - {1}) > 1:
            message = "cells hold several numbers that are no repeats of one run"
            message += f" ({apart})" * bool(apart) + "; give each its own column or row"
            runs = [LeftOut(code="several_values", line=record.line, message=message)]
        found += [run for run in runs if run is not None]
    for run in found:
        spread = run.cells.get("spread") if isinstance(run, _Parsed) else None
        if isinstance(run, _Parsed) and isinstance(spread, float) and spread > _LARGEST_SPREAD:
            del run.cells["spread"]
            noted["spread_too_large"].append(record.line)
    return found


def _run(
    line: int,
    columns: Sequence[HeaderColumn],
    texts: Mapping[int, tuple[str, ...]],
    place: int,
    layout: _Layout,
) -> _Parsed | LeftOut | None:
    """Return one run of a record, why it is refused, or None where nothing but blanks is there."""
    cells: dict[str, Cell] = {}
    extra: dict[str, str] = {}
    said = {**layout.said, **{name: value for one in columns for name, value in one.given}}
    for column in columns:
        parts = texts.get(column.index)
        if parts is None:
            continue
        written = parts[place] if len(parts) > 1 else parts[0]
        if column.column is None:
            extra[layout.extra_names[column.index]] = written
            if column.index in layout.labels and is_prefill(written):
                message = f"{written!r} is the reading of a prompt, which generates nothing"
                return LeftOut(
                    code="prefill_row", column=column.written, line=line, message=message
                )
            said |= said_of_run(written) if column.index in layout.labels else {}
            continue
        if column.column.kind is not Kind.TEXT:
            written = plain(written)
        value = read_cell(written, column.column, column.factor, decimal_comma=layout.decimal_comma)
        if isinstance(value, LeftOut):
            return replace(value, line=line)
        name = column.column.name
        if name == "position_rate" and isinstance(value, float):
            rates = cells.get("position_rates", ())
            cells["position_rates"] = (*rates, value) if isinstance(rates, tuple) else rates
            continue
        cells[name] = value
        said |= said_of_run(written) if name == "algorithm" else {}
        around = dressed(written) if name in _RATES else None
        scope = column.scope or (scope_of(around.unit) if around and around.unit else "")
        if name == "output_tokens_per_s" and scope in {"per_user", "per_gpu"}:
            cells.setdefault("throughput_scope", scope)
        if around and around.spread and isinstance(value, float):
            size = parse_number(around.spread, decimal_comma=layout.decimal_comma)
            said.setdefault("spread", size if "%" in around.spread else size / value)
        ratio = (
            faster(around.remark, decimal_comma=layout.decimal_comma)
            if around and name in _SPEEDS
            else None
        )
        if ratio is not None:
            said.setdefault("speedup", ratio)
    return _Parsed(line, said | cells, extra) if cells or extra else None


def _apart(runs: Sequence[_Parsed], columns: Sequence[HeaderColumn]) -> str:
    """Return the heading under which runs differ more than repeats do; empty where none does."""
    for column in columns:
        name = column.column.name if column.column else ""
        values = [value for run in runs if (value := number(run.cells, name)) is not None]
        named = "run" in column.written.casefold()
        if values and not named and max(values) > _MOST_APART * min(values):
            return column.written
    return ""


def _complete(
    parsed: _Parsed, meanings: Mapping[str, tuple[Meaning, ...]], noted: dict[str, list[int]]
) -> Row | LeftOut:
    """Return the row with what follows from its cells, or why it is refused."""
    line, cells = parsed.line, dict(parsed.cells)
    notes: list[str] = []
    _derive(cells)
    if "accept_length" not in cells and number(cells, "num_steps") != 0:
        found = {name: meant(left, name, cells) for name, left in meanings.items() if name in cells}
        told = [length for length in found.values() if isinstance(length, float)]
        if found and not told:
            column, question = next(iter(found.items()))
            return LeftOut(code="open_meaning", column=column, message=str(question))
        if told:
            cells["accept_length"] = told[0]
            notes.append("accept_length_from_rate")
    cells = {name: cell for name, cell in cells.items() if name not in _ONLY_DERIVING}
    speedup = number(cells, "speedup")
    if "output_tokens_per_s" not in cells and speedup is not None and "step_time_ms" not in cells:
        cells |= {"output_tokens_per_s": speedup, "baseline_tokens_per_s": 1.0}
        cells["throughput_scope"] = "relative"
        notes.append("speedup_alone")
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
    notes += checked.notes
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
    return Row(line=line, cells=complete, extra=parsed.extra)


def _derive(cells: dict[str, Cell]) -> None:
    """Fill canonical cells that follow from others: rates of decoding, counts, gains."""
    tpot_ms, baseline_tpot_ms = number(cells, "tpot_ms"), number(cells, "baseline_tpot_ms")
    decode, plain_decode = (number(cells, f"{run}decode_tokens_per_s") for run in ("", "baseline_"))
    measured = "output_tokens_per_s" in cells and number(cells, "batch_size")
    if tpot_ms and measured and "step_time_ms" not in cells:
        accept = 1.0 if number(cells, "num_steps") == 0 else number(cells, "accept_length")
        if accept is not None:
            cells["step_time_ms"] = tpot_ms * accept
    elif tpot_ms and decode is None and not {"output_tokens_per_s", "step_time_ms"} & cells.keys():
        # one token of each request every so often, without prefill and waiting
        decode = 1 / (tpot_ms * MILLI)
        plain_decode = 1 / (baseline_tpot_ms * MILLI) if baseline_tpot_ms else None
        cells["throughput_scope"] = "per_user"
    if "output_tokens_per_s" not in cells and decode is not None:
        cells |= {"output_tokens_per_s": decode, "throughput_origin": "step_time"}
        if plain_decode is not None:
            cells.setdefault("baseline_tokens_per_s", plain_decode)
    accepted, drafted = number(cells, "accepted_tokens"), number(cells, "drafted_tokens")
    rounds, depth = number(cells, "verify_rounds"), number(cells, "num_steps")
    if accepted is None and drafted is not None:
        accepted = number(cells, "accepted_per_round")
    emitted = number(cells, "emitted_tokens")
    if emitted is not None and accepted is not None and accepted.is_integer() and not rounds:
        rounds = emitted - accepted  # each adds one token of the target model
    if accepted is not None and "accept_length" not in cells and (rounds or (drafted and depth)):
        drafts = accepted / rounds if rounds else accepted / (drafted or 1.0) * (depth or 0.0)
        cells["accept_length"] = 1 + drafts
    conditional = cells.get("conditional_accuracy")
    if isinstance(conditional, tuple):
        cells.setdefault("full_accuracy", tuple(accumulate(conditional, mul)))
    gain = number(cells, "gain")
    if gain is not None:
        cells.setdefault("speedup", 1 + gain)


def _step_time_gives_throughput(cells: Mapping[str, Cell]) -> bool:
    """Return whether the step time and the batch give the throughput of the whole batch.

    Beside a measured baseline they do not: it may hold prefill, the step time never does.
    """
    aggregate = cells.get("throughput_scope", "aggregate") == "aggregate"
    alone = "baseline_tokens_per_s" not in cells
    return aggregate and alone and "step_time_ms" in cells and "batch_size" in cells


def _is_number(column: HeaderColumn) -> bool:
    """Return whether a column holds a number in each cell."""
    return column.column is not None and column.column.kind in {Kind.NUMBER, Kind.WHOLE}


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
    kinds = Counter(row.code for row in dropped)
    first = {row.code: row for row in reversed(dropped)}
    shown = [replace(first[code], count=count) for code, count in kinds.items()][:_MOST_REASONS]
    more = len(dropped) - sum(row.count for row in shown)
    reasons = "; ".join(row.within_file for row in shown)
    return f"no usable row: {reasons}" + (f"; and {more} more" if more > 0 else "")


def _unknown(written: str, layout: _Layout, *, guess: bool) -> str:
    """Return what is said of a column whose meaning is not known or already given."""
    meaning = canonical_name(written)
    if meaning in layout.by_name:
        other = layout.by_name[meaning].written
        return f"column {written!r} means {meaning}, which {other!r} gives; kept as it is"
    if meaning is not None:
        return f"column {written!r} has a unit that {meaning} cannot have; kept as it is"
    close = closest_name(written) if guess else None
    hint = f"; did you mean {close!r}?" if close else ""
    return f"column {written!r} is not known; kept as it is{hint}"
