"""SGLang server logs: the decode lines of a server, pooled by batch size into rows."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from calibration.readers.check import measured_row
from calibration.readers.formats import conventions, messages
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Cell, Reading, Row
from calibration.readers.sglang_decode_pool import (
    DecodeGroup,
    DecodePool,
    DropCounts,
    PooledStream,
    RankStream,
)
from calibration.readers.sglang_flags import NOTE_MESSAGES, SglangFlags, sglang_cells
from calibration.readers.sglang_log_lines import (
    ERAS,
    MASK,
    NO_RANK,
    BatchLines,
    Graph,
    LineKind,
    LineScanner,
    StartLine,
    line_layout,
)
from specmodel.errors import FormatError, LeftOut, Note
from specmodel.units import MEBI, MILLI

_BANNER = re.compile(r"ServerArgs\(")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | [(\[{] | [)\]}] | , | [^'"()\[\]{},]++ | ['"]""",
    re.VERBOSE,
)
_NAME = re.compile(r"\s*([A-Za-z_]\w{0,80})=")
_PINNED = re.compile(r"SGLANG_SIMULATE_ACC_LEN=[\"']?(\d{1,6}(?:\.\d{0,6})?)")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_ESCAPED = re.compile(r"\\([\\'\"])")
_CONSTANTS: Final = {"None": None, "True": True, "False": False}
_LONGEST_BANNER = 1 << 18  # [characters]
_LONGEST_VALUE = 1000

# In `notes` of rows whose accept length was set, not measured.
PINNED_NOTE: Final = "synthetic acceptance"


def server_arguments(banner: str) -> dict[str, object]:
    """Return the arguments in a ``ServerArgs(...)`` banner."""
    found = _BANNER.search(banner[:_LONGEST_BANNER])
    if found is None:
        return {}
    arguments: dict[str, object] = {}
    depth = 1
    value: list[str] = []
    for piece in _PIECE.finditer(banner[:_LONGEST_BANNER], found.end()):
        text = piece[0]
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and text == ","):
            item, value = "".join(value), []
            name = _NAME.match(item)
            written = item[name.end() :].strip() if name else ""
            if name and len(written) <= _LONGEST_VALUE:  # a longer one was cut off
                arguments[name[1]] = _value(written)
            if depth == 0:
                break
        else:
            value.append(text)
    return arguments


def pinned_accept_length(launch: str) -> bool:
    """Return whether a command sets the accept length that SGLang is to pretend."""
    found = _PINNED.search(launch)
    return found is not None and float(found[1]) > 0


def _value(written: str) -> object:
    """Return what a Python literal means; lists and everything unknown as it is written."""
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    if len(written) >= 2 and written[0] == written[-1] and written[0] in "'\"":
        return _ESCAPED.sub(r"\1", written[1:-1])
    try:
        return int(written) if _WHOLE.fullmatch(written) else float(written)
    except ValueError:
        return written


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
        for stream in sorted(self.streams.values(), key=lambda stream: _rank(stream.label)[1]):
            if stream.complete:
                lowest.setdefault(_rank(stream.label)[0], stream)
        return sorted(lowest.values(), key=lambda stream: stream.first_line)

    def repeated(self) -> list[RankStream]:
        """Return the other streams: what they say was said by another rank."""
        counted = self.counted()
        return [one for one in self.streams.values() if one.complete and one not in counted]


@dataclass(slots=True)
class LogFindings:
    """Rows of all servers of a log, refused rows, and lines by the code of what they show."""

    rows: list[Row] = field(default_factory=list)
    refused: list[tuple[int, LeftOut]] = field(default_factory=list)
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
    if len(counted) > 1 or (section.flags.dp_size or 1) > 1:
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
    system = (cells.get("engine"), cells.get("target_model"), cells.get("tp_size"))
    row = measured_row(
        group.first_line,
        cells,
        load=(*system, group.batch, group.graph),
        details={
            "lines": float(group.lines),
            "section": float(section.number),
            "rank": stream.label or None,
            "cuda_graph": None
            if group.graph == Graph.UNKNOWN
            else float(group.graph == Graph.CAPTURED),
        },
    )
    if isinstance(row, LeftOut):
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


# The name of this format.
FORMAT: Final = "sglang_server_log"

_BLOCK_BYTES = MEBI  # a block, its layouts and its arrays stay in the cache of a core
_MOST_STREAMS = 1024  # of one server
_MOST_SECTIONS = 4096
_HINT = re.compile(r"(?:Decode|Prefill) batch|ServerArgs\(")
_LONGEST_LINE = 4096
_MOST_HINTS = 2000
_HEADLINE = (LineKind.BANNER, LineKind.PREFILL, LineKind.DECODE, LineKind.CUT)

# What the numbers of this format mean.
CONVENTIONS: Final = conventions("sglang_server_log")

_DROPPED: Final = messages("sglang_server_log", "dropped")

_WARNINGS: Final[Mapping[str, str]] = {
    **NOTE_MESSAGES,
    "capped_rounds": "rounds were capped (cap len) below the depth: accept lengths are those of "
    "the capped rounds",
    "depth_unknown": "the log does not tell the depth of these rows (no banner with the server's "
    "arguments): num_steps is left empty; read the log from its beginning or give the depth",
    "eager_decode": "these rows ran without a captured graph: another cost regime, its rows have "
    "variant eager",
    "mixed_eras": "decode lines of several releases: the file holds logs of different servers",
    "per_rank": "several DP ranks: batch size and throughput are those of one rank, not of the "
    "server",
    "synthetic_acceptance": "SGLANG_SIMULATE_ACC_LEN set the accept length of these rows: their "
    "times are real, their acceptance is not",
}


def recognise(head: str) -> bool:
    """Return whether a text that begins like this is the log of an SGLang server."""
    place = 0
    for _ in range(_MOST_HINTS):
        found = _HINT.search(head, place)
        if found is None:
            return False
        start = head.rfind("\n", place, found.start()) + 1 or place
        end = head.find("\n", found.end())
        place = end if end >= 0 else len(head)
        before = head[start : found.start()].rpartition("\r")[2]
        if len(before) < _LONGEST_LINE:
            line = before + head[found.start() : min(place, found.start() + _LONGEST_LINE // 2)]
            masked = line.encode("utf-8", "replace").translate(MASK)
            if line_layout(masked).kind in _HEADLINE:
                return True
    return False


def read_log(log: LogFile) -> Reading:
    """Return the rows of the log of an SGLang server, in memory that does not grow with it."""
    return _LogReader().reading(log)


class _LogReader:
    """The state of reading one log."""

    def __init__(self) -> None:
        self._scanner = LineScanner()
        self._pool = DecodePool()
        self._sections: list[ServerSection] = []
        self._current = ServerSection(number=0, flags=SglangFlags())  # of a log without a banner
        self._bannered = False
        self._pinned = False  # said by a command whose banner has not come yet
        self._num_streams = 0
        self._excess = DropCounts()

    def reading(self, log: LogFile) -> Reading:
        """Return what the log says."""
        for block in log.blocks(_BLOCK_BYTES):
            for piece in self._scanner.scan(block):
                if isinstance(piece, StartLine):
                    self._start(piece)
                else:
                    self._decode(piece)
        self._close()
        pooled = self._pool.pooled()
        findings = LogFindings()
        for section in self._sections:
            add_rows(findings, section, pooled)
        findings.drops.merge(self._excess)
        findings.drops.add("too_many_groups", self._pool.left_out, self._pool.first_left_out)
        dropped = tuple(_dropped(log, findings))
        if not findings.rows:
            reasons = "; ".join(f"{drop.count} x {drop.message}" for drop in dropped)
            raise FormatError(
                log.path,
                "the log of an SGLang server with no decode line that can be used"
                + (f": {reasons}" if reasons else ", so nothing was measured in it")
                + "; let the server decode at a steady batch for some minutes",
                code="no_rows",
            )
        era = _eras(self._sections)
        if len(era) > 1:
            findings.noted["mixed_eras"] = []
        return Reading(
            path=log.path,
            format=FORMAT,
            rows=tuple(sorted(findings.rows, key=lambda row: row.line)),
            dropped=dropped,
            warnings=tuple(
                Note(code, _WARNINGS[code], log.path, tuple(sorted(set(lines))))
                for code, lines in sorted(findings.noted.items())
            ),
            era=era,
            conventions=CONVENTIONS,
        )

    def _start(self, line: StartLine) -> None:
        """Take a line that tells how the next server is started."""
        if not line.banner:
            self._pinned = pinned_accept_length(line.text) or self._pinned
            if not self._sections and not self._current.streams:
                self._current.pinned = self._pinned
            return
        self._close()
        self._bannered = True
        arguments = server_arguments(line.text)
        interval = arguments.get("decode_log_interval")
        self._current = ServerSection(
            number=len(self._sections),
            flags=sglang_cells(arguments),
            log_interval=interval if isinstance(interval, int) and interval > 0 else None,
            pinned=self._pinned,
        )
        self._pinned = False

    def _close(self) -> None:
        """End a server; what came before the first banner is one only if it decoded."""
        streams = self._current.streams.values()
        if len(self._sections) >= _MOST_SECTIONS:
            for stream in streams:
                self._excess.add("too_many_groups", stream.complete, stream.first_line)
            return
        decoded = any(x.complete or x.drops.of("truncated_line")[0] for x in streams)
        if self._sections or self._bannered or decoded:
            self._sections.append(self._current)

    def _decode(self, lines: BatchLines) -> None:
        """Take decode and prefill lines of the current server."""
        ranks = sorted(set(lines.rank.tolist())) if lines.rank.any() else [0]
        for rank in ranks:
            part = lines if len(ranks) == 1 else lines.take((lines.rank == rank).nonzero()[0])
            stream = self._stream(rank)
            if stream is None:
                excess = int((part.kind == LineKind.DECODE).sum())
                self._excess.add("too_many_groups", excess, int(part.line[0]))
                continue
            steady = stream.steady(part)
            if steady is not None:
                self._pool.add(stream.number, steady)

    def _stream(self, rank: int) -> RankStream | None:
        """Return the stream of a rank of the current server, None beyond what a server has."""
        streams = self._current.streams
        if rank not in streams:
            if rank == NO_RANK or len(streams) >= _MOST_STREAMS:
                return None
            label = self._scanner.label(rank)
            streams[rank] = RankStream(number=self._num_streams, label=label)
            self._num_streams += 1
        return streams[rank]


def _dropped(log: LogFile, findings: LogFindings) -> Iterable[LeftOut]:
    """Yield what was left out, by reason."""
    for code, message in _DROPPED.items():
        count, first_line = findings.drops.of(code)
        if count:
            yield LeftOut(path=log.path, line=first_line, code=code, message=message, count=count)
    refused: dict[str, list[tuple[int, LeftOut]]] = defaultdict(list)
    for line, refusal in sorted(findings.refused, key=lambda found: found[0]):
        refused[refusal.code].append((line, refusal))
    for found in refused.values():
        line, refusal = found[0]
        yield replace(refusal, path=log.path, line=line, count=len(found))


def _eras(sections: Iterable[ServerSection]) -> tuple[str, ...]:
    """Return the layouts of the servers, in order of appearance.

    Lines without speculation lack the items by which a newer release is known, and so do some others
    of 0.5.16: a layout that differs from a newer one of the file by such items alone is that one.
    """
    found: list[int] = []
    for section in sections:
        for stream in section.counted():
            found += [era for era in stream.eras if era not in found]
    hidden = {
        ERAS.index(older)
        for older, newer in (("0.4.6", "0.5.4"), ("0.5.6", "0.5.16"))
        if ERAS.index(newer) in found
    }
    return tuple(ERAS[era] for era in found if era not in hidden)
