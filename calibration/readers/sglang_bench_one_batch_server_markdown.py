"""Markdown tables of SGLang's ``bench_one_batch_server``, alone or in a longer text."""

from collections.abc import Mapping
from typing import Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions
from calibration.readers.numerals import NumeralError, parse_number
from calibration.readers.reading import Reading, SourceText
from calibration.readers.sglang_bench_one_batch_server import (
    ONE_BATCH_MESSAGES,
    Acceptance,
    acceptance_of,
    one_batch_cells,
)
from calibration.readers.text_tables import Headings, PipeRow, has_table, pipe_rows
from specmodel.units import MILLI

FORMAT: Final = "sglang_bench_one_batch_server_markdown"

_BATCH_SIZE = ("batch size", "bs")
_THROUGHPUT = ("output throughput", "output tput")
_ACC_LENGTH = ("acc length", "accept length")
_INPUT_LEN = ("input len", "input length")
_OUTPUT_LEN = ("output len", "output length")
_ITL = ("itl",)
_ALSO = frozenset({*_ACC_LENGTH, *_ITL, "input throughput", "input tput"})
_ITL_TOLERANCE = 0.05
_ITL_ROUNDING_MS = 0.01
_MESSAGES: Final[Mapping[str, str]] = {
    **ONE_BATCH_MESSAGES,
    "itl_identity": "ITL differs from batch size / output throughput by more than 5 %, which it "
    "is made of; one of the three was edited",
}
_CONVENTIONS: Final = conventions("sglang_bench_one_batch_server_markdown")


def recognise(head: str) -> bool:
    """Return whether a text has a markdown table of ``bench_one_batch_server``."""
    return has_table(head, _is_known)


def read(source: SourceText) -> Reading:
    """Return a row for each row of every table."""
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    for row in pipe_rows(source.text, _is_known):
        if row.is_complete:
            _read_row(row, findings)
        else:
            findings.drop("truncated_line", row.line, "fewer cells than headings: cut off")
    return findings.reading(FORMAT, conventions=_CONVENTIONS)


def _is_known(headings: Headings) -> bool:
    """Return whether headings are those of the benchmark."""
    found = set(headings)
    return (
        not found.isdisjoint(_BATCH_SIZE)
        and not found.isdisjoint(_THROUGHPUT)
        and not found.isdisjoint(_ALSO)
    )


def _read_row(row: PipeRow, findings: Findings) -> None:
    """Add the row of a table, or why there is none."""
    batch_size, throughput = _number(row, _BATCH_SIZE), _number(row, _THROUGHPUT)
    written = _cell(row, _ACC_LENGTH)
    acceptance = Acceptance(is_known=False) if written is None else acceptance_of(written)
    if batch_size is None or batch_size <= 0:
        findings.drop("not_a_number", row.line, "no batch size", column="batch size")
    elif throughput is None or throughput <= 0:
        findings.drop("missing_throughput", row.line, "no throughput", column="output throughput")
    elif written is not None and not acceptance.is_known:
        findings.drop("not_a_number", row.line, "accept length is no number", column="acc length")
    else:
        cells, notes = one_batch_cells(batch_size, throughput, acceptance)
        input_len, output_len = _number(row, _INPUT_LEN), _number(row, _OUTPUT_LEN)
        cells["context_tokens"] = None if input_len is None else input_len + (output_len or 0) / 2
        cells["output_tokens"] = output_len
        itl_ms = _number(row, _ITL)
        per_token_ms = batch_size / throughput / MILLI
        if itl_ms is not None and (
            abs(itl_ms - per_token_ms) > _ITL_TOLERANCE * per_token_ms + _ITL_ROUNDING_MS
        ):
            notes += ("itl_identity",)
        load = (batch_size, input_len, output_len) if acceptance.is_known else None
        findings.keep(row.line, measured_row(row.line, cells, load=load), notes)


def _cell(row: PipeRow, names: tuple[str, ...]) -> str | None:
    """Return the first cell of some headings that the table has."""
    return next((row.cells[name] for name in names if name in row.cells), None)


def _number(row: PipeRow, names: tuple[str, ...]) -> float | None:
    """Return the number under some headings."""
    try:
        return parse_number(_cell(row, names) or "")
    except NumeralError:
        return None
