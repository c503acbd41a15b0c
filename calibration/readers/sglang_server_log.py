"""SGLang server logs: the decode lines of a server, pooled by batch size into rows."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibration.readers.alike_lines import LONGEST_LINE, AlikeLines, Columns, Layout
from calibration.readers.check import measured_row
from calibration.readers.formats import conventions, messages
from calibration.readers.log_file import ESCAPES, LINE_PREFIX, LogFile
from calibration.readers.reading import Cell, Reading, Row
from calibration.readers.sglang_decode_pool import MOST_STREAMS, DecodePool, Group
from calibration.readers.sglang_flags import NOTE_MESSAGES, SglangFlags, sglang_cells
from specmodel.errors import FormatError, LeftOut, Note
from specmodel.units import MEBI, MILLI

# The name of this format.
FORMAT: Final = "sglang_server_log"

# What the numbers of this format mean.
CONVENTIONS: Final = conventions(FORMAT)

# In `notes` of rows whose accept length was set, not measured.
PINNED_NOTE: Final = "synthetic acceptance"

# Oldest release of each layout of a decode line.
ERAS: Final = ("0.4.3", "0.4.6", "0.5.4", "0.5.6", "0.5.16")

_DROPPED: Final = messages(FORMAT, "dropped")
_WARNINGS: Final[Mapping[str, str]] = {**NOTE_MESSAGES, **messages(FORMAT, "warnings")}
_BLOCK_BYTES = MEBI  # a block, its layouts and its arrays stay in the cache of a core
_MOST_SERVERS = 4096


class LineKind(IntEnum):
    """What a line means."""

    BANNER = 1  # the server's arguments
    LAUNCH = 2  # a command that sets an accept length
    PREFILL = 3
    DECODE = 4
    CUT = 5  # a decode line without all its values


class Graph(IntEnum):
    """Whether a decode line says that its rounds ran from a captured graph."""

    UNKNOWN = 0
    EAGER = 1
    CAPTURED = 2


_TIME = rb"\[(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?[^\]\[\n ]{0,80}[ ]*+(?P<rank>[^\]\[\n]{0,80}?)[ ]*\][ ]+"
_BATCH_LINE = re.compile(
    rb"(?x)" + LINE_PREFIX + _TIME + rb"(?P<kind>Decode|Prefill)[ ]batch(?:[ ]\[\d+\])?[.,]?[ ]*"
)
_BANNER = re.compile(
    rb"(?x)"
    + LINE_PREFIX
    + rb"(?:"
    + _TIME
    + rb")?(?:[A-Z]+:[\w.]+:)?(?:server_args=)?ServerArgs\("
)
_TIMED = re.compile(rb"(?x)" + LINE_PREFIX + _TIME)
_NUMBER = re.compile(rb"[ ]*(\d{1,8}(?:\.\d*)?)[ ]*")
_FIRST_KEY = b"#running-req"
_SETTING = b"SGLANG_SIMULATE_ACC_LEN="
_SUFFIXES = (b"cap len", b"est. ", b"fwd occupancy")
_KEYS: Final = {
    "running": (b"#running-req",),
    "throughput": (b"gen throughput (token/s)", b"gen throughput"),
    "accept_length": (b"accept len",),
    "tokens": (b"#token", b"#full token"),
    "cap_length": (b"cap len",),
}
_WHOLE_KEYS = (
    "running",
    "throughput",
    "accept_length",
)  # where their value is none, the line is cut
_GRAPHS = {b"true": Graph.CAPTURED, b"false": Graph.EAGER}


def line_layout(text: bytes) -> Layout | None:
    """Return what a line of the log of a server is and where its numbers stand; digits do not matter."""
    if b"code batch" in text or b"fill batch" in text:
        found = _BATCH_LINE.match(text) if len(text) <= LONGEST_LINE else None
        rest = text[found.end() :] if found else b""
        begins = _FIRST_KEY in rest or _FIRST_KEY.startswith(rest.strip())
        if found and found["kind"] == b"Decode" and begins:
            return _decode_layout(text, found)
        if found and found["kind"] == b"Prefill" and (begins or b"#new-seq" in rest):
            return Layout((LineKind.PREFILL, 0, 0, 0), {"rank": found.span("rank")})
    if b"ServerArgs(" in text and _BANNER.match(text):
        return Layout((LineKind.BANNER, 0, 0, 0))
    if _SETTING in text and b"{" not in text.partition(_SETTING)[0] and not _TIMED.match(text):
        return Layout((LineKind.LAUNCH, 0, 0, 0))
    return None


def _decode_layout(text: bytes, found: re.Match[bytes]) -> Layout:
    """Return what a decode line says, and whether it was cut off or another was written into it."""
    items: dict[bytes, tuple[int, bytes]] = {}
    place, cut = found.end(), False
    for item in text[place:].split(b","):
        key, colon, value = item.partition(b":")
        if colon:
            cut |= key.strip() in items
            items[key.strip()] = (place + len(key) + 1, value)
        place += len(item) + 1
    spans = {"rank": found.span("rank")}
    for name, keys in _KEYS.items():
        start, value = next((items[key] for key in keys if key in items), (0, b""))
        number = _NUMBER.fullmatch(value)
        if number:
            spans[name] = (start + number.start(1), start + number.end(1))
        cut |= start > 0 and not number and name in _WHOLE_KEYS
    cut |= not items.get(b"#queue-req", (0, b""))[1].strip()[:1].isdigit()
    if cut or "running" not in spans or "throughput" not in spans:
        return Layout((LineKind.CUT, 0, 0, 0), {"rank": spans["rank"]})
    if any(key.startswith(_SUFFIXES) for key in items):
        era = "0.5.16"
    elif found[0].rstrip().endswith(b","):
        era = "0.5.6"
    elif b"largest-len" in items:
        era = "0.4.3"
    else:
        era = "0.5.4" if b"accept rate" in items else "0.4.6"
    graphs = [value.strip().lower() for key, (_, value) in items.items() if key.endswith(b" graph")]
    graph = _GRAPHS.get(graphs[0], Graph.UNKNOWN) if graphs else Graph.UNKNOWN
    facts = (LineKind.DECODE, graph, "accept_length" in spans, ERAS.index(era))
    return Layout(facts, spans)


_FACTS = ("kind", "graph", "speculative", "era")


def recognise(head: str) -> bool:
    """Return whether a text that begins like this is the log of an SGLang server."""
    if not _HINT.search(head):
        return False
    lines = AlikeLines(line_layout, facts=_FACTS, numbers=())
    kinds = lines.columns(head.encode("utf-8", "replace"))["kind"]
    return bool((kinds != LineKind.LAUNCH).any())


_HINT = re.compile(r"(?:Decode|Prefill) batch|ServerArgs\(")


_ARGUMENTS = re.compile(r"ServerArgs\(")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | [(\[{] | [)\]}] | , | [^'"()\[\]{},]++ | ['"]""",
    re.VERBOSE,
)
_NAME = re.compile(r"\s*([A-Za-z_]\w{0,80})=")
_PINNED = re.compile(r"SGLANG_SIMULATE_ACC_LEN=[\"']?(\d{1,6}(?:\.\d{0,6})?)")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_ESCAPED = re.compile(r"\\([\\'\"])")
_RANK = re.compile(r"(?<!\S)([A-Za-z_]*)([0-9]{1,9})(?!\S)")
_CONSTANTS: Final = {"None": None, "True": True, "False": False}
_LONGEST_BANNER = 1 << 18  # [characters]
_LONGEST_VALUE = 1000


def server_arguments(banner: str) -> dict[str, object]:
    """Return the arguments in a ``ServerArgs(...)`` banner."""
    found = _ARGUMENTS.search(banner[:_LONGEST_BANNER])
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


# Lines that are left out, by reason: how many, and the first of them.
_Reasons: TypeAlias = dict[str, tuple[int, int]]


@dataclass(slots=True, eq=False)
class _Stream:
    """The decode lines of one rank of one server, in their order."""

    number: int  # as in the pool
    label: str  # of the rank, as in the log
    data_parallel: int | None  # its DP rank
    others: tuple[int, ...]  # its other ranks
    complete: int = 0  # decode lines with all their values, and the first of them
    first_line: int = 0
    least_cap_length: float = math.inf
    eras: list[int] = field(default_factory=list)
    left_out: _Reasons = field(default_factory=dict)
    running: float = -1.0  # of the decode line before
    after_prefill: bool = False  # whether the line before is that of a prefill
    alone: NDArray[np.float64] | None = None  # its first line, as long as no other is kept


@dataclass(slots=True, eq=False)
class _Server:
    """What one server wrote into a log."""

    flags: SglangFlags = field(default_factory=SglangFlags)  # empty where the log does not say
    log_interval: int | None = None  # decode iterations from one decode line to the next
    pinned: bool = False  # whether its accept length was set, not measured
    streams: dict[bytes, _Stream] = field(default_factory=dict)  # by label


def read_log(log: LogFile) -> Reading:
    """Return the rows of the log of an SGLang server, in memory that does not grow with it."""
    found = _LogReader()
    alike = AlikeLines(line_layout, facts=_FACTS, numbers=tuple(_KEYS), texts=("rank",))
    for block in log.blocks(_BLOCK_BYTES):
        lines = alike.columns(block)
        starts = np.flatnonzero(lines["kind"] <= LineKind.LAUNCH).tolist()
        for start, end in pairwise([-1, *starts, len(lines["kind"])]):
            if start >= 0:
                line = int(lines["start"][start])
                until = block.find(b"\n", line)
                text = block[line : until if until >= 0 else None].decode("utf-8", "replace")
                found.start(text, banner=bool(lines["kind"][start] == LineKind.BANNER))
            if end > start + 1:
                found.decode(block, {name: of[start + 1 : end] for name, of in lines.items()})
    return found.reading(log)


@dataclass(slots=True)
class _LogReader:
    """What has been found in a log so far."""

    pool: DecodePool = field(default_factory=DecodePool)
    servers: list[_Server] = field(default_factory=list)
    server: _Server | None = field(default_factory=_Server)  # None beyond the most
    fragment: bool = False  # whether decode lines come before the first banner
    num_streams: int = 0
    pinned: bool = False  # said by a command whose banner has not come yet
    rows: list[Row] = field(default_factory=list)
    left_out: _Reasons = field(default_factory=dict)
    refused: dict[str, LeftOut] = field(default_factory=dict)
    noted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def start(self, text: str, *, banner: bool) -> None:
        """Take a line that tells how the next server is started."""
        if not banner:
            setting = _PINNED.search(text)
            self.pinned |= setting is not None and float(setting[1]) > 0
            if self.server and not self.servers and not self.server.streams:
                self.server.pinned = self.pinned
            return
        arguments = server_arguments(text)
        interval = arguments.get("decode_log_interval")
        self.server = None
        if len(self.servers) < _MOST_SERVERS:
            every = interval if isinstance(interval, int) and interval > 0 else None
            self.server = _Server(sglang_cells(arguments), every, self.pinned)
            self.servers.append(self.server)
        self.pinned = False

    def decode(self, block: bytes, lines: Columns) -> None:
        """Take decode and prefill lines of the server that was started last."""
        if self.server and not self.servers and (lines["kind"] != LineKind.PREFILL).any():
            self.fragment = True
            self.servers.append(self.server)
        ranks = np.full(len(lines["rank"]), b"", dtype=object)
        for place in np.flatnonzero(lines["rank_end"] > lines["rank"]).tolist():
            ranks[place] = block[int(lines["rank"][place]) : int(lines["rank_end"][place])]
        streams = self.server.streams if self.server else {}
        distinct = dict.fromkeys(ranks.tolist())
        for rank in distinct:
            part = lines
            if len(distinct) > 1:
                part = {name: column[ranks == rank] for name, column in lines.items()}
            if rank not in streams:
                if self.server is None or self.num_streams >= MOST_STREAMS:
                    decodes = part["line"][part["kind"] == LineKind.DECODE].tolist()
                    _add(self.left_out, "too_many_groups", len(decodes), decodes[:1])
                    continue
                label = ESCAPES.sub(b"", rank).decode("utf-8", "replace")
                numbers = [(name, int(number)) for name, number in _RANK.findall(label)]
                others = tuple(number for name, number in numbers if name != "DP")
                streams[rank] = _Stream(self.num_streams, label, dict(numbers).get("DP"), others)
                self.num_streams += 1
            steady = _steady(streams[rank], part)
            if steady is not None and steady.size:
                self.pool.add(steady)

    def reading(self, log: LogFile) -> Reading:
        """Return what the log says."""
        for stream in self.servers[0].streams.values() if self.servers and self.fragment else ():
            if stream.alone is not None:
                self.pool.add(stream.alone)
                del stream.left_out["warmup"]
                self.noted["single_window"].append(stream.first_line)
        groups, gaps = self.pool.groups()
        _add(self.left_out, "too_many_groups", self.pool.left_out, [self.pool.first_left_out])
        eras: dict[int, None] = {}
        for section, server in enumerate(self.servers):
            counted: dict[int | None, _Stream] = {}  # of the ranks of one DP rank the lowest
            for stream in sorted(server.streams.values(), key=attrgetter("others")):
                reasons = stream.left_out
                if stream.complete and counted.setdefault(stream.data_parallel, stream) != stream:
                    reasons = {"duplicate_rank": (stream.complete, stream.first_line)}
                    reasons |= {"truncated_line": stream.left_out.get("truncated_line", (0, 0))}
                for reason, (count, line) in reasons.items():
                    _add(self.left_out, reason, count, [line])
            before = len(self.rows)
            for stream in sorted(counted.values(), key=attrgetter("first_line")):
                eras |= dict.fromkeys(stream.eras)
                for count, line in gaps[stream.number]:
                    _add(self.left_out, "idle", count, [line])
                for group in groups[stream.number]:
                    self.add_row(section, server, stream, group)
            lines = [row.line for row in self.rows[before:]]
            several = len(counted) > 1 or (server.flags.dp_size or 1) > 1
            for code in (*server.flags.notes, *(["per_rank"] if several else [])) if lines else ():
                self.noted[code] += lines
        dropped = [
            LeftOut(code=code, message=message, path=log.path, line=line, count=count)
            for code, message in _DROPPED.items()
            for count, line in [self.left_out.get(code, (0, 0))]
            if count
        ]
        dropped += [replace(one, path=log.path) for one in self.refused.values()]
        if not self.rows:
            why = "; ".join(f"{drop.count} x {drop.message}" for drop in dropped)
            raise FormatError(
                log.path,
                "the log of an SGLang server with no decode line that can be used"
                + (f": {why}" if why else ", so nothing was measured in it")
                + "; let the server decode at a steady batch for some minutes",
                code="no_rows",
            )
        # Lines without speculation lack the items by which a newer release is known, and so do some
        # others of 0.5.16: a layout that differs from a newer one by such items alone is that one.
        era = [ERAS[one] for one in eras]
        hidden = {
            older for older, newer in (("0.4.6", "0.5.4"), ("0.5.6", "0.5.16")) if newer in era
        }
        era = [one for one in era if one not in hidden]
        if len(era) > 1:
            self.noted["mixed_eras"] = []
        return Reading(
            path=log.path,
            format=FORMAT,
            rows=tuple(sorted(self.rows, key=attrgetter("line"))),
            dropped=tuple(dropped),
            warnings=tuple(
                Note(code, _WARNINGS[code], log.path, tuple(sorted(set(lines))))
                for code, lines in sorted(self.noted.items())
            ),
            era=tuple(era),
            conventions=CONVENTIONS,
        )

    def add_row(self, section: int, server: _Server, stream: _Stream, group: Group) -> None:
        """Add the row of a group, or why it is none."""
        flags, line = server.flags, group.first_line
        if not group.speculative and flags.speculates and not flags.adaptive:
            _add(self.left_out, "missing_accept_length", group.lines, [line])
            return
        cells: dict[str, Cell | None] = {"engine": "sglang", **flags.cells}
        if group.speculative and cells.get("num_steps") == 0:
            del cells["num_steps"]  # the banner is of another server than the lines
        if not group.speculative and not flags.speculates:
            cells["num_steps"] = 0.0
        if group.graph:
            cells["variant"] = "eager" if group.graph == Graph.EAGER else None
        rounds = group.lines * (server.log_interval or 0) * group.batch
        pinned = server.pinned and group.speculative
        batch, accept_length, time_ms = float(group.batch), group.accept_length, group.round_time_ms
        cells |= {
            "batch_size": batch,
            "accept_length": accept_length,
            "output_tokens_per_s": batch * accept_length / (time_ms * MILLI),
            "step_time_ms": time_ms,
            "context_tokens": group.context_tokens or None,
            "throughput_origin": "step_time",
            "verify_rounds": float(rounds) if rounds and group.speculative and not pinned else None,
            "notes": PINNED_NOTE if pinned else None,
        }
        system = (cells["engine"], cells.get("target_model"), cells.get("tp_size"))
        row = measured_row(
            line,
            cells,
            load=(*system, group.batch, group.graph),
            details={
                "lines": float(group.lines),
                "section": float(section),
                "rank": stream.label or None,
                "cuda_graph": float(group.graph == Graph.CAPTURED) if group.graph else None,
            },
        )
        if isinstance(row, LeftOut):
            seen = self.refused.get(row.code, replace(row, line=line, count=0))
            self.refused[row.code] = replace(seen, count=seen.count + 1)
            return
        self.rows.append(row)
        depth, num_draft_tokens = cells.get("num_steps"), cells.get("num_draft_tokens")
        if isinstance(num_draft_tokens, float) and depth == 1:  # a block, drafted in one step
            depth = num_draft_tokens - 1
        unknown = "num_steps" not in cells and not flags.adaptive
        codes = {
            "eager_decode": group.graph == Graph.EAGER,
            "synthetic_acceptance": pinned,
            "depth_unknown": group.speculative
            and unknown
            and "draft_model_idle" not in flags.notes,
            "capped_rounds": group.speculative
            and isinstance(depth, float)
            and stream.least_cap_length < depth,
        }
        for code, holds in codes.items():
            if holds:
                self.noted[code].append(line)


def _steady(stream: _Stream, lines: Columns) -> NDArray[np.float64] | None:
    """Return the lines of a stream that tell the time of a round, for the pool; count the others."""
    kind = lines["kind"]
    after_prefill = np.append(stream.after_prefill, kind[:-1] == LineKind.PREFILL)
    stream.after_prefill = bool(kind[-1] == LineKind.PREFILL)
    cut = lines["line"][kind == LineKind.CUT].tolist()
    _add(stream.left_out, "truncated_line", len(cut), cut[:1])
    chosen = np.flatnonzero(kind == LineKind.DECODE)
    if not len(chosen):
        return None
    line, graph, speculative, era, running, throughput, accept_length, tokens, cap_length = (
        lines[name][chosen] for name in ("line", *_FACTS[1:], *_KEYS)
    )
    busy = (running > 0) & (throughput > 0)
    reasons = {
        "idle": ~busy,
        "warmup": np.arange(len(line)) < (stream.complete == 0),
        "prefill_mixed": after_prefill[chosen],
        "batch_changed": running != np.append(stream.running, running[:-1]),
        "accept_length_out_of_range": (speculative > 0) & (accept_length < 1),
    }
    kept = np.ones(len(line), dtype=np.bool_)
    for reason, holds in reasons.items():
        left = line[kept & holds].tolist()
        _add(stream.left_out, reason, len(left), left[:1])
        kept &= ~holds
    # what came before the first line of a fragment is not known; alone it is better than nothing
    sound = busy & ~reasons["prefill_mixed"] & ~reasons["accept_length_out_of_range"]
    alone = bool(reasons["warmup"][0] and sound[0])
    kept[0] |= alone
    stream.first_line = stream.first_line or int(line[0])
    stream.complete += len(line)
    stream.running = float(running[-1])
    stream.eras += sorted({*era[busy].tolist()} - {*stream.eras})
    caps = cap_length[busy & (cap_length > 0)]
    stream.least_cap_length = min(stream.least_cap_length, float(caps.min(initial=math.inf)))
    accept_length = np.where(speculative > 0, accept_length, 1.0)
    steady = np.array((line, running, graph, speculative, accept_length, throughput, tokens))[
        :, kept
    ]
    line, running, graph, speculative, accept_length, throughput, tokens = steady
    number = np.full(len(line), stream.number)
    time_ms = running * accept_length / throughput / MILLI  # each request emits that a round
    context = tokens / running
    told = np.array((number, line, running, graph, speculative, accept_length, time_ms, context))
    if told.shape[1] > alone:
        stream.alone = None
    elif alone:
        stream.alone = told
    return told[:, int(alone) :]


def _add(left_out: _Reasons, reason: str, count: int, lines: list[int]) -> None:
    """Count lines that are left out for a reason, the first of which is given."""
    if count:
        before, first = left_out.get(reason, (0, lines[0]))
        left_out[reason] = (before + count, min(first, lines[0]))
