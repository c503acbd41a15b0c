"""Output of nccl-tests as text of any era: lines, headers, rows, runs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from calibration.allreduce.runs import (
    ALL_REDUCE,
    MOST_BYTES,
    MOST_WRONG,
    CollectiveRow,
    CollectiveRun,
    Half,
    bus_factor,
    is_possible_time,
)
from specmodel.errors import LeftOut

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,Z+:-]*\s+(?:std(?:out|err) [FP]\s)?")
_MPIRUN_TAG = re.compile(r"\[\d+,[\w:,.\-]+\]\s*<(stdout|stderr)>\s?:?")
_RANK_TAG = re.compile(  # `[0] `, `srun --label` and `pdsh`
    r"(?:\[\d+\]|\d+:|[A-Za-z][\w.\-]{0,80}:)\s+(?=#|\d+\s+\d+\s+[a-z]|$)"
)
_QUOTE = re.compile(r"(?:\s*[>|]\s?)+(?=\s*[#\d])")
_BOX = str.maketrans("\N{BOX DRAWINGS LIGHT VERTICAL}\N{BOX DRAWINGS HEAVY VERTICAL}|", "   ")
_MESSAGE = re.compile(
    r"(?P<host>[A-Za-z][\w.\-]{0,252}):\d+:\d+(?:\s*:\d+)?\s*(?:\[\d+\]|\(\w+\))\s.{0,400}?"
    r"\b(?:NCCL|RCCL|NET|CUDA)\b",
    re.ASCII,
)
_MESSAGE_TAIL = r":\d+:\d+\s*(?:\[\d+\]|\(\w+\))\s"
_BANNER = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_FAILURES = re.compile(
    r"Test (?:NCCL|CUDA|RCCL) failure|Test failure |unhandled (?:system|cuda) error|MPI_ABORT|"
    r"Segmentation fault|DUE TO TIME LIMIT|[Ww]atchdog|\b[Tt]imed? ?out\b|CANCELLED AT|"
    r"exited on signal|Killed$|Aborted(?: \(core dumped\))?$|illegal memory access"
)
_LONGEST: Final = 4000


@dataclass(frozen=True, slots=True)
class CleanLine:
    """What is left of a line."""

    text: str  # without tags, quotes and messages
    cut: bool = False  # whether a message took the rest of the line


def clean_line(line: str, hosts: Iterable[str] = ()) -> CleanLine | None:
    """Return a line of a table or its head without what is around it; None for a message."""
    text = _ESCAPE.sub("", line[:_LONGEST]).rstrip("\r\n")
    for pattern in (_STAMP, _MPIRUN_TAG, _QUOTE, _RANK_TAG):
        found = pattern.match(text)
        if found:
            if pattern is _MPIRUN_TAG and found[1] == "stderr":
                return None
            text = text[found.end() :]
    place = _message_place(text, hosts)
    if place < 0:
        return CleanLine(text=text.translate(_BOX))
    left = text[:place]
    return CleanLine(text=left, cut=True) if left.strip() else None


def banner(line: str) -> tuple[str, str] | None:
    """Return library and version of a banner; None for any other line."""
    found = _BANNER.search(line[:_LONGEST])
    return (found[1].lower(), found[2]) if found else None


def failure(line: str) -> str:
    """Return what a line says of a run that failed; empty where it says nothing."""
    if " INFO " in line[:_LONGEST]:  # which tells of time-outs that are set
        return ""
    found = _FAILURES.search(line[:_LONGEST])
    return found[0].strip() if found else ""


def _message_place(text: str, hosts: Iterable[str]) -> int:
    """Return where a message of NCCL begins; -1 where there is none."""
    if ":" not in text or text.lstrip().startswith("#"):
        return -1
    places = [
        found.start()
        for host in sorted(hosts, key=len, reverse=True)
        for found in [re.search(re.escape(host) + _MESSAGE_TAIL, text)]
        if found
    ]
    if places:
        return min(places)
    found = _MESSAGE.search(text)
    return found.start() if found else -1


_VERSION = re.compile(r"\b([nr]ccl)-tests version\s+(\d+(?:\.\d+)+)")
_LIBRARY = re.compile(r"\b([nr]ccl)-library=(\d{4,6})\b")
_STARTING = re.compile(r"Collective test starting:\s*(\w+)")
_SETTINGS = re.compile(r"nThreads?\s+(\d+)\s+nGpus\s+(\d+)\s+minBytes\s+(\d+)\s+maxBytes\s+(\d+)")
_NUMBER_AFTER = {
    "warmup_iters": re.compile(r"warmup iters:?\s*(\d+)"),
    "iters": re.compile(r"(?<!warmup )(?<!agg )iters:?\s*(\d+)"),
    "validation": re.compile(r"(?:validation|validate):?\s*(\d+)"),
    "graph": re.compile(r"\bgraph:?\s*(\d+)"),
}
_DEVICE = re.compile(
    r"Rank\s+(\d{1,6})\s+(?:Group\s+\d+\s+)?Pid\s+(\d{1,10})\s+on\s+(\S{1,253})\s+device\s+(\d{1,4})"
    r"\s+\[([^\]]{1,24})\]\s*(.{0,120})",
    re.ASCII,
)
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?")
_REDUCED = re.compile(r"Reducing maxBytes to\s+(\d{1,18})")
# NCCL codes from 2.9 have five digits; those before have four.
_MODERN = 10_000


@dataclass(slots=True)
class Header:
    """What the lines around a table say; filled line by line."""

    facts: dict[str, int] = field(default_factory=dict)  # settings that the header gives
    texts: dict[str, str] = field(default_factory=dict)  # collective, library and versions
    # rank, process, host, bus and name of every device line
    devices: list[tuple[int, int, str, str, str]] = field(default_factory=list)
    trailer: bool = False  # whether the trailer was seen
    failed: bool = False  # whether the trailer says that values were wrong

    @property
    def hosts(self) -> set[str]:
        """Hosts of the devices."""
        return {device[2] for device in self.devices}

    @property
    def gpu(self) -> str | None:
        """Name of the devices, names where they differ; None where none is known."""
        names = sorted({device[4] for device in self.devices if device[4]})
        return ", ".join(names) or None

    @property
    def num_ranks(self) -> int | None:
        """Ranks of the job; None where no device is named."""
        return len({device[0] for device in self.devices}) or None

    @property
    def warnings(self) -> set[str]:
        """What is special about the layout of the ranks."""
        ranks = self.num_ranks
        if ranks is None:
            return set()
        found = set()
        if len({device[1:3] for device in self.devices}) < ranks:
            found.add("single_process")
        if len(self.hosts) > 1:
            found.add("multi_node")
        if len({device[2:4] for device in self.devices}) < ranks:
            found.add("shared_gpu")
        if ranks == 1 and len(self.devices) > 1:
            found.add("independent_ranks")
        return found


def begins_run(text: str) -> str:
    """Return which line of a header this is, of those that begin a run; empty for others."""
    if _VERSION.search(text):
        return "version"
    if _STARTING.search(text):
        return "starting"
    return "settings" if _SETTINGS.search(text) else ""


def read_header_line(text: str, header: Header) -> bool:
    """Take what a line of a header or a trailer says; returns whether it said anything."""
    if "rccl-tests" in text:
        header.texts["library"] = "rccl"
    version = _VERSION.search(text)
    if version:
        header.texts["library"] = version[1]
        header.texts["nccl_tests_version"] = version[2]
        library = _LIBRARY.search(text)
        if library:
            header.texts["library_version"] = version_of_code(int(library[2]))
        return True
    starting = _STARTING.search(text)
    if starting:
        header.texts["collective"] = collective_name(starting[1])
        return True
    settings = _SETTINGS.search(text)
    if settings:
        header.facts["max_bytes"] = int(settings[4])
        for name, pattern in _NUMBER_AFTER.items():
            found = pattern.search(text)
            if found and len(found[1]) <= 9:
                header.facts[name] = int(found[1])
        return True
    return _device(text, header) or _trailer(text, header)


def version_of_code(code: int) -> str:
    """Return the version that a number of NCCL stands for."""
    unit = 100 * 100 if code >= _MODERN else 10 * 100
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def collective_name(program: str) -> str:
    """Return the collective that a program measures."""
    name = program.strip().replace("\\", "/").rsplit("/", 1)[-1]
    name = name.removesuffix(".exe").removesuffix("_mpi").removesuffix("_perf")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()[:40]


def _device(text: str, header: Header) -> bool:
    """Take a line that names a device."""
    found = _DEVICE.search(text)
    if not found:
        return False
    rank, process, host, device, bus, name = found.groups()
    header.devices.append((int(rank), int(process), host, f"{device} {bus}", name.strip()))
    return True


def _trailer(text: str, header: Header) -> bool:
    """Take a line of the trailer, or one that changes the plan."""
    bounds = _BOUNDS.search(text)
    if bounds:
        header.trailer = True
        header.failed = header.failed or bounds[2] == "FAILED" or int(bounds[1]) > 0
        return True
    reduced = _REDUCED.search(text)
    if reduced:
        header.facts["max_bytes"] = int(reduced[1])
        return True
    return False


_ALIASES: Final = {
    "(b)": "size",
    "bytes": "size",
    "n": "count",
    "op": "redop",
    "cputime": "time",
    "#wrong": "wrong",
    "#wrongs": "wrong",
    "res": "error",
    "delta": "error",
}
_LEADING = ("size", "count", "type", "redop", "root")
_HALF = ("time", "algbw", "busbw")
_CHECKS = ("wrong", "error")
_EXTRA = frozenset({"i_min", "i_max", "i_p99", "i_cv%", "side_work", "copybw"})
_KNOWN = frozenset({*_LEADING, *_HALF, *_CHECKS, *_EXTRA})
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")
_SIZE = re.compile(r"\d[\d_]*(?:,\d{3})*", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_A_NUMBER = frozenset({"n/a", "nan", "-nan", "inf", "-inf", "x"})
_NOTHING_LIKE = frozenset({"none", "-", "n/a"})
_TOLERANCE: Final = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
_LOOSEST = 1e-5

# Columns of a table that was cut down to what people quote.
SHORT: Final = ("size", "time", "algbw", "busbw")


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a table."""

    columns: tuple[str, ...]  # in the order of the table
    # character column at which the time of the second half ends; 0 where not known
    second_place: int = 0
    legacy: bool = False  # whether the table is one of 2017, whose times may be milliseconds


# From 2.13 (2022-08).
WITH_ROOT: Final = Layout(columns=(*_LEADING, *(*_HALF, "wrong") * 2))

# From 2019-04 to 2022-07.
WITHOUT_ROOT: Final = Layout(columns=(*_LEADING[:4], *(*_HALF, "error") * 2))

# From 2.19 with ``-I 1``.
WITH_SPREAD: Final = Layout(
    columns=(*_LEADING, *(*_HALF, "wrong", "i_min", "i_max", "i_p99", "i_cv%") * 2)
)

_BY_NUMBER: Final = {13: WITH_ROOT, 12: WITHOUT_ROOT, 21: WITH_SPREAD, 4: Layout(columns=SHORT)}


def layout_of_head(text: str) -> Layout | None:
    """Return the columns of a line that names them; None for any other line."""
    tokens = text.strip().lstrip("#").split()
    if len(tokens) > 40:
        return None
    names = [_ALIASES.get(token.lower(), token.lower()) for token in tokens]
    if not {"size", "time"} <= set(names) or not {"algbw", "busbw"} & set(names):
        return None
    if set(names) - _KNOWN - {"timestamp"}:
        return None
    times = [place.end() for place in re.finditer(r"\b(?:cpu)?time\b", text)]
    return Layout(
        columns=tuple(name for name in names if name != "timestamp"),
        second_place=times[1] if len(times) > 1 else 0,
        legacy=tokens[0].lower() == "bytes",
    )


def starts_row(text: str) -> bool:
    """Return whether a line begins like a row: with a size."""
    head = text.split(maxsplit=1)
    return bool(head) and _SIZE.fullmatch(head[0]) is not None


def continues_row(text: str) -> bool:
    """Return whether a line holds nothing but numbers of a row that began before it."""
    tokens = text.split()
    return bool(tokens) and all(_is_value(token) for token in tokens)


class NoRowError(ValueError):
    """A line is no row; the message is the reason."""


def read_row(line: int, text: str, layout: Layout | None) -> CollectiveRow:
    """Return a row, with columns as its table or its epoch has them."""
    tokens = _without_timestamp(text.split())
    known = layout if layout is not None else _guessed(tokens)
    if known is None:
        raise NoRowError("truncated_row")
    columns = known.columns
    if len(tokens) > len(columns):
        raise NoRowError("malformed_row")
    first = columns.index("time")
    per_half = (len(columns) - first) // columns.count("time")
    missing = len(columns) - len(tokens)
    only_second = missing == per_half and _ends_late(text, known, tokens[first:])
    if missing and not only_second:
        raise NoRowError("truncated_row")
    row = _leading(line, dict(zip(columns[:first], tokens, strict=False)))
    halves = [tokens[place : place + per_half] for place in range(first, len(tokens), per_half)]
    names = columns[first : first + per_half]
    found = [_half(row, dict(zip(names, values, strict=True))) for values in halves]
    if all(half is None for half in found):
        raise NoRowError("not_measured")
    if only_second:
        return replace(row, in_place=found[0])
    return replace(row, out_of_place=found[0], in_place=found[1] if len(found) > 1 else None)


def printed_ratio(text: str, layout: Layout | None) -> float | None:
    """Return bus over algorithm bandwidth as a row prints them; None where they are too coarse."""
    tokens = _without_timestamp(text.split())
    known = layout if layout is not None else _guessed(tokens)
    if known is None or not {"algbw", "busbw"} <= set(known.columns):
        return None
    try:
        algorithm = _number(tokens[known.columns.index("algbw")])
        bus = _number(tokens[known.columns.index("busbw")])
    except (IndexError, NoRowError):
        return None
    return None if algorithm is None or bus is None or algorithm < 1.0 else bus / algorithm


def _guessed(tokens: Sequence[str]) -> Layout | None:
    """Return the layout that rows of a number of fields have; None for an unknown number."""
    found = _BY_NUMBER.get(len(tokens))
    if found is WITHOUT_ROOT and re.fullmatch(r"-?\d+", tokens[4]) and "." not in tokens[4]:
        return WITH_ROOT  # cut off inside its last field
    return found


def _without_timestamp(tokens: list[str]) -> list[str]:
    """Return the fields without a date and a time at their end."""
    if len(tokens) > 2 and _DATE.fullmatch(tokens[-2]) and _CLOCK.fullmatch(tokens[-1]):
        return tokens[:-2]
    return tokens


def _ends_late(text: str, layout: Layout, values: Sequence[str]) -> bool:
    """Return whether the only half of a row stands where the second one belongs."""
    if not layout.second_place or not values:
        return False
    place = 0
    for found in list(re.finditer(r"\S+", text))[: (len(text.split()) - len(values))]:
        place = found.end()
    end = text.find(values[0], place) + len(values[0])
    return end > layout.second_place - len("time")


def _leading(line: int, cells: dict[str, str]) -> CollectiveRow:
    """Return what stands before the halves."""
    size = _whole(cells["size"])
    if size is None or size > MOST_BYTES:
        raise NoRowError("malformed_row")
    root = cells.get("root", "-1")
    if not re.fullmatch(r"-?\d{1,9}", root, re.ASCII):
        raise NoRowError("malformed_row")
    redop = cells.get("redop")
    return CollectiveRow(
        line=line,
        size_bytes=size,
        count=_whole(cells["count"]) if "count" in cells else None,
        dtype=cells.get("type"),
        redop=None if redop is None or redop.lower() in _NOTHING_LIKE else redop,
        root=int(root) if int(root) >= 0 else None,
    )


def _half(row: CollectiveRow, cells: dict[str, str]) -> Half | None:
    """Return half a row; None where it was not measured."""
    time_us = _number(cells["time"])
    bandwidths = [_number(cells[name]) for name in ("algbw", "busbw") if name in cells]
    checked = _number(cells["wrong"]) if "wrong" in cells else None
    error = _number(cells["error"]) if "error" in cells else None
    if time_us is None:
        return None
    if time_us <= 0 or any(value is not None and value < 0 for value in bandwidths):
        raise NoRowError("not_positive")
    if not is_possible_time(time_us):
        raise NoRowError("malformed_row")
    if error is not None:  # a relative error, no count: one element at least was wrong beyond it
        checked = float(error > _TOLERANCE.get(row.dtype or "", _LOOSEST))
    if checked is not None and not 0 <= checked <= MOST_WRONG:
        raise NoRowError("malformed_row")
    return Half(time_us=time_us, num_wrong=None if checked is None else int(checked))


def _number(token: str) -> float | None:
    """Return a number, None for what stands for none."""
    if token.lower() in _NOT_A_NUMBER:
        return None
    if token.count(",") == 1 and "." not in token:
        token = token.replace(",", ".")  # the decimal sign of the locale
    if len(token) > 40 or not _NUMBER.fullmatch(token):
        raise NoRowError("malformed_row")
    value = float(token)
    if not math.isfinite(value):
        raise NoRowError("malformed_row")
    return value


def _whole(token: str) -> int | None:
    """Return a whole number, None where there is none."""
    if len(token) > 25 or not _SIZE.fullmatch(token):
        return None
    return int(token.replace("_", "").replace(",", ""))


def _is_value(token: str) -> bool:
    """Return whether a field is a number or stands for one."""
    return token.lower() in _NOT_A_NUMBER or bool(_NUMBER.fullmatch(token.replace(",", ".", 1)))


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


def read_nccl_text(lines: Iterable[tuple[int, str]]) -> tuple[list[CollectiveRun], list[LeftOut]]:
    """Return the runs of a text, and the rows that were left out.

    Layouts by epoch: nccl-tests from 2019 to 2.19 [nccl-tests]_.
    """
    skipped: list[LeftOut] = []
    runs = [_finished(run) for run in _split(lines, skipped) if run.has_content]
    return runs, sorted(skipped, key=lambda one: one.line)


def _split(lines: Iterable[tuple[int, str]], skipped: list[LeftOut]) -> Iterator[_Run]:
    """Yield the runs of a text one after the other."""
    run = _Run()
    for number, line in lines:
        found = banner(line)
        if found:
            run.header.texts.setdefault("banner_library", found[0])
            run.header.texts.setdefault("banner_version", found[1])
        program = _PROGRAM.search(line[:400]) if "_perf" in line[:400] else None
        if program:
            run.header.texts.setdefault("program", collective_name(program[1]))
        if run.has_content and not run.header.trailer and not run.failure:
            run.failure = failure(line)
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


def _take_table_line(number: int, clean: CleanLine, run: _Run, skipped: list[LeftOut]) -> None:
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


def _take_pending(run: _Run, skipped: list[LeftOut], *, cut: bool) -> None:
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
            skipped.append(LeftOut(line=number, code=str(reason)))
        return
    run.pending = None
    if len(run.rows) < _MOST_ROWS:
        run.rows.append(row)
        ratio = printed_ratio(text, run.layout)
        if ratio is not None:
            run.ratios.append(ratio)


def _give_up_pending(run: _Run, skipped: list[LeftOut]) -> None:
    """Leave out a row of which the rest never came."""
    if run.pending is not None and _looks_measured(run.pending[1]):
        skipped.append(LeftOut(line=run.pending[0], code="truncated_row"))
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
