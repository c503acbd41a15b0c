"""What files say, for machines: one object for each group of files that belong together."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.points.ingestion import Ingested, IngestedGroup
from calibration.readers import Cell
from calibration.readers.acceptance_intervals import conditional_intervals, full_intervals

SCHEMA_VERSION = 1


def ingest_json(ingested: Ingested, output: str | None) -> dict[str, Any]:
    """Return what files say as plain values.

    Parameters
    ----------
    ingested : Ingested
        What was read.
    output : str or None
        The table that was written.

    Returns
    -------
    dict
        ``schema_version``, ``groups`` and ``output``. A group has ``files``, ``format``, ``era``
        where the format has several layouts (a list where the files have several), ``rows``,
        ``pairs`` where there are some, ``dropped`` (counts by reason), ``warnings`` (codes),
        ``messages`` (what they say) and ``cost_table`` where it is one; or ``error`` (a code) and
        ``messages``. Names that begin with ``_`` say how a row came about and are no columns.
    """
    names = file_names([file for one in ingested.groups for file in one.group.files])
    groups = [_group(one, names) for one in ingested.groups]
    return {"schema_version": SCHEMA_VERSION, "groups": groups, "output": output}


def file_names(files: list[Path]) -> Mapping[Path, str]:
    """Return the names of some files without folders, with them where two are called the same.

    Examples
    --------
    >>> list(file_names([Path("a/x.log"), Path("b/x.log"), Path("b/y.log")]).values())
    ['a/x.log', 'b/x.log', 'y.log']
    """
    counts = Counter(file.name for file in set(files))
    return {file: file.name if counts[file.name] == 1 else str(file) for file in files}


def _group(one: IngestedGroup, names: Mapping[Path, str]) -> dict[str, Any]:
    """Return one group."""
    found: dict[str, Any] = {
        "files": [names[file] for file in one.group.files],
        "format": one.group.format or None,
    }
    if one.group.error is not None:
        error = one.group.error
        return {
            **found,
            "error": error.code or "unreadable",
            "messages": [{"code": error.code, "message": str(error)}],
        }
    if one.era:
        found["era"] = one.era[0] if len(one.era) == 1 else list(one.era)
    found["rows"] = [_row(row) for row in one.rows]
    if one.pairs:
        found["pairs"] = [dict(pair) for pair in one.pairs]
    found["dropped"] = dict(one.dropped)
    found["warnings"] = sorted({warning.code for warning in one.warnings})
    found["messages"] = [
        {"code": warning.code, "message": warning.message, "lines": list(warning.lines[:1000])}
        for warning in one.warnings
    ]
    if one.cost_table:
        found["cost_table"] = [dict(probe) for probe in one.cost_table]
    return found


def _row(row: Mapping[str, Cell]) -> dict[str, Any]:
    """Return a row, with 90 % intervals of its accuracies where their rounds were counted."""
    plain: dict[str, Any] = {
        name: list(cell) if isinstance(cell, tuple) else cell for name, cell in row.items()
    }
    accuracy, rounds = row.get("full_accuracy"), row.get("verify_rounds")
    if isinstance(accuracy, tuple) and isinstance(rounds, float):
        conditional = conditional_intervals(accuracy, rounds)
        plain["_full_accuracy_90"] = [list(one) for one in full_intervals(accuracy, rounds)]
        plain["_conditional_accuracy"] = [value for value, _ in conditional]
        plain["_conditional_accuracy_90"] = [list(bounds) for _, bounds in conditional]
    return plain
