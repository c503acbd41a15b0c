"""nccl-tests and rccl-tests as text, of every era, as launchers, terminals and people leave it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from calibration.allreduce.collective_runs import (
    ALL_REDUCE,
    CollectiveRow,
    CollectiveRun,
    Skipped,
    bus_factor,
)
from calibration.allreduce.nccl_header import (
    Header,
    begins_run,
    collective_name,
    read_header_line,
)
from calibration.allreduce.nccl_lines import CleanLine, banner, clean_line, failure
from calibration.allreduce.nccl_rows import (
    Layout,
    NoRowError,
    continues_row,
    layout_of_head,
    printed_ratio,
    read_row,
    starts_row,
)

_PROGRAM = re.compile(r"(?:^|[\s/])([a-z_]+_perf)\b")
_ELEMENT_BYTES: Final = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8e4m3", "fp8e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("float", "float32", "int32", "uint32", "int"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64"), 8),
}
_MOST_ROWS: Final = 100_000
_CLOSE = 0.01


@dataclass(slots=True)
class _Run:
    """A run that is being read."""

    header: Header = field(default_factory=Header)
    begun: set[str] = field(default_factory=set)
    layout: Layout | None = None
    rows: list[CollectiveRow] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    failure: str = ""
    pending: tuple[int, str] | None = None

    @property
    def has_content(self) -> bool:
        return bool(self.begun or self.rows or self.header.devices)


def read_nccl_text(lines: Iterable[tuple[int, str]]) -> tuple[list[CollectiveRun], list[Skipped]]:
    """Return the runs of a text, and the rows that were left out.

    Layouts by epoch: nccl-tests from 2019 to 2.19 [nccl-tests]_.
    """
    skipped: list[Skipped] = []
    runs = [_finished(run) for run in _split(lines, skipped) if run.has_content]
    return runs, sorted(skipped, key=lambda one: one.line)


def _split(lines: Iterable[tuple[int, str]], skipped: list[Skipped]) -> Iterator[_Run]:
    """Yield the runs of a text one after the other."""
    run = _Run()
    for number, line in lines:
        _take_aside(line, run)
        clean = clean_line(line, run.header.hosts)
        if clean is None:
            continue
        begins = begins_run(clean.text)
        if begins and (begins in run.begun or run.rows or run.header.devices or run.header.trailer):
            _give_up_pending(run, skipped)
            yield run
            run = _Run()
        if begins:
            run.begun.add(begins)
        if not read_header_line(clean.text, run.header):
            _take_table_line(number, clean, run, skipped)
    _give_up_pending(run, skipped)
    yield run


def _take_aside(line: str, run: _Run) -> None:
    """Take what messages say: the version of the library, a failure, the program."""
    found = banner(line)
    if found:
        run.header.texts.setdefault("banner_library", found[0])
        run.header.texts.setdefault("banner_version", found[1])
    program = _PROGRAM.search(line[:400]) if "_perf" in line[:400] else None
    if program:
        run.header.texts.setdefault("program", collective_name(program[1]))
    if run.has_content and not run.header.trailer and not run.failure:
        run.failure = failure(line)


def _take_table_line(number: int, clean: CleanLine, run: _Run, skipped: list[Skipped]) -> None:
    """Take a line that names columns, a row, or a part of one."""
    text = clean.text
    layout = layout_of_head(text)
    if layout is not None:
        run.layout = layout
        return
    if run.pending is not None and continues_row(text) and not _is_row(text, run):
        begun, left = run.pending
        run.pending = (begun, f"{left} {text.strip()}")
        _take_pending(run, skipped, cut=clean.cut)
        return
    if not starts_row(text) or len(text.split()) < 3:
        return
    _give_up_pending(run, skipped)
    run.pending = (number, text)
    _take_pending(run, skipped, cut=clean.cut)


def _is_row(text: str, run: _Run) -> bool:
    """Return whether a line of numbers is a row by itself."""
    short = run.layout is not None and "type" not in run.layout.columns
    return short and starts_row(text)


def _take_pending(run: _Run, skipped: list[Skipped], *, cut: bool) -> None:
    """Take the row that has begun, if it is whole; a part waits for the rest of it."""
    if run.pending is None:
        return
    number, text = run.pending
    try:
        row = read_row(number, text, run.layout)
    except NoRowError as reason:
        if str(reason) == "truncated_row":
            return
        run.pending = None
        if not cut and _looks_measured(text):
            skipped.append(Skipped(line=number, reason=str(reason)))
        return
    run.pending = None
    if len(run.rows) < _MOST_ROWS:
        run.rows.append(row)
        ratio = printed_ratio(text, run.layout)
        if ratio is not None:
            run.ratios.append(ratio)


def _give_up_pending(run: _Run, skipped: list[Skipped]) -> None:
    """Leave out a row of which the rest never came."""
    if run.pending is not None and _looks_measured(run.pending[1]):
        skipped.append(Skipped(line=run.pending[0], reason="truncated_row"))
    run.pending = None


def _looks_measured(text: str) -> bool:
    """Return whether a broken line was a row: the size, then a count and a type, or numbers."""
    tokens = text.split()
    return len(tokens) > 2 and (tokens[1].isdigit() or continues_row(text))


def _finished(run: _Run) -> CollectiveRun:
    """Return the record of a run."""
    header = run.header
    num_ranks, inferred = header.num_ranks, False
    collective = header.texts.get("collective") or header.texts.get("program") or ""
    if num_ranks is None:
        num_ranks = _ranks_of_ratios(run.ratios)
        inferred = num_ranks is not None
    collective = collective or _inferred_collective(run, num_ranks)
    checked = any(half.num_wrong is not None for row in run.rows for half in row.halves)
    validation = header.facts.get("validation")
    validated = checked if validation is None else validation > 0 and (checked or not run.rows)
    version = header.texts.get("library_version") or header.texts.get("banner_version")
    found = CollectiveRun(
        collective=collective,
        library=header.texts.get("library") or header.texts.get("banner_library") or "nccl",
        library_version=version,
        nccl_tests_version=header.texts.get("nccl_tests_version"),
        num_ranks=num_ranks,
        num_nodes=len(header.hosts) or None,
        gpu=header.gpu,
        warmup_iters=header.facts.get("warmup_iters"),
        iters=header.facts.get("iters"),
        graph_launches=header.facts.get("graph"),
        validated=validated,
        complete=header.trailer,
        rows=tuple(run.rows),
        largest_planned_bytes=header.facts.get("max_bytes"),
        failure=run.failure,
    )
    warnings = header.warnings | run_warnings(found)
    warnings |= {"no_header"} if not run.begun and not header.devices else set()
    warnings |= {"ranks_inferred"} if inferred else set()
    warnings |= {"legacy_layout"} if run.layout is not None and run.layout.legacy else set()
    warnings |= {"wrong_values"} if header.failed else set()
    return with_warnings(found, warnings)


def run_warnings(run: CollectiveRun) -> set[str]:
    """Return the codes of what the rows and the settings of a run show."""
    found = set()
    if run.collective != ALL_REDUCE:
        found.add("not_all_reduce")
    if run.rows and not run.validated:
        found.add("not_validated")
    if not run.complete:
        found.add("incomplete")
    if any(row.halves_differ for row in run.rows):
        found.add("in_place_differs")
    if run.num_wrong:
        found.add("wrong_values")
    if run.failure:
        found.add("failed")
    if run.num_ranks == 1:
        found.add("single_rank")
    return found


def with_warnings(run: CollectiveRun, warnings: set[str]) -> CollectiveRun:
    """Return a run with these codes, sorted."""
    return replace(run, warnings=tuple(sorted(warnings)))


def _ranks_of_ratios(ratios: list[float]) -> int | None:
    r"""Return the ranks that bus over algorithm bandwidth tell: n = 2/(2 - f)."""
    found = [round(2.0 / (2.0 - ratio)) for ratio in ratios if 0.99 <= ratio < 1.999]
    if not found or len(found) < len(ratios) / 2:
        return None
    ranks, times = Counter(found).most_common(1)[0]
    factor = bus_factor(ALL_REDUCE, ranks)
    close = sum(abs(ratio / factor - 1.0) < _CLOSE for ratio in ratios)
    return ranks if times >= len(found) / 2 and close >= len(ratios) / 2 else None


def _inferred_collective(run: _Run, num_ranks: int | None) -> str:
    """Return the collective that operation, root and count tell."""
    if not run.rows:
        return "unknown"
    row = max(run.rows, key=lambda one: one.size_bytes)
    element = _ELEMENT_BYTES.get(row.dtype or "")
    whole = None if element is None or row.count is None else row.count * element == row.size_bytes
    if row.dtype is None:  # shortened columns: the factor of an all-reduce is above that of others
        return ALL_REDUCE if num_ranks is not None and num_ranks > 2 else "unknown"
    if row.redop is None:
        return "broadcast" if row.root is not None or whole else "all_gather"
    if row.root is not None:
        return "reduce"
    return "reduce_scatter" if whole is False else ALL_REDUCE
