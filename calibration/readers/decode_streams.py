"""Which decode lines of a rank are steady: the rest is counted by reason."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.readers.decode_groups import DecodeLines
from calibration.readers.sglang_line_layout import LineKind
from calibration.readers.sglang_line_scan import BatchLines
from specmodel.units import MILLI

# Why a decode line is left out; the first that holds is counted.
REASONS: Final = (
    *("truncated_line", "duplicate_rank", "idle", "warmup", "prefill_mixed", "batch_changed"),
    *("accept_length_out_of_range", "missing_accept_length", "too_many_groups"),
)


@dataclass(slots=True)
class DropCounts:
    """How many lines were left out, by reason, and the first of each."""

    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, reason: str, count: int, first_line: int) -> None:
        """Count lines."""
        if count:
            before, first = self._counts.get(reason, (0, first_line))
            self._counts[reason] = (before + count, min(first, first_line))

    def of(self, reason: str) -> tuple[int, int]:
        """Return the number of lines and the first one."""
        return self._counts.get(reason, (0, 0))

    def merge(self, other: "DropCounts") -> None:
        """Add the counts of another."""
        for reason in REASONS:
            self.add(reason, *other.of(reason))


@dataclass(slots=True)
class RankStream:
    """The decode lines of one rank of one server, in their order."""

    number: int  # of the stream, as in `DecodePool.add`
    label: str  # of the rank, as in the log
    drops: DropCounts = field(init=False, default_factory=DropCounts)
    complete: int = field(init=False, default=0)
    first_line: int = field(init=False, default=0)
    least_cap_length: float = field(init=False, default=np.inf)
    eras: list[int] = field(init=False, default_factory=list)
    _running: float = field(init=False, default=-1.0)
    _after_prefill: bool = field(init=False, default=False)

    def steady(self, lines: BatchLines) -> DecodeLines | None:
        """Return the lines that tell the time of a round, counting the others."""
        prefill = lines.kind == LineKind.PREFILL
        after_prefill = np.concatenate(([self._after_prefill], prefill[:-1]))
        self._after_prefill = bool(prefill[-1])
        cut = np.flatnonzero(lines.kind == LineKind.CUT)
        if len(cut):
            self.drops.add("truncated_line", len(cut), int(lines.line[cut[0]]))
        chosen = np.flatnonzero(lines.kind == LineKind.DECODE)
        if not len(chosen):
            return None
        decode, after_prefill = lines.take(chosen), after_prefill[chosen]
        before = np.concatenate(([self._running], decode.running[:-1]))
        first = np.zeros(len(chosen), dtype=np.bool_)
        first[0] = self.complete == 0
        idle = (decode.running == 0) | (decode.throughput == 0)
        impossible = decode.speculative & (decode.accept_length < 1)
        reasons: dict[str, NDArray[np.bool_]] = {
            "idle": idle,
            "warmup": first,
            "prefill_mixed": after_prefill,
            "batch_changed": decode.running != before,
            "accept_length_out_of_range": impossible,
        }
        self._note(decode, ~idle)
        left = np.ones(len(chosen), dtype=np.bool_)
        for reason, holds in reasons.items():
            dropped = np.flatnonzero(left & holds)
            if len(dropped):
                self.drops.add(reason, len(dropped), int(decode.line[dropped[0]]))
                left[dropped] = False
        kept = np.flatnonzero(left)
        return _measured(decode.take(kept)) if len(kept) else None

    def _note(self, decode: BatchLines, busy: NDArray[np.bool_]) -> None:
        """Remember what the lines after these need, and what is said of all of them."""
        if not self.complete:
            self.first_line = int(decode.line[0])
        self.complete += len(decode.line)
        self._running = float(decode.running[-1])
        eras = decode.era[busy]
        if len(eras):
            self.eras += [era for era in np.unique(eras).tolist() if era not in self.eras]
        capped = busy & (decode.cap_length > 0)
        if capped.any():
            least = float(decode.cap_length[capped].min())
            self.least_cap_length = min(self.least_cap_length, least)


def _measured(decode: BatchLines) -> DecodeLines:
    """Return what each line measures: `running` requests, each `accept_length` tokens a round."""
    accept_length = np.where(decode.speculative, decode.accept_length, 1.0)
    return DecodeLines(
        line=decode.line,
        batch=decode.running.astype(np.int64),
        graph=decode.graph,
        speculative=decode.speculative,
        accept_length=accept_length,
        round_time_ms=decode.running * accept_length / decode.throughput / MILLI,
        context_tokens=decode.tokens / decode.running,
    )
