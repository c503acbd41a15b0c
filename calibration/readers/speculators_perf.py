"""``perf_results.csv`` of the evaluation of Speculators: throughput at each load of a subset."""

from collections import Counter
from typing import Final

from calibration.readers.acceptance_counts import ACCEPTANCE_MESSAGES
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.speculators_acceptance import (
    ACCEPTANCE_CONVENTIONS,
    SubsetRecord,
    is_evaluation,
    read_evaluation,
)
from specmodel.errors import LeftOut

FORMAT: Final = "speculators_perf"

_CONVENTIONS = (
    *ACCEPTANCE_CONVENTIONS,
    (
        "Acceptance is counted over all loads of a subset and repeated on each of its lines; throughput "
        "and latencies are those of the line."
    ),
    "Throughput and time to the first token are medians over the run.",
    "Only a synchronous run says its batch size, which is 1.",
)
_MESSAGES = {
    **ACCEPTANCE_MESSAGES,
    "acceptance_pooled": "acceptance is the pool over all loads of a subset, throughput is per load",
}


def recognise(head: str) -> bool:
    """Return whether a text is such a table."""
    return is_evaluation(head, with_loads=True)


def read(source: SourceText) -> Reading:
    """Return a row for each load of each subset."""
    findings = Findings(source.path, _MESSAGES)
    without_rounds: set[str | None] = set()
    first_lines: dict[str | None, int] = {}
    loads: Counter[str | None] = Counter()
    for record in read_evaluation(source.text):
        acceptance = record.acceptance()
        if not record.complete:
            findings.drop("malformed", record.line, "not as many cells as columns; cut off?")
            continue
        if isinstance(acceptance, LeftOut):
            if acceptance.code == "no_verify_rounds" and record.subset in without_rounds:
                continue  # subsets are counted, not their loads
            without_rounds.add(record.subset)
            findings.refuse(record.line, acceptance)
            continue
        row = measured_row(
            record.line,
            {**acceptance.cells, **_load_cells(record)},
            details={"rounds": acceptance.rounds},
        )
        if findings.keep(record.line, row, acceptance.notes):
            first_lines.setdefault(record.subset, record.line)
            loads[record.subset] += 1
    for subset, line in first_lines.items():
        if loads[subset] > 1:
            findings.warn("acceptance_pooled", line)
    return findings.reading(FORMAT, "a header, and no run below it", conventions=_CONVENTIONS)


def _load_cells(record: SubsetRecord) -> dict[str, Cell | None]:
    """Return the columns that belong to one load."""
    strategy = record.cells.get("strategy", "").strip().casefold()
    ttft_ms = record.number("ttft_median_ms")
    return {
        "engine": "vllm",
        "workload": record.subset,
        "output_tokens_per_s": record.number("output_tps_median"),
        "ttft_ms": ttft_ms,
        "batch_size": 1.0 if strategy == "synchronous" else None,
    }
