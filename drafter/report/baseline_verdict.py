"""Whether the draft step of a record is faster than torch with library products, in a table and a sentence."""

from collections.abc import Sequence
from typing import Any, Final

from drafter.report.layout import microseconds, table
from specmodel.measurement import Comparison, DraftRecord, comparisons
from specmodel.measurement.draft_record import DRY, FASTER, NOT_SEPARABLE, SLOWER
from specmodel.units import MICRO

MOST_REQUESTS: Final = 8
"""Largest batch at which a draft step is meant to be faster than torch with library products, [-]."""


def baseline_table(record: DraftRecord) -> str:
    """Return steps beside the baseline, with ratio, its range and verdict.

    Parameters
    ----------
    record : DraftRecord
        The record.

    Returns
    -------
    str
        80 columns wide; empty where no load has a baseline.
    """
    found = comparisons(record)
    if not found:
        return ""
    rows = [["batch", "context", "topk", "step us", "torch us", "ratio", "range", ""]]
    rows += [
        [
            str(each.row.batch_size),
            str(each.row.context_tokens),
            str(each.row.topk),
            microseconds(each.row.time_s),
            microseconds(each.row.baseline_s or 0.0),
            f"{each.ratio:.2f}",
            f"{each.low:.2f}-{each.high:.2f}",
            each.verdict,
        ]
        for each in found
    ]
    return f"Against torch + cuBLAS (ratio: torch over step)\n{table(rows, align='rrrrrrrl')}"


def baseline_json(record: DraftRecord) -> list[dict[str, Any]]:
    """Return the comparisons for machines; times in microseconds.

    Parameters
    ----------
    record : DraftRecord
        The record.

    Returns
    -------
    list of dict
        One for each load with a baseline.
    """
    return [
        {
            "batch_size": each.row.batch_size,
            "context_tokens": each.row.context_tokens,
            "topk": each.row.topk,
            "step_us": each.row.time_s / MICRO,
            "baseline_us": (each.row.baseline_s or 0.0) / MICRO,
            "ratio": each.ratio,
            "low": each.low,
            "high": each.high,
            "verdict": each.verdict,
        }
        for each in comparisons(record)
    ]


def baseline_verdict(record: DraftRecord) -> str:
    r"""Whether chains at batch 1 to 8 are faster than torch with library products.

    .. math:: \frac{t_b / t}{1 + s} > 1 \text{ at every load}

    Parameters
    ----------
    record : DraftRecord
        The record.

    Returns
    -------
    str
        One sentence; where the bar is missed, it names the loads.

    Notes
    -----
    Graphs on both sides, cold weights on both sides. drafter.md 22.
    """
    if record.kind == DRY:
        return "a dry run says nothing of torch + cuBLAS"
    claim = f"faster than torch + cuBLAS at batch 1 to {MOST_REQUESTS}, chains: "
    found = [
        each
        for each in comparisons(record)
        if each.row.topk == 1 and each.row.batch_size <= MOST_REQUESTS
    ]
    if not found:
        return claim + "UNKNOWN: no such load has a baseline"
    faster = [each for each in found if each.verdict == FASTER]
    if len(faster) == len(found):
        ratios = [each.ratio for each in found]
        loads = "the one load" if len(found) == 1 else f"all {len(found)} loads"
        return f"{claim}passed: at {loads}, {min(ratios):.2f} to {max(ratios):.2f} times"
    parts = [f"faster at {len(faster)} of {len(found)} loads"]
    for verdict in (SLOWER, NOT_SEPARABLE):
        others = [each for each in found if each.verdict == verdict]
        if others:
            parts.append(f"{verdict} at {_loads(others)}")
    return f"{claim}MISSED: {'; '.join(parts)}"


def _loads(found: Sequence[Comparison]) -> str:
    """Loads with their ratios."""
    return ", ".join(
        f"batch {each.row.batch_size}, context {each.row.context_tokens} "
        f"({each.ratio:.2f} times, {each.low:.2f} to {each.high:.2f})"
        for each in found
    )
