"""JSON lines of SGLang's ``bench_one_batch_server``: one batch at a time, decode apart."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.json_text import (
    CUT_OFF,
    JsonRecord,
    json_keys,
    json_records,
    number_at,
    positive_at,
    text_at,
)
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.units import MILLI

# What the notes of `one_batch_cells` say to a user.
ONE_BATCH_MESSAGES: Final = messages("sglang_bench_one_batch_server")

_NOT_SPECULATING = ("n/a", "na", "none", "null", "-", "\N{EM DASH}", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a case says of speculation."""

    is_known: bool  # whether the layout says it
    accept_length: float | None = None  # none where it says that there is none

    @property
    def is_baseline(self) -> bool:
        """Whether the server did not speculate."""
        return self.is_known and self.accept_length is None


def acceptance_of(written: object) -> Acceptance:
    """Return what an accept length means that stands in a case."""
    if written is None:
        return Acceptance(is_known=True)
    if isinstance(written, str):
        if written.strip().casefold() in _NOT_SPECULATING:
            return Acceptance(is_known=True)
        try:
            written = float(written)
        except ValueError:
            return Acceptance(is_known=False)
    if isinstance(written, bool) or not isinstance(written, int | float):
        return Acceptance(is_known=False)
    if not math.isfinite(written):
        return Acceptance(is_known=False)
    return Acceptance(is_known=True, accept_length=float(written) if written > 0 else None)


def one_batch_cells(
    batch_size: float, output_tokens_per_s: float, acceptance: Acceptance
) -> tuple[dict[str, Cell | None], tuple[str, ...]]:
    """Return the cells of a case, and codes of `ONE_BATCH_MESSAGES`."""
    cells: dict[str, Cell | None] = {
        "engine": "sglang",
        "batch_size": batch_size,
        "output_tokens_per_s": output_tokens_per_s,
        "throughput_origin": "step_time",
    }
    if not acceptance.is_known:
        return cells, ("speculation_unknown",)
    if acceptance.accept_length is None:
        cells["num_steps"] = 0.0
    accept_length = acceptance.accept_length or 1.0
    cells["accept_length"] = accept_length
    cells["step_time_ms"] = batch_size * accept_length / output_tokens_per_s / MILLI
    return cells, () if acceptance.is_baseline else ("depth_unknown",)


FORMAT: Final = "sglang_bench_one_batch_server"

_KEYS = frozenset({"run_name", "batch_size", "output_throughput"})
_ONE_OF = frozenset({"last_gen_throughput", "overall_throughput", "last_ttft"})
_STEADY = "steady_state_output_throughput"
_MESSAGES: Final[Mapping[str, str]] = {
    **ONE_BATCH_MESSAGES,
    "early_stopped": "requests ended early and the batch shrank; without a steady window, while all "
    "ran, the throughput is that of the shrinking batch",
    "repeated_run": "the same run name and load stands more than once (results are appended to "
    "the file): all were kept, older ones may be of another server",
}
_CONVENTIONS: Final = conventions("sglang_bench_one_batch_server")
_WARM_UP = ("warmup", "warm-up", "warm_up")


def recognise(head: str) -> bool:
    """Return whether a text is JSON lines of ``bench_one_batch_server``."""
    keys = json_keys(head)
    return keys >= _KEYS and bool(keys & _ONE_OF)


def read(source: SourceText) -> Reading:
    """Return a row for each line."""
    found = json_records(source)
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    findings.drop_cut_off(found.broken, CUT_OFF)
    eras: dict[str, None] = {}
    seen: set[tuple[object, ...]] = set()
    for record in found.records:
        if "run_name" not in record.fields or "batch_size" not in record.fields:
            findings.drop("other_record", record.line, "no line of this benchmark; left out")
            continue
        eras.setdefault(_era(record.fields))
        _read_record(record, findings, seen)
    return findings.reading(FORMAT, era=tuple(eras), conventions=_CONVENTIONS)


def _era(fields: Mapping[str, Any]) -> str:
    """Return the oldest release that writes a layout."""
    if fields.keys() & {"num_early_stopped", "total_output_tokens", _STEADY}:
        return "0.5.23"
    if "cache_hit_rate" in fields:
        return "0.5.9"
    return "0.5.6" if "acc_length" in fields else "0.4.6"


def _read_record(record: JsonRecord, findings: Findings, seen: set[tuple[object, ...]]) -> None:
    """Add the row of one line, or why there is none."""
    fields, line = record.fields, record.line
    name = text_at(fields, "run_name") or ""
    batch_size = positive_at(fields, "batch_size")
    steady = positive_at(fields, _STEADY)
    throughput = steady or positive_at(fields, "output_throughput")
    written = fields.get("acc_length")
    acceptance = acceptance_of(written) if "acc_length" in fields else Acceptance(is_known=False)
    stopped = (number_at(fields, "num_early_stopped") or 0) > 0
    if name.casefold() in _WARM_UP:
        findings.drop("warmup", line, "a warm-up run")
    elif batch_size is None:
        findings.drop("missing_batch_size", line, "no batch size", column="batch_size")
    elif throughput is None:
        findings.drop("missing_throughput", line, "no throughput", column="output_throughput")
    elif "acc_length" in fields and not acceptance.is_known:
        findings.drop("not_a_number", line, "accept length is no number", column="acc_length")
    else:
        cells, notes = one_batch_cells(batch_size, throughput, acceptance)
        input_len, output_len = number_at(fields, "input_len"), positive_at(fields, "output_len")
        total = positive_at(fields, "total_output_tokens")
        last_ttft_s = number_at(fields, "last_ttft")
        ttft_s = number_at(fields, "ttft") if last_ttft_s is None else last_ttft_s
        cells |= {
            "context_tokens": None if input_len is None else input_len + (output_len or 0) / 2,
            "output_tokens": output_len if total is None else total / batch_size,
            "ttft_ms": None if ttft_s is None or ttft_s < 0 else ttft_s / MILLI,
        }
        load = (batch_size, input_len, output_len)
        case = (name, acceptance.is_baseline, *load)
        is_new = case not in seen
        seen.add(case)
        if not is_new:
            notes += ("repeated_run",)
        row = measured_row(line, cells, load=load if acceptance.is_known else None)
        findings.keep(line, row, (*notes, *(("early_stopped",) if stopped else ())))
