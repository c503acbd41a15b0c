"""Replies of SGLang's ``/server_info`` (older: ``/get_server_info``): flags and what it recorded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    at,
    broken_json,
    json_keys,
    json_records,
    json_value,
    number_at,
)
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.sglang_flags import NOTE_MESSAGES, SglangFlags, sglang_cells
from specmodel.units import MILLI

FORMAT: Final = "sglang_server_info"

_FLAT, _PER_RANK = "0.4.3", "0.4.6"  # where the state stands: among the flags, or in a list
_STATES = "internal_states"
_STATE_KEYS = frozenset({"avg_spec_accept_length", "last_gen_throughput", "step_time_dict"})
_OTHER_FORMATS = frozenset({"server_info", "completed", "meta_info", "results"})
_PERCENTILE = 20.0  # of the gaps: idle and prefill stand in the upper ones
_ROUNDING = 1e-9
_FEWEST_SAMPLES = 3  # below it one gap with idle time moves the percentile
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_MESSAGES: Final[Mapping[str, str]] = {
    **NOTE_MESSAGES,
    "accept_thresholds_changed": "the accept thresholds of a running server were changed: the "
    "accept length may mix both",
    "few_samples": "fewer than 3 step times at a batch size: one gap with idle time in it may be the "
    "20th percentile",
    "depth_unknown": "no number of steps among the server arguments: num_steps is left empty",
    "last_interval_throughput": "no step times (SGLANG_RECORD_STEP_TIME=1 records them): the "
    "throughput is that of the last interval, at a batch size nobody knows",
    "lifetime_counters": "the accept length is an average since the server started or was flushed, "
    "over all batch sizes and warm-up",
    "no_throughput": "acceptance alone: the server was idle, and no step times were recorded",
    "per_rank": "several data-parallel ranks: batch size and throughput are those of one rank, not "
    "of the server",
}
_CONVENTIONS: Final = conventions("sglang_server_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one scheduler recorded."""

    line: int
    name: str | None  # None where the server has one
    state: Mapping[str, Any]
    flags: SglangFlags
    notes: tuple[str, ...]

    @property
    def accept_length(self) -> float | None:
        """Tokens of a round; of a plain step 1."""
        measured = number_at(self.state, "avg_spec_accept_length") or None
        return 1.0 if self.flags.speculates is False and measured is None else measured

    def cells(self) -> dict[str, Cell | None]:
        """Return what all of its rows share."""
        return {"engine": "sglang", "accept_length": self.accept_length, **self.flags.cells}


def recognise(head: str) -> bool:
    """Return whether a text is a reply about a server, not a benchmark that quotes one."""
    keys = json_keys(head)
    if not keys or keys & _OTHER_FORMATS:
        return False
    return _STATES in keys or {"model_path", "speculative_algorithm"} <= keys


def read(source: SourceText) -> Reading:
    """Return a row for each rank and recorded batch size."""
    found = json_records(source)
    replies = [record for record in found.records if _is_reply(record.fields)]
    if found.broken and not replies:
        json_value(source)
        raise broken_json(source, found.broken[0], "cut off, or not closed as it was opened")
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    findings.drop_cut_off(found.broken, CUT_OFF)
    eras: dict[str, None] = {}
    for reply in replies:
        kept = len(findings.rows)
        for rank in _ranks(reply):
            _add_rows(rank, findings)
        if len(findings.rows) > kept:
            eras[_PER_RANK if _STATES in reply.fields else _FLAT] = None
    return findings.reading(FORMAT, era=tuple(eras), conventions=_CONVENTIONS)


def _is_reply(fields: Mapping[str, Any]) -> bool:
    """Return whether an object is a reply about a server."""
    return _STATES in fields or "model_path" in fields or "speculative_algorithm" in fields


def _ranks(reply: JsonRecord) -> Iterable[_Rank]:
    """Yield the schedulers of a server."""
    fields = reply.fields
    written = fields.get(_STATES) if _STATES in fields else [fields]
    states = written if isinstance(written, list) else [written]
    states = [state for state in states if isinstance(state, dict)]
    for index, state in enumerate(states):
        flags = sglang_cells({**fields, **state})
        notes = [*flags.notes]
        if flags.speculates and any(
            number_at(state, name) not in {None, number_at(fields, name)} for name in _THRESHOLDS
        ):
            notes.append("accept_thresholds_changed")
        if "num_steps" not in flags.cells and not flags.adaptive:
            notes.append("depth_unknown")
        several = len(states) > 1
        yield _Rank(
            line=reply.line,
            name=f"DP{index}" if several else None,
            state=state,
            flags=flags,
            notes=(*notes, "per_rank") if several else tuple(notes),
        )


def _add_rows(rank: _Rank, findings: Findings) -> None:
    """Add the rows of one scheduler, or why there are none."""
    if not rank.state.keys() & _STATE_KEYS:
        findings.drop("no_state", rank.line, "flags alone: this reply says nothing of any run")
        return
    if rank.accept_length is None:
        findings.drop(
            "no_rounds",
            rank.line,
            "no accept length: the server speculates and had no round yet, or was flushed",
        )
        return
    if rank.flags.speculates is False and rank.accept_length > 1 + _ROUNDING:
        findings.drop(
            "accept_length_above_depth",
            rank.line,
            f"accept length {rank.accept_length:g}, but no algorithm among the flags",
        )
        return
    notes = rank.notes
    if rank.flags.speculates is not False:
        notes = (*notes, "lifetime_counters")
    step_times = at(rank.state, "step_time_dict")
    if isinstance(step_times, dict) and step_times:
        for batch_size, gaps in step_times.items():
            _add_batch(rank, str(batch_size), gaps, notes, findings)
    else:
        _add_last_interval(rank, notes, findings)


def _add_batch(
    rank: _Rank, written: str, gaps: object, notes: tuple[str, ...], findings: Findings
) -> None:
    """Add the row of one recorded batch size, or why there is none."""
    batch_size = number_at({"batch_size": written}, "batch_size")
    if not batch_size or batch_size < 0:
        findings.drop("idle", rank.line, "step times with no running request")
        return
    measured = [number_at({"gap": gap}, "gap") for gap in (gaps if isinstance(gaps, list) else ())]
    times_s = [gap for gap in measured if gap is not None and gap > 0]
    if not times_s:
        findings.drop("no_samples", rank.line, f"no step time at batch size {batch_size:g}")
        return
    if len(times_s) < _FEWEST_SAMPLES:
        notes = (*notes, "few_samples")
    step_time_s = float(np.percentile(times_s, _PERCENTILE))
    cells = rank.cells()
    accept_length = rank.accept_length or 1.0
    cells |= {
        "batch_size": batch_size,
        "step_time_ms": step_time_s / MILLI,
        "output_tokens_per_s": batch_size * accept_length / step_time_s,
        "throughput_origin": "step_time",
    }
    flags = rank.flags.cells
    load = (
        *(FORMAT, flags.get("target_model"), flags.get("tp_size"), rank.flags.dp_size),
        *(flags.get("variant"), batch_size),
    )
    details = {"samples": float(len(times_s)), "rank": rank.name}
    row = measured_row(rank.line, cells, load=load, details=details)
    findings.keep(rank.line, row, notes)


def _add_last_interval(rank: _Rank, notes: tuple[str, ...], findings: Findings) -> None:
    """Add the row of a scheduler that recorded no step times."""
    throughput = number_at(rank.state, "last_gen_throughput")
    known = throughput if throughput is not None and throughput > 0 else None
    cells = rank.cells() | {"output_tokens_per_s": known}
    notes = (*notes, "no_throughput" if known is None else "last_interval_throughput")
    row = measured_row(rank.line, cells, details={"rank": rank.name})
    findings.keep(rank.line, row, notes)
