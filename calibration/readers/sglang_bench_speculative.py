"""JSON lines of SGLang's ``bench_speculative.py``: a sweep over depths and batch sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    json_keys,
    json_records,
    number_at,
    positive_at,
)
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.sglang_flags import NOTE_MESSAGES, sglang_cells
from specmodel.errors import LeftOut
from specmodel.units import MILLI

_ROUNDING = 1e-9


def sweep_cells(
    fields: Mapping[str, Any], *, accept_length: float | None
) -> tuple[dict[str, Cell | None], list[str]]:
    """Return the speculation cells of a setting, and codes of what is to be said about it."""
    num_steps = number_at(fields, "steps")
    if num_steps == 0:
        known = 1.0 if accept_length is None or accept_length <= 0 else accept_length
        return {"engine": "sglang", "num_steps": 0.0, "accept_length": known}, []
    cells: dict[str, Cell | None] = {"engine": "sglang", "accept_length": accept_length}
    if num_steps is None:
        return cells, ["depth_unknown"] if (accept_length or 0) > 1 else []
    flags = sglang_cells(
        {
            "speculative_num_steps": num_steps,
            "speculative_eagle_topk": number_at(fields, "topk"),
            "speculative_num_draft_tokens": number_at(fields, "num_draft_tokens"),
        }
    )
    return cells | flags.cells, list(flags.notes)


def sweep_refusal(cells: Mapping[str, Cell | None]) -> LeftOut | None:
    """Return why no setting can have its accept length; None where it can."""
    accept_length = cells.get("accept_length")
    if not isinstance(accept_length, float):
        return LeftOut(
            code="missing_accept_length",
            column="accept_length",
            message="no accept length of a run that drafts",
        )
    if cells.get("num_steps") != 0 or accept_length <= 1 + _ROUNDING:
        return None
    return LeftOut(
        code="accept_length_above_depth",
        column="accept_length",
        message=f"{accept_length:g} tokens a step without drafts; a step emits one, so the server "
        "speculated after all",
    )


FORMAT: Final = "sglang_bench_speculative"

_KEYS = frozenset({"batch_size", "steps", "acc_length", "step_time", "speed"})
_MESSAGES: Final[Mapping[str, str]] = {
    "depth_unknown": "no number of steps in the line: num_steps is left empty",
    "draft_tokens_forced": NOTE_MESSAGES["draft_tokens_forced"],
    "speed_mismatch": "speed differs from acc_length / step_time by more than 5 %, which it is "
    "made of; one of the three was edited",
}
_CONVENTIONS: Final = conventions("sglang_bench_speculative")
_SPEED_TOLERANCE = 0.05


@dataclass(slots=True)
class _Runs:
    """Which run of an appended file a line belongs to."""

    run: int = 0
    seen: set[float | None] = field(default_factory=set)

    def number(self, batch_size: float | None, *, baseline: bool) -> int:
        """Return the run of a line; a baseline at a batch that has one starts the next."""
        if baseline and batch_size in self.seen:
            self.run += 1
            self.seen.clear()
        if baseline:
            self.seen.add(batch_size)
        return self.run


def recognise(head: str) -> bool:
    """Return whether a text is JSON lines of ``bench_speculative.py``."""
    return json_keys(head) >= _KEYS


def read(source: SourceText) -> Reading:
    """Return a row for each line."""
    found = json_records(source)
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    findings.drop_cut_off(found.broken, CUT_OFF)
    runs = _Runs()
    for record in found.records:
        _read_record(record, runs, findings)
    return findings.reading(FORMAT, conventions=_CONVENTIONS)


def _read_record(record: JsonRecord, runs: _Runs, findings: Findings) -> None:
    """Add the row of one line, or why there is none."""
    fields = record.fields
    if not fields.keys() & {"step_time", "speed"}:
        findings.drop("other_record", record.line, "no line of this benchmark; left out")
        return
    batch_size, num_steps = number_at(fields, "batch_size"), number_at(fields, "steps")
    run = runs.number(batch_size, baseline=num_steps == 0)
    cells, notes = sweep_cells(fields, accept_length=number_at(fields, "acc_length"))
    refusal = sweep_refusal(cells)
    step_time_s = number_at(fields, "step_time")
    if batch_size is None:
        findings.drop("missing_batch_size", record.line, "no batch size", column="batch_size")
    elif step_time_s is None or step_time_s <= 0:
        findings.drop(
            "missing_step_time",
            record.line,
            "no time of a round; the server records it with SGLANG_RECORD_STEP_TIME=1",
            column="step_time",
        )
    elif refusal is not None:
        findings.refuse(record.line, refusal)
    else:
        speed = _speed(fields, cells, step_time_s, notes)
        cells |= {
            "batch_size": batch_size,
            "output_tokens_per_s": None if speed is None else speed * batch_size,
            "step_time_ms": step_time_s / MILLI,
            "output_tokens": positive_at(fields, "completion_tokens"),
            "throughput_origin": "step_time",
        }
        row = measured_row(record.line, cells, load=(run, batch_size))
        findings.keep(record.line, row, notes)


def _speed(
    fields: Mapping[str, Any],
    cells: Mapping[str, Cell | None],
    step_time_s: float,
    notes: list[str],
) -> float | None:
    """Return the decode throughput of one request, [tokens/s]; say if it does not fit."""
    speed, accept_length = positive_at(fields, "speed"), cells.get("accept_length")
    made_of = accept_length / step_time_s if isinstance(accept_length, float) else None
    if speed is None or made_of is None:
        return speed or made_of
    if abs(speed - made_of) > _SPEED_TOLERANCE * made_of:
        notes.append("speed_mismatch")
    return speed
