"""``acceptance_rate.json`` of NVIDIA Model-Optimizer: tables by accept length."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, Final

from calibration.readers.acceptance_counts import (
    ACCEPTANCE_MESSAGES,
    MOST_STEPS,
    AcceptHistogram,
    accuracy_notes,
)
from calibration.readers.check import measured_row
from calibration.readers.findings import Findings
from calibration.readers.formats import conventions
from calibration.readers.json_text import json_keys, json_objects, number_at
from calibration.readers.reading import Cell, Reading, SourceText
from specmodel.errors import LeftOut, ParameterError

FORMAT: Final = "modelopt_acceptance"

_HISTOGRAM = "Acceptance_Length_Histogram"
_JOINT = "Joint_Acceptance_Rate"
_CONDITIONAL = "Conditional_Acceptance_Rate"
_KEYS = frozenset({_HISTOGRAM, _JOINT, _CONDITIONAL, "Request_AL", "Average_AL"})
_FIRST_TOLERANCE = 1e-6
_CONVENTIONS: Final = conventions("modelopt_acceptance")


def recognise(head: str) -> bool:
    """Return whether a text has the tables of Model-Optimizer."""
    return bool(json_keys(head) & _KEYS)


def read(source: SourceText) -> Reading:
    """Return the acceptance that the tables give."""
    findings = Findings(source.path, ACCEPTANCE_MESSAGES)
    for record in json_objects(source, findings):
        _keep(findings, record.line, record.fields)
    return findings.reading(
        FORMAT,
        "neither a histogram of accept lengths nor a table of acceptance",
        conventions=_CONVENTIONS,
    )


def _keep(findings: Findings, line: int, fields: Mapping[str, Any]) -> None:
    """Keep the row of one object, or say why there is none."""
    tables = {name: _table(fields.get(name)) for name in (_HISTOGRAM, _JOINT, _CONDITIONAL)}
    longest = max((max(table) for table in tables.values() if table), default=0)
    if longest < 2:
        findings.drop(
            "no_verify_rounds",
            line,
            "neither a histogram of accept lengths nor a table of acceptance beyond length 1; a "
            "mean over turns does not give the acceptance of rounds",
        )
        return
    joint = _joint(tables, longest)
    histogram = _histogram(tables[_HISTOGRAM], longest) if tables[_HISTOGRAM] else None
    chosen = histogram if histogram is not None else joint
    if isinstance(chosen, LeftOut):
        findings.refuse(line, chosen)
        return
    rounds = None
    if isinstance(chosen, AcceptHistogram):
        rounds, accuracy, accept_length = (
            float(chosen.num_rounds),
            chosen.full_accuracy,
            chosen.accept_length,
        )
    else:
        accuracy = chosen
        accept_length = 1 + sum(accuracy)
    cells: dict[str, Cell | None] = {
        "num_steps": longest - 1.0,
        "topk": 1.0,
        "accept_length": accept_length,
        "full_accuracy": accuracy,
        "verify_rounds": rounds,
    }
    if findings.keep(line, measured_row(line, cells, details={"rounds": rounds})):
        table = accuracy if isinstance(joint, LeftOut) else joint
        for code in accuracy_notes(table, accept_length):
            findings.warn(code, line)


def _table(value: object) -> dict[int, float | None]:
    """Return a table by accept length: an object with the lengths as keys, or a list from 1 on."""
    if isinstance(value, list):
        value = {str(length): entry for length, entry in enumerate(value, start=1)}
    if not isinstance(value, dict):
        return {}
    table = {}
    for key in value:
        if key.isascii() and key.isdigit() and len(key) <= 4 and int(key) <= MOST_STEPS + 1:
            table[int(key)] = number_at(value, key)
    return table


def _histogram(table: Mapping[int, float | None], longest: int) -> AcceptHistogram | LeftOut:
    """Return the rounds by accepted drafts, or why the table is none."""
    if table.get(0):
        return LeftOut(
            code="impossible_counts",
            column="full_accuracy",
            message="rounds of accept length 0, but a round emits at least one token: are these "
            "accepted drafts? Count from 1",
        )
    try:
        histogram = AcceptHistogram(
            [_count(table.get(length, 0.0)) for length in range(1, longest + 1)]
        )
    except ParameterError as error:
        return LeftOut(code="impossible_counts", column="full_accuracy", message=str(error))
    if not histogram.num_rounds:
        return LeftOut(
            code="no_verify_rounds", column="accept_length", message="no round in the histogram"
        )
    return histogram


def _count(entry: float | None) -> float:
    """Return an entry of a histogram; what is no number becomes a count that is refused."""
    return -1.0 if entry is None else entry


def _joint(
    tables: Mapping[str, Mapping[int, float | None]], longest: int
) -> tuple[float, ...] | LeftOut:
    """Return the share of rounds that accepted all of the first 1, 2, ... drafts."""
    name = _JOINT if tables[_JOINT] else _CONDITIONAL
    table = tables[name]
    entries = [table.get(length, 0.0) for length in range(2, longest + 1)]
    first = table.get(1, 1.0)
    if not table or first is None or abs(first - 1) > _FIRST_TOLERANCE:
        return LeftOut(
            code="table_not_from_length_one",
            column="full_accuracy",
            message=f"{name} begins with {first}, but every round reaches length 1: it should be 1",
        )
    accuracy = (
        tuple(accumulate(_filled(entries), mul)) if name == _CONDITIONAL else _filled(entries)
    )
    if not all(0 <= share <= 1 + _FIRST_TOLERANCE for share in accuracy):
        return LeftOut(
            code="out_of_range",
            column="full_accuracy",
            message=f"{name} has an entry that is no share of rounds",
        )
    return accuracy


def _filled(entries: Sequence[float | None]) -> tuple[float, ...]:
    """Return a table with zeros at lengths that no round reached; what is no number becomes -1."""
    reached, filled = True, []
    for entry in entries:
        filled.append(entry if entry is not None else -1.0 if reached else 0.0)
        reached = reached and filled[-1] != 0
    return tuple(filled)
