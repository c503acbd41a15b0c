"""SGLang server logs: the decode lines of a server, pooled by batch size into rows."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from calibration.readers.decode_groups import DecodePool
from calibration.readers.decode_streams import DropCounts, RankStream
from calibration.readers.log_file import LogFile
from calibration.readers.reading import Dropped, PointWarning, Reading
from calibration.readers.row_checks import Refusal
from calibration.readers.sglang_flags import NOTE_MESSAGES, SglangFlags, sglang_cells
from calibration.readers.sglang_launch import pinned_accept_length, server_arguments
from calibration.readers.sglang_line_layout import ERAS, MASK, LineKind, line_layout
from calibration.readers.sglang_line_scan import NO_RANK, BatchLines, LineScanner, StartLine
from calibration.readers.sglang_log_rows import (
    LogFindings,
    ServerSection,
    add_rows,
)
from specmodel.errors import FormatError
from specmodel.units import MEBI

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
CONVENTIONS: Final = (
    "Each decode line covers the rounds since the line before it, 40 by default, on one DP rank.",
    "accept len counts the bonus token; gen throughput is that of the rank's whole batch.",
    (
        "A line's round time in ms is 1000 x #running-req x accept len / gen throughput; no accept len "
        "means a plain step of a baseline. accept rate is not used, its meaning changed twice."
    ),
    (
        "A row pools the steady lines of one server, rank, batch size, graph flag and context band: "
        "medians; the throughput is decode-only and follows from them."
    ),
    "Contexts within a factor of 3 are one band, wider ones are split at powers of 4.",
    "A gap is a line with 4 to 8 times the usual round time of its group, or more.",
    (
        "Medians are exact up to 32768 different values of a group, then within 0.0008 %, and coarser "
        "only in logs with very many groups."
    ),
)

_DROPPED: Final[Mapping[str, str]] = {
    "truncated_line": "decode line without #running-req, gen throughput and #queue-req: cut off",
    "duplicate_rank": "decode line of another tensor-parallel rank of the same group",
    "idle": "nothing ran, or the time since the line before holds a gap in which nothing ran",
    "warmup": "first decode line of a rank: its time holds the start of the server",
    "prefill_mixed": "prompts were read since the decode line before",
    "batch_changed": "the number of running requests changed since the decode line before",
    "accept_length_out_of_range": "accept len below 1, but a round emits at least the bonus token",
    "missing_accept_length": "no accept len, though the server was started with speculation",
    "too_many_groups": "more ranks, servers or batch sizes than a log of one machine has",
}

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
    reader = _LogReader()
    for block in log.blocks(_BLOCK_BYTES):
        reader.take(block)
    return reader.reading(log)


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

    def take(self, block: bytes) -> None:
        """Read the next block."""
        for piece in self._scanner.scan(block):
            if isinstance(piece, StartLine):
                self._start(piece)
            else:
                self._decode(piece)

    def reading(self, log: LogFile) -> Reading:
        """Return what the log says, after its last block."""
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
                PointWarning(
                    code=code,
                    message=_WARNINGS[code],
                    path=log.path,
                    lines=tuple(sorted(set(lines))),
                )
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


def _dropped(log: LogFile, findings: LogFindings) -> Iterable[Dropped]:
    """Yield what was left out, by reason."""
    for code, message in _DROPPED.items():
        count, first_line = findings.drops.of(code)
        if count:
            yield Dropped(path=log.path, line=first_line, code=code, message=message, count=count)
    refused: dict[str, list[tuple[int, Refusal]]] = defaultdict(list)
    for line, refusal in sorted(findings.refused, key=lambda found: found[0]):
        refused[refusal.code].append((line, refusal))
    for code, found in refused.items():
        line, refusal = found[0]
        yield Dropped(
            path=log.path,
            line=line,
            code=code,
            message=refusal.message,
            column=refusal.column,
            count=len(found),
        )


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
