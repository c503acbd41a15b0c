"""``acceptance.csv`` of the evaluation of Speculators: acceptance of each subset."""

from typing import Final

from calibration.readers.draft_counts import ACCEPTANCE_MESSAGES
from calibration.readers.findings import Findings
from calibration.readers.measured_row import measured_row
from calibration.readers.reading import Reading, SourceText
from calibration.readers.row_checks import Refusal
from calibration.readers.speculators_table import (
    ACCEPTANCE_CONVENTIONS,
    is_evaluation,
    read_evaluation,
)

FORMAT: Final = "speculators_acceptance"

_CONVENTIONS = (
    *ACCEPTANCE_CONVENTIONS,
    "The table holds no times; throughputs are in perf_results.csv beside it.",
)


def recognise(head: str) -> bool:
    """Return whether a text is such a table."""
    return is_evaluation(head, with_loads=False)


def read(source: SourceText) -> Reading:
    """Return a row for each subset."""
    findings = Findings(source.path, ACCEPTANCE_MESSAGES)
    for record in read_evaluation(source.text):
        acceptance = record.acceptance()
        if not record.complete:
            findings.drop("malformed", record.line, "not as many cells as columns; cut off?")
            continue
        if isinstance(acceptance, Refusal):
            findings.refuse(record.line, acceptance)
            continue
        cells = {**acceptance.cells, "engine": "vllm", "workload": record.subset}
        details = {"rounds": acceptance.rounds}
        findings.keep(
            record.line, measured_row(record.line, cells, details=details), acceptance.notes
        )
    return findings.reading(FORMAT, "a header, and no subset below it", conventions=_CONVENTIONS)
