"""Systems: rows that can be one fit, told apart and chosen."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from calibration.points.baselines import serves
from calibration.points.regimes import regime_columns
from calibration.points.table import (
    SYSTEM_COLUMNS,
    Key,
    Points,
    row_groups,
    row_key,
    speculative_rows,
)
from specmodel.errors import IncompatiblePointsError, UnknownKeyError

_MOST_SHOWN = 12


class SystemPoints(NamedTuple):
    """The points of one system."""

    key: Mapping[str, float | str]  # its `SYSTEM_COLUMNS` that are filled
    label: str  # the same on one line, for people and for ``--system``
    points: Points


def systems(points: Points) -> tuple[SystemPoints, ...]:
    """Return the points system by system, in the order of their first rows; an empty cell is a value.

    A column that tells two regimes of one configuration apart is part of the key. Runs without speculation
    of another variant serve every system that differs from theirs in nothing else that is stated.
    """
    columns = (*SYSTEM_COLUMNS, *regime_columns(points.frame))
    groups = row_groups(points.frame, columns)
    drafts = speculative_rows(points.frame)
    members = {number: groups == number for number in dict.fromkeys(groups.tolist())}
    keys = {
        number: row_key(points.frame, int(rows.argmax()), columns)
        for number, rows in members.items()
    }
    alone = [number for number, rows in members.items() if not drafts[rows].any()]
    for number in alone:
        served = [
            other
            for other, key in keys.items()
            if other not in alone and serves(keys[number], key, columns)
        ]
        for other in served:
            members[other] = members[other] | members[number]
        if served:
            del members[number]
    found = []
    for number, rows in members.items():
        filled = {
            name: cell
            for name, cell in zip(columns, keys[number], strict=True)
            if cell not in {None, ""}
        }
        found.append(SystemPoints(filled, system_label(keys[number], columns), points.where(rows)))
    return tuple(found)


def system_label(key: Key, columns: Sequence[str] = SYSTEM_COLUMNS) -> str:
    """Return a system on one line: what is filled, ``unnamed system`` where nothing is.

    Examples
    --------
    >>> system_label(("Lynx-8B", "sglang", "0.5.4", "H200", 4.0, 4.0, "pcie", "", "", ""))
    'Lynx-8B, sglang 0.5.4, 4 x H200, TP 4, pcie'
    """
    cell = {
        name: f"{value:g}" if isinstance(value, float) else value or ""
        for name, value in zip(columns, key, strict=True)
    }
    engine = f"{cell['engine']} {cell['engine_version']}".strip()
    gpu = f"{cell['num_gpus']} x {cell['gpu'] or 'GPU'}" if cell["num_gpus"] else cell["gpu"]
    tp_size = f"TP {cell['tp_size']}" if cell["tp_size"] else ""
    rest = [cell[name] for name in ("interconnect", "dtype", "variant", "source_id")]
    regime = [f"{name} {cell[name]}" for name in columns[len(SYSTEM_COLUMNS) :] if cell[name]]
    parts = (cell["target_model"], engine, gpu, tp_size, *rest, *regime)
    label = ", ".join(part for part in parts if part)
    return " ".join(label.split()) or "unnamed system"


def select_system(points: Points, text: str | None = None) -> SystemPoints:
    """Return the one system that is meant: the only one, or that whose label has the text, in any case.

    The whole label counts where it is part of another one. Several are refused with the field in which
    they differ.
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
    columns = list(dict.fromkeys([*SYSTEM_COLUMNS, *(name for s in found for name in s.key)]))
    values = {
        name: list(dict.fromkeys(_written(s.key.get(name, "")) for s in found)) for name in columns
    }
    field = max(columns, key=lambda name: len(values[name]))
    hint = "Choose one with --system TEXT, a part of one of these that no other has: "
    if text is not None:
        hint = f"--system {text!r} fits {len(found)} systems; give more of one of these: "
    raise IncompatiblePointsError(
        field, _shown(values[field]), hint + "; ".join(_shown([s.label for s in found]))
    )


def _written(cell: float | str) -> str:
    """A cell of a key for a message."""
    return f"{cell:g}" if isinstance(cell, float) else " ".join(cell.split()) or "empty"


def _shown(values: Sequence[str]) -> list[str]:
    """The first of some values, and how many there are more."""
    more = len(values) - _MOST_SHOWN
    return list(values[:_MOST_SHOWN]) + ([f"{more} more"] if more > 0 else [])
