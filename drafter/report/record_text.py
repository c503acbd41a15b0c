"""A record of times as text, and its verdict against the baseline."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from specmodel.measurement import (
    Clocks,
    Comparison,
    DraftRecord,
    DraftTiming,
    StepTiming,
    comparisons,
)
from specmodel.measurement.draft_record import DRY, FASTER, NOT_SEPARABLE, SCHEMA_VERSION, SLOWER
from specmodel.text_layout import labelled, microseconds, noted, table
from specmodel.units import GIGA, MEGA, MICRO, PERCENT, TERA

MOST_REQUESTS: Final = 8
"""Largest batch at which a draft step is meant to be faster than torch with library products, [-]."""

LARGE_HEAD_BYTES: Final = 500 * MEGA
"""Weights of a step from which the stricter bar holds, [B]. drafter.md 22."""

BARS: Final = (1.35, 1.6)
"""Most time over floor at batch 1, for large heads and for smaller ones, [-]. drafter.md 22."""

_ABSENT: Final = "-"
_MOST_KERNELS: Final = 12
_LONGEST_NAME: Final = 44


def record_text(record: DraftRecord) -> str:
    """Return a record for a terminal of 80 columns."""
    parts = [_head(record), _steps(record)]
    if record.kind != DRY:
        parts.append(baseline_table(record))
    parts += [_extends(record), _drafts(record)]
    if record.kernels:
        parts.append(_kernels(record))
    parts.append("\n".join(noted(each) for each in (*record.notes, *verdicts(record))))
    return "\n\n".join(filter(None, parts))


def _head(record: DraftRecord) -> str:
    """What was measured on what."""
    driver = "" if record.driver is None else f"driver {record.driver}"
    device = ", ".join(filter(None, (record.device, driver, record.device_state)))
    lines = [
        labelled("draft model", f"{record.draft_model}, {record.layout}, {record.dtype}"),
        labelled("device", device),
        labelled(
            "bandwidth",
            f"{record.read_bandwidth_bytes_per_s / TERA:.3g} TB/s by a kernel that reads",
        ),
        labelled("clocks", f"{_clocks(record.clocks_before)} -> {_clocks(record.clocks_after)}"),
        labelled("software", f"torch {record.torch_version}, triton {record.triton_version}"),
        labelled("spread", f"{record.spread / PERCENT:.1f} % at most between two identical runs"),
    ]
    if record.substituted:
        lines.append(labelled("substituted", "; ".join(record.substituted)))
    if record.kind == DRY:
        lines.insert(0, "DRY RUN: every time below is made up; nothing was measured.")
    return "\n".join(lines)


def _clocks(clocks: Clocks | None) -> str:
    """Clocks in a few words."""
    if clocks is None:
        return "unknown"
    return f"{clocks.multiprocessor_hz / GIGA:.2f}, memory {clocks.memory_hz / GIGA:.2f} GHz"


def _time(time_s: float | None) -> str:
    """A time, or that there is none."""
    return _ABSENT if time_s is None else microseconds(time_s)


def _load(row: StepTiming | DraftTiming) -> list[str]:
    """Load of a row."""
    return [str(row.batch_size), str(row.context_tokens), str(row.topk)]


def _steps(record: DraftRecord) -> str:
    """Steps, floors, baselines."""
    rows = [["batch", "context", "topk", "step us", "floor us", "ratio", "cold", "hot", "torch us"]]
    for row in record.steps:
        others = map(_time, (row.cold_time_s, row.hot_time_s, row.baseline_s))
        ratio = f"{row.ratio:.2f}"
        rows.append([*_load(row), _time(row.time_s), _time(row.floor_s), ratio, *others])
    return f"A draft step\n{table(rows, align='rrrrrrrrr')}"


def baseline_table(record: DraftRecord) -> str:
    """Return steps beside the baseline, with ratio, its range and verdict."""
    found = comparisons(record)
    if not found:
        return ""
    rows = [["batch", "context", "topk", "step us", "torch us", "ratio", "range", ""]]
    for each in found:
        row, span = each.row, f"{each.low:.2f}-{each.high:.2f}"
        times = (_time(row.time_s), _time(row.baseline_s or 0.0))
        rows.append([*_load(row), *times, f"{each.ratio:.2f}", span, each.verdict])
    return f"Against torch + cuBLAS (ratio: torch over step)\n{table(rows, align='rrrrrrrl')}"


def _extends(record: DraftRecord) -> str:
    """Extend passes, a column a width."""
    widths = sorted({row.tokens for row in record.extends})
    loads = sorted({(row.batch_size, row.context_tokens) for row in record.extends})
    times = {(row.batch_size, row.context_tokens, row.tokens): row.time_s for row in record.extends}
    rows = [["batch", "context", *(f"{width} tokens" for width in widths)]]
    rows += [
        [str(batch), str(context), *(_time(times.get((batch, context, width))) for width in widths)]
        for batch, context in loads
    ]
    return f"An extend pass, us\n{table(rows, align='rr' + 'r' * len(widths))}"


def _drafts(record: DraftRecord) -> str:
    """Whole drafts."""
    rows = [
        ["batch", "context", "topk", "steps", "tokens", "graph us", "nodes", "select", "torch us"]
    ]
    for row in record.drafts:
        counts = (str(row.num_steps), str(row.num_draft_tokens))
        nodes = _ABSENT if row.graph_nodes is None else str(row.graph_nodes)
        others = map(_time, (row.selection_s, row.baseline_s))
        rows.append([*_load(row), *counts, _time(row.graph_s), nodes, *others])
    return f"A whole draft\n{table(rows, align='rrrrrrrrr')}"


def _kernels(record: DraftRecord) -> str:
    """Kernels that take most."""
    rows = [["kernel", "launches", "us each", "us in all"]]
    for row in record.kernels[:_MOST_KERNELS]:
        times = (_time(row.time_s), _time(row.calls * row.time_s))
        rows.append([row.name[:_LONGEST_NAME], str(row.calls), *times])
    return f"Kernels ({record.kernels_of})\n{table(rows, align='lrrr')}"


def verdicts(record: DraftRecord) -> tuple[str, str]:
    """Return what a record says of the two bars of its latency."""
    return baseline_verdict(record), bar_verdict(record)


def baseline_verdict(record: DraftRecord) -> str:
    """Whether chains at batch 1 to 8 are faster than torch with library products.

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


def bar_verdict(record: DraftRecord) -> str:
    """Whether a chain's step at batch 1 is as near to its floor as is asked of it.

    The floor is that of the bandwidth that was measured beside it. drafter.md 22.
    """
    rows = [row for row in record.steps if row.batch_size == 1 and row.topk == 1]
    if record.kind == DRY:
        return "a dry run says nothing of the bar"
    if not rows:
        return "no chain at batch 1 was measured, so nothing is said of the bar"
    shortest = min(rows, key=lambda row: row.context_tokens)
    step_bytes = shortest.floor_s * record.read_bandwidth_bytes_per_s
    weight_bytes = step_bytes - shortest.context_tokens * _cached_bytes(record)
    bar = BARS[0] if weight_bytes >= LARGE_HEAD_BYTES else BARS[1]
    ratios = [row.ratio for row in rows]
    verdict = "passed" if max(ratios) <= bar else "MISSED"
    return (
        f"batch 1, a chain: {min(ratios):.2f} to {max(ratios):.2f} times the floor; the bar for heads of "
        f"{weight_bytes / MEGA:.0f} MB is {bar:g}: {verdict}"
    )


def _cached_bytes(record: DraftRecord) -> int:
    """Bytes that the cache holds for a token, [B].

    A record does not say how wide latents are: the one to two MB of a short context stay with the weights.
    """
    if record.shapes.attention == "latent":
        return 0
    value_bytes = 4 if record.dtype == "float32" else 2
    return 2 * record.shapes.num_kv_heads * record.shapes.head_dim * value_bytes


def record_json(record: DraftRecord) -> dict[str, Any]:
    """Return a record for machines: what the file holds, and what is said of the bars."""
    against, bar = verdicts(record)
    return {
        "schema_version": SCHEMA_VERSION,
        "against_baseline": against,
        "bar": bar,
        "comparisons": baseline_json(record),
        **asdict(record),
    }


def baseline_json(record: DraftRecord) -> list[dict[str, Any]]:
    """Return the comparisons for machines; times in microseconds."""
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
