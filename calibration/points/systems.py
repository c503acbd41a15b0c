"""Systems: rows that can be one fit, told apart and chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.points.table import SYSTEM_COLUMNS, Key, Points, row_keys
from specmodel.errors import IncompatiblePointsError, UnknownKeyError

_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SystemPoints:
    """The points of one system.

    Parameters
    ----------
    key : mapping from str to float or str
        Its `SYSTEM_COLUMNS` that are filled.
    label : str
        The same on one line, for people and for ``--system``.
    points : Points
        Its rows.
    """

    key: Mapping[str, float | str]
    label: str
    points: Points


def systems(points: Points) -> tuple[SystemPoints, ...]:
    """Return the points system by system, in the order of their first rows.

    Parameters
    ----------
    points : Points
        Any rows; an empty cell is a value.

    Returns
    -------
    tuple of SystemPoints
        Together all rows, each once.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({name: ["", ""] for name in SYSTEM_COLUMNS})
    >>> frame["gpu"] = ["H200", "RTX 4090"]
    >>> [system.label for system in systems(Points(frame=frame))]
    ['H200', 'RTX 4090']
    """
    keys = row_keys(points.frame, SYSTEM_COLUMNS)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    system_of_row = np.array([numbers[key] for key in keys], dtype=np.intp)
    return tuple(
        SystemPoints(
            key={
                name: cell
                for name, cell in zip(SYSTEM_COLUMNS, key, strict=True)
                if cell is not None and cell != ""
            },
            label=system_label(key),
            points=points.where(system_of_row == number),
        )
        for key, number in numbers.items()
    )


def system_label(key: Key) -> str:
    """Return a system on one line.

    Parameters
    ----------
    key : tuple
        Values of `SYSTEM_COLUMNS`, empty ones as None or ``""``.

    Returns
    -------
    str
        What is filled; ``unnamed system`` where nothing is.

    Examples
    --------
    >>> system_label(("Lynx-8B", "sglang", "0.5.4", "H200", 4.0, 4.0, "pcie", "", "", ""))
    'Lynx-8B, sglang 0.5.4, 4 x H200, TP 4, pcie'
    """
    cell = {
        name: f"{value:g}" if isinstance(value, float) else value or ""
        for name, value in zip(SYSTEM_COLUMNS, key, strict=True)
    }
    engine = f"{cell['engine']} {cell['engine_version']}".strip()
    gpu = f"{cell['num_gpus']} x {cell['gpu'] or 'GPU'}" if cell["num_gpus"] else cell["gpu"]
    tp_size = f"TP {cell['tp_size']}" if cell["tp_size"] else ""
    rest = [cell[name] for name in ("interconnect", "dtype", "variant", "source_id")]
    parts = (cell["target_model"], engine, gpu, tp_size, *rest)
    label = ", ".join(part for part in parts if part)
    return " ".join(label.split()) or "unnamed system"


def select_system(points: Points, text: str | None = None) -> SystemPoints:
    """Return the one system that is meant.

    Parameters
    ----------
    points : Points
        Rows of one system or several.
    text : str, optional
        A part of the label, in any case; the whole label where it is part of another one. Without
        it there must be a single system.

    Returns
    -------
    SystemPoints
        The system whose label has the text.

    Raises
    ------
    IncompatiblePointsError
        If several systems remain; names the field in which they differ.
    UnknownKeyError
        If no label has the text.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({name: ["", ""] for name in SYSTEM_COLUMNS})
    >>> frame["gpu"] = ["H200", "RTX 4090"]
    >>> select_system(Points(frame=frame), "h200").label
    'H200'
    >>> select_system(Points(frame=frame))
    Traceback (most recent call last):
        ...
    specmodel.errors.IncompatiblePointsError: points differ in gpu: H200; RTX 4090. Choose one ...
    """
    found = systems(points)
    if text is not None:
        wanted = text.strip().casefold()
        matching = [s for s in found if wanted in s.label.casefold()]
        exact = [s for s in matching if wanted == s.label.casefold()]
        if not matching:
            raise UnknownKeyError("system", text, [s.label for s in found])
        found = tuple(exact or matching)
    if len(found) == 1:
        return found[0]
    field, values = _difference(found)
    hint = "Choose one with --system TEXT, a part of one of these that no other has: "
    if text is not None:
        hint = f"--system {text!r} fits {len(found)} systems; give more of one of these: "
    raise IncompatiblePointsError(
        field, _shown(values), hint + "; ".join(_shown([s.label for s in found]))
    )


def _difference(found: Sequence[SystemPoints]) -> tuple[str, list[str]]:
    """Return the column that tells most of these systems apart, and its values."""
    values = {
        name: list(dict.fromkeys(_written(s.key.get(name, "")) for s in found))
        for name in SYSTEM_COLUMNS
    }
    field = max(SYSTEM_COLUMNS, key=lambda name: len(values[name]))
    return field, values[field]


def _written(cell: float | str) -> str:
    """Return a cell of a key for a message."""
    return f"{cell:g}" if isinstance(cell, float) else " ".join(cell.split()) or "empty"


def _shown(values: Sequence[str]) -> list[str]:
    """Return the first of some values, and how many there are more."""
    more = len(values) - _MOST_SHOWN
    return list(values[:_MOST_SHOWN]) + ([f"{more} more"] if more > 0 else [])
