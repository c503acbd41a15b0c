"""Floors of many draft models, one a line."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drafter.floors import Floor, gpu_label
from drafter.report.layout import WIDTH, microseconds, noted, table
from specmodel.units import MEGA, MICRO

SCHEMA_VERSION: Final = 1
"""Layout of the JSON; it rises when a key changes its meaning."""

FLOOR_NOTE: Final = (
    "Least time of a draft step, from its bytes and the datasheet's bandwidth (and the bf16 rate where that is "
    "slower). Nothing here was measured; kernels and launches come on top. MB: weights that a step reads "
    "(bf16)."
)
"""Said below every table."""


def floors_text(floors: Mapping[str, Sequence[Floor]], context_tokens: int, batch_size: int) -> str:
    """Return a table of floors.

    Parameters
    ----------
    floors : mapping of str to sequence of Floor
        By draft model, one for each device.
    context_tokens, batch_size : int
        The load they hold for.

    Returns
    -------
    str
        80 columns wide; devices that do not fit beside each other follow in tables of their own.
    """
    title = f"Floor of a draft step: batch {batch_size}, context {context_tokens} tokens"
    count = len(next(iter(floors.values())))
    tables: list[str] = []
    start = 0
    while start < count:
        end = count
        while end > start + 1 and _width(_table(floors, start, end)) > WIDTH:
            end -= 1
        tables.append(_table(floors, start, end))
        start = end
    return "\n\n".join([title, *tables, noted(FLOOR_NOTE)])


def _table(floors: Mapping[str, Sequence[Floor]], start: int, end: int) -> str:
    """Some of the devices side by side."""
    first = next(iter(floors.values()))[start:end]
    head = ["draft model", "MB", *(gpu_label(floor.gpu) for floor in first), "extend adds"]
    units = ["", "", *("us" for _ in first), f"us, {gpu_label(first[0].gpu)}"]
    rows = [
        [
            name,
            f"{each[0].work.weight_bytes / MEGA:.0f}",
            *(microseconds(floor.datasheet_s) for floor in each[start:end]),
            f"+{microseconds(each[start].extend_adds_s)}",
        ]
        for name, each in floors.items()
    ]
    return table([head, units, *rows], align="lr" + "r" * len(first) + "r")


def _width(text: str) -> int:
    """Columns of the longest line."""
    return max(map(len, text.splitlines()))


def floors_json(
    floors: Mapping[str, Sequence[Floor]], context_tokens: int, batch_size: int
) -> dict[str, Any]:
    """Return floors for machines.

    Parameters
    ----------
    floors : mapping of str to sequence of Floor
        By draft model, one for each device.
    context_tokens, batch_size : int
        The load they hold for.

    Returns
    -------
    dict
        With ``schema_version``.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "context_tokens": context_tokens,
        "batch_size": batch_size,
        "measured": False,
        "draft_models": [
            {
                "name": name,
                "weight_bytes": each[0].work.weight_bytes,
                "cache_bytes": each[0].work.cache_bytes,
                "extend_bytes": each[0].work.extend_bytes,
                "flop": each[0].work.flop,
                "floors": [floor_json(floor) for floor in each],
            }
            for name, each in floors.items()
        ],
    }


def floor_json(floor: Floor) -> dict[str, Any]:
    """Return one floor for machines; times in microseconds.

    Parameters
    ----------
    floor : Floor
        The floor.

    Returns
    -------
    dict
    """
    measured = floor.measured_s
    return {
        "gpu": floor.gpu.name,
        "bandwidth_bytes_per_s": floor.gpu.memory_bandwidth_bytes_per_s,
        "floor_us": floor.datasheet_s / MICRO,
        "measured_read_bandwidth_bytes_per_s": floor.gpu.measured_read_bandwidth_bytes_per_s,
        "floor_at_measured_bandwidth_us": None if measured is None else measured / MICRO,
        "extend_adds_us": floor.extend_adds_s / MICRO,
        "compute_bound": floor.compute_bound,
    }
