"""Rows from the pooled decode lines of one SGLang server, and what is to be said about them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from calibration.readers.decode_groups import DecodeGroup, PooledStream
from calibration.readers.decode_streams import DropCounts, RankStream
from calibration.readers.measured_row import measured_row
from calibration.readers.reading import Cell, Row
from calibration.readers.row_checks import Refusal
from calibration.readers.sglang_flags import SglangFlags
from calibration.readers.sglang_launch import PINNED_NOTE
from calibration.readers.sglang_line_layout import Graph
from specmodel.units import MILLI

_DATA_PARALLEL = "DP"


@dataclass(slots=True)
class ServerSection:
    """What one server wrote into a log."""

    number: int  # counted from 0
    flags: SglangFlags  # what it was started with; empty where the log does not say
    log_interval: int | None = None  # decode iterations from one decode line to the next
    pinned: bool = False  # whether its accept length was set, not measured
    streams: dict[int, RankStream] = field(default_factory=dict)  # by rank

    def counted(self) -> list[RankStream]:
        """Return the streams that count: of the ranks of one DP rank the lowest."""
        lowest: dict[int | None, RankStream] = {}
        for stream in sorted(self._decoding(), key=lambda stream: _rank(stream.label)[1]):
            lowest.setdefault(_rank(stream.label)[0], stream)
        return sorted(lowest.values(), key=lambda stream: stream.first_line)

    def repeated(self) -> list[RankStream]:
        """Return the other streams: what they say was said by another rank."""
        counted = self.counted()
        return [stream for stream in self._decoding() if stream not in counted]

    def _decoding(self) -> Iterable[RankStream]:
        """Return the streams with at least one complete decode line."""
        return (stream for stream in self.streams.values() if stream.complete)


@dataclass(slots=True)
class LogFindings:
    """Rows of all servers of a log, refused rows, and lines by the code of what they show."""

    rows: list[Row] = field(default_factory=list)
    refused: list[tuple[int, Refusal]] = field(default_factory=list)
    noted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    drops: DropCounts = field(default_factory=DropCounts)


def add_rows(
    findings: LogFindings, section: ServerSection, pooled: Mapping[int, PooledStream]
) -> None:
    """Add the rows of a server, one for each rank, batch size, graph flag and context band."""
    for stream in section.repeated():
        cut, first_cut = stream.drops.of("truncated_line")
        findings.drops.add("truncated_line", cut, first_cut)
        findings.drops.add("duplicate_rank", stream.complete, stream.first_line)
    for stream in section.streams.values():
        if not stream.complete:
            findings.drops.merge(stream.drops)
    counted = section.counted()
    rows_before = len(findings.rows)
    for stream in counted:
        found = pooled.get(stream.number, PooledStream(groups=()))
        findings.drops.merge(stream.drops)
        findings.drops.add("idle", found.gaps, found.first_gap)
        for group in found.groups:
            _add_row(findings, section, stream, group)
    lines = [row.line for row in findings.rows[rows_before:]]
    if not lines:
        return
    for code in section.flags.notes:
        findings.noted[code] += lines
    parallel = len(counted) > 1 or (section.flags.dp_size or 1) > 1
    if parallel:
        findings.noted["per_rank"] += lines


def _add_row(
    findings: LogFindings, section: ServerSection, stream: RankStream, group: DecodeGroup
) -> None:
    """Add the row of one group."""
    flags = section.flags
    if not group.speculative and flags.speculates and not flags.adaptive:
        findings.drops.add("missing_accept_length", group.lines, group.first_line)
        return
    cells = _cells(section, group)
    row = measured_row(
        group.first_line,
        cells,
        load=_load(cells, group),
        details={
            "lines": float(group.lines),
            "section": float(section.number),
            "rank": stream.label or None,
            "cuda_graph": None
            if group.graph == Graph.UNKNOWN
            else float(group.graph == Graph.CAPTURED),
        },
    )
    if isinstance(row, Refusal):
        findings.refused.append((group.first_line, row))
        return
    findings.rows.append(row)
    codes = {
        "eager_decode": group.graph == Graph.EAGER,
        "synthetic_acceptance": group.speculative and section.pinned,
        "depth_unknown": group.speculative
        and "num_steps" not in cells
        and not flags.adaptive
        and "draft_model_idle" not in flags.notes,
        "capped_rounds": group.speculative and _is_capped(stream, cells),
    }
    for code, holds in codes.items():
        if holds:
            findings.noted[code].append(group.first_line)


def _cells(section: ServerSection, group: DecodeGroup) -> dict[str, Cell | None]:
    """Return the columns of a group."""
    cells: dict[str, Cell | None] = {"engine": "sglang", **section.flags.cells}
    if group.speculative and cells.get("num_steps") == 0:
        del cells["num_steps"]  # the banner is of another server than the lines
    if not group.speculative and not section.flags.speculates:
        cells["num_steps"] = 0.0
    if group.graph == Graph.EAGER:
        cells["variant"] = "eager"
    elif group.graph == Graph.CAPTURED:
        cells.pop("variant", None)
    rounds = None
    if group.speculative and section.log_interval:
        rounds = float(group.lines) * section.log_interval * group.batch
    return cells | {
        "batch_size": float(group.batch),
        "accept_length": group.accept_length,
        "output_tokens_per_s": group.batch * group.accept_length / (group.round_time_ms * MILLI),
        "step_time_ms": group.round_time_ms,
        "context_tokens": group.context_tokens,
        "throughput_origin": "step_time",
        "verify_rounds": rounds if rounds and not section.pinned else None,
        "notes": PINNED_NOTE if section.pinned and group.speculative else None,
    }


def _load(cells: Mapping[str, Cell | None], group: DecodeGroup) -> tuple[object, ...]:
    """Return what a row with speculation and its baseline have in common."""
    system = (cells.get("engine"), cells.get("target_model"), cells.get("tp_size"))
    return (*system, group.batch, group.graph)


def _is_capped(stream: RankStream, cells: Mapping[str, Cell | None]) -> bool:
    """Return whether rounds were cut short of the depth that the server drafts."""
    num_steps, num_draft_tokens = cells.get("num_steps"), cells.get("num_draft_tokens")
    depths = [depth for depth in (num_steps,) if isinstance(depth, float)]
    if isinstance(num_draft_tokens, float) and num_steps == 1:  # a block, drafted in one step
        depths = [num_draft_tokens - 1]
    return bool(depths) and stream.least_cap_length < depths[0]


def _rank(label: str) -> tuple[int | None, tuple[int, ...]]:
    """Return the DP rank in a label, and the other ranks."""
    data_parallel: int | None = None
    others = []
    for part in label.split():
        letters = part.rstrip("0123456789")
        digits = part[len(letters) :]
        if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
            continue
        if letters == _DATA_PARALLEL:
            data_parallel = int(digits)
        else:
            others.append(int(digits))
    return data_parallel, tuple(others)
