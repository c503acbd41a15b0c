"""Tables that the evaluation of Speculators writes: acceptance by subset, with or without rates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calibration.readers.acceptance_counts import (
    ACCEPTANCE_MESSAGES,
    ChainAcceptance,
    chain_acceptance,
)
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.model_names import plain_name
from calibration.readers.numerals import NumeralError, parse_number, uses_decimal_comma
from calibration.readers.reading import Reading, SourceText
from calibration.readers.text_tables import split_table
from specmodel.errors import LeftOut

# What both tables mean.
ACCEPTANCE_CONVENTIONS: Final = conventions("speculators_acceptance")

_POSITION = re.compile(r"acceptance_at_pos_(\d{1,3})", re.ASCII)
_LOADS = frozenset({"strategy", "target_rate", "output_tps_median", "rps_median"})
_COUNTS = frozenset({"num_drafts", "num_accepted_tokens"})
_NAMES = frozenset({"subset", "num_drafts", "num_draft_tokens", "num_accepted_tokens", *_LOADS})
_HEADER_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetRecord:
    """One line of a table."""

    line: int  # of the file
    cells: Mapping[str, str]  # as written, by the name of their column
    complete: bool  # whether there are as many cells as columns
    decimal_comma: bool = False  # whether the comma is the decimal sign

    @property
    def subset(self) -> str | None:
        """The name of the data."""
        return plain_name(self.cells.get("subset"))

    def number(self, name: str) -> float | None:
        """Return the number of a column, None where it has none."""
        try:
            return parse_number(self.cells.get(name, ""), decimal_comma=self.decimal_comma)
        except NumeralError:
            return None

    def acceptance(self) -> ChainAcceptance | LeftOut:
        """Return the acceptance of the subset, or why there is none."""
        places = sorted(int(found[1]) for found in map(_POSITION.fullmatch, self.cells) if found)
        rates: list[float] = []
        for place in places:
            rate = self.number(f"acceptance_at_pos_{place}")
            if rate is None or place != len(rates):
                break
            rates.append(rate)
        found = chain_acceptance(
            rounds=self.number("num_drafts"),
            drafted=self.number("num_draft_tokens"),
            accepted=self.number("num_accepted_tokens"),
            printed_length=self.number("acceptance_length"),
            rates=rates,
        )
        return found or LeftOut(
            code="malformed",
            column="num_drafts",
            message="neither counts of drafts nor an accept length; is the line cut off?",
        )


def is_evaluation(head: str, *, with_loads: bool) -> bool:
    """Return whether a text is a table of an evaluation."""
    lines = (line for line in head[:_HEADER_CHARACTERS].splitlines() if line.strip(" ,;\t"))
    header = next((line for line in lines if not line.startswith(("#", "sep="))), "")
    if header.lstrip().startswith(("{", "[")):
        return False
    names = {_name(cell) for cell in re.split(r"[,;\t]", header)}
    counted = names >= _COUNTS or any(_POSITION.fullmatch(name) for name in names)
    return "subset" in names and counted and bool(names & _LOADS) == with_loads


def read_evaluation(text: str) -> tuple[SubsetRecord, ...]:
    """Return the lines of a table."""
    table = split_table(text, lambda written: _name(written) in _NAMES)
    if table is None:
        return ()
    names = [_name(cell) for cell in table.header.cells]
    numbers = (cell for record in table.records for cell in record.cells[1:])
    comma = table.separator != "," and uses_decimal_comma(numbers)
    return tuple(
        SubsetRecord(
            line=record.line,
            cells=dict(zip(names, record.cells, strict=False)),
            complete=len(record.cells) == len(names),
            decimal_comma=comma,
        )
        for record in table.records
    )


def _name(written: str) -> str:
    """Return the name of a column."""
    return written.strip().strip('"').casefold()


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
        if isinstance(acceptance, LeftOut):
            findings.refuse(record.line, acceptance)
            continue
        cells = {**acceptance.cells, "engine": "vllm", "workload": record.subset}
        details = {"rounds": acceptance.rounds}
        findings.keep(
            record.line, measured_row(record.line, cells, details=details), acceptance.notes
        )
    return findings.reading(FORMAT, "a header, and no subset below it", conventions=_CONVENTIONS)
