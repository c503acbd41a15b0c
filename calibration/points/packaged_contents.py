"""What varies in a packaged table, counted from its rows."""

import csv
from typing import NamedTuple

from calibration.points.packaged import PackagedTable

_NUMBERS = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
_TEXTS = ("workload", "draft_model", "algorithm", "target_model")


class Varying(NamedTuple):
    """One column with several values: how many, and the range where they are numbers."""

    column: str
    num_values: int
    low: float | None = None
    high: float | None = None


def varying_columns(table: PackagedTable) -> tuple[Varying, ...]:
    """Columns of a packaged table that hold several values on its speculative rows.

    Parameters
    ----------
    table : PackagedTable
        Which one.

    Returns
    -------
    tuple of Varying
        Numbers first; empty for a single configuration.

    Examples
    --------
    >>> from calibration.packaged import packaged_table
    >>> varying_columns(packaged_table("vllm-20780-eagle1"))[0]
    Varying(column='num_steps', num_values=6, low=2.0, high=7.0)
    """
    with table.path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("num_steps") != "0"]
    found = []
    for name in _NUMBERS:
        values = sorted({float(row[name]) for row in rows if row.get(name)})
        if len(values) > 1:
            found.append(Varying(name, len(values), values[0], values[-1]))
    for name in _TEXTS:
        num_values = len({row[name] for row in rows if row.get(name)})
        if num_values > 1:
            found.append(Varying(name, num_values))
    return tuple(found)
