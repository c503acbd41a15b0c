"""What SGLang's ``send_one`` prints about one request: a table, or two lines in older releases."""

import re
from collections.abc import Iterator
from typing import Final

from calibration.readers.check import measured_row
from calibration.readers.findings import SGLANG_CODES, Findings
from calibration.readers.formats import conventions, messages
from calibration.readers.numerals import NumeralError, parse_number
from calibration.readers.reading import Cell, Reading, SourceText
from calibration.readers.text_tables import Headings, has_table, pipe_rows
from specmodel.units import MILLI

FORMAT: Final = "sglang_send_one"

_NUMBER = r"(\d{1,12}(?:\.\d{0,12})?)"
_ACC_LENGTH = re.compile(
    rf"(?:Turn \d{{1,9}} - )?acc_length={_NUMBER}(?:,? {{0,8}}speed={_NUMBER}(?: token/s)?)?"
)
_SPEED = re.compile(rf"speed={_NUMBER}(?: token/s)?")
_HEADINGS = frozenset({"latency", "tokens", "acc length", "speed"})
_LONGEST_LINE = 120
_MESSAGES: Final = messages("sglang_send_one")
_CONVENTIONS: Final = conventions("sglang_send_one")


def recognise(head: str) -> bool:
    """Return whether a text is the output of ``send_one``."""
    if has_table(head, _is_known):
        return True
    has_speed = has_accept_length = False
    for line in _short_lines(head):
        found = _ACC_LENGTH.fullmatch(line)
        has_accept_length |= found is not None
        has_speed |= bool(found and found[2]) or _SPEED.fullmatch(line) is not None
    return has_accept_length and has_speed


def read(source: SourceText) -> Reading:
    """Return a row for each request."""
    findings = Findings(source.path, _MESSAGES, SGLANG_CODES)
    _read_table(source.text, findings)
    _read_lines(source.text, findings)
    findings.rows.sort(key=lambda row: row.line)
    return findings.reading(FORMAT, conventions=_CONVENTIONS)


def _is_known(headings: Headings) -> bool:
    """Return whether headings are those of ``send_one``."""
    return set(headings) >= _HEADINGS


def _read_table(text: str, findings: Findings) -> None:
    """Add the rows of the tables that newer releases print."""
    for row in pipe_rows(text, _is_known):
        numbers: dict[str, float] = {}
        for name in _HEADINGS:
            try:
                numbers[name] = parse_number(row.cells.get(name, ""))
            except NumeralError:
                continue
        if not row.is_complete:
            findings.drop("truncated_line", row.line, "fewer cells than headings: cut off")
        elif "acc length" not in numbers or "speed" not in numbers:
            findings.drop("not_a_number", row.line, "accept length or speed is no number")
        else:
            _add(row.line, numbers["acc length"], numbers["speed"], numbers.get("tokens"), findings)


def _read_lines(text: str, findings: Findings) -> None:
    """Add the rows of the lines that older releases print."""
    waiting: tuple[int, float] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if len(stripped) > _LONGEST_LINE:
            continue
        found = _ACC_LENGTH.fullmatch(stripped)
        speed = _SPEED.fullmatch(stripped)
        if found is not None:
            _drop_waiting(waiting, findings)
            waiting = (number, float(found[1]))
        if waiting is not None and (speed is not None or (found is not None and found[2])):
            per_s = float(speed[1] if speed is not None else found[2])  # type: ignore[index]
            _add(waiting[0], waiting[1], per_s, None, findings)
            waiting = None
    _drop_waiting(waiting, findings)


def _drop_waiting(waiting: tuple[int, float] | None, findings: Findings) -> None:
    """Count an accept length that no speed followed."""
    if waiting is not None:
        findings.drop("truncated_line", waiting[0], "no speed after this accept length")


def _add(
    line: int, accept_length: float, speed: float, tokens: float | None, findings: Findings
) -> None:
    """Add the row of one request."""
    if speed <= 0:
        findings.drop("missing_throughput", line, "no speed", column="speed")
        return
    is_baseline = accept_length == 1
    cells: dict[str, Cell | None] = {
        "engine": "sglang",
        "batch_size": 1.0,
        "accept_length": accept_length,
        "num_steps": 0.0 if is_baseline else None,
        "output_tokens_per_s": speed,
        "step_time_ms": accept_length / speed / MILLI,
        "output_tokens": tokens,
    }
    row = measured_row(line, cells, load=(1.0,))
    note = "baseline_assumed" if is_baseline else "depth_unknown"
    findings.keep(line, row, (note, "rough_point"))


def _short_lines(text: str) -> Iterator[str]:
    """Yield the lines that are short enough to be printed by ``send_one``."""
    for line in text.split("\n"):
        if len(line) <= _LONGEST_LINE:
            yield line.strip()
