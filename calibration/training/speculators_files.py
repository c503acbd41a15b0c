"""Files that are no console: metrics and state of a checkpoint of speculators, exports of trackers.

Formats S5 and S6 (S7 where block drafters write them), training_logs.md section 2, and exports of others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from calibration.training.lines import printed_number
from calibration.training.records import MISSING, Array, RawLog, Split
from calibration.training.speculators_keys import BLOCK_FAMILY, key_plans
from calibration.training.speculators_log import finest_rounding
from calibration.training.trackers import TrackerExports

# Name of the file with the metrics of a checkpoint.
METRICS_FILE: Final = "val_metrics.json"

# Name of the file beside it that says which checkpoint it is.
STATE_FILE: Final = "training_state.json"

_STATE_KEYS = ("epoch", "local_step", "global_step")
_EPOCH_FOLDER = re.compile(r"(?:epoch[_-]?)?(\d{1,6})", re.ASCII | re.IGNORECASE)
_LONGEST_STATE = 1 << 16
_DEEPEST = 8
_MOST_DIGITS = 15  # that a double holds


@dataclass(slots=True)
class SpeculatorsFiles:
    """Reads files of checkpoints and trackers into a log."""

    raw: RawLog  # what records are added to
    # the one that the user names; decides where several trainers log the keys of an export
    family: str | None = None
    _states: dict[Path, dict[str, int]] = field(init=False, default_factory=dict)
    _metrics: list[tuple[Path, int, dict[str, str]]] = field(init=False, default_factory=list)
    _exports: TrackerExports = field(init=False)

    def __post_init__(self) -> None:
        self._exports = TrackerExports(self.raw, self.family)

    def feed_json(self, path: Path, text: str, *, first_line: int = 1) -> bool:
        """Take a JSON file; records are added by `finish`, as a state file may follow."""
        try:
            found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
        except (ValueError, RecursionError):
            return False
        taken = False
        for value in found if isinstance(found, list) else [found]:
            values = dict(_flat(value))
            state = _state(values)
            plans = key_plans(tuple(values))
            if any(plan.family for plan in plans):
                self._metrics.append((path, first_line, values))
                taken = True
            elif state is not None and not plans:
                self._states[path.parent] = state
                self.raw.companion |= {key: float(number) for key, number in state.items()}
                taken = True
        return taken

    def feed_table(self, path: Path, lines: Iterable[str], *, first_line: int = 1) -> bool:
        """Take an export of a tracker, as `TrackerExports.feed`."""
        return self._exports.feed(path, lines, first_line=first_line)

    def finish(self) -> None:
        """Add the records of what needs several files."""
        for path, line, values in self._metrics:
            self._add_metrics(path, line, values)
        self._metrics.clear()
        self._exports.finish()

    def _add_metrics(self, path: Path, line: int, values: dict[str, str]) -> None:
        """Add the records of one JSON object."""
        for plan in key_plans(tuple(values)):
            if not plan.family:
                continue
            found = list(values.values())
            numbers = {name: _number(found[place]) for name, place in plan.columns.items()}
            of_checkpoint = plan.bare and (plan.split is Split.VAL or path.name == METRICS_FILE)
            if of_checkpoint:
                plan = replace(plan, split=Split.VAL)  # noqa: PLW2901 - the file says the split
                for name, number in self._place_of(path).items():
                    numbers.setdefault(name, number)
            layout = "S5" if of_checkpoint else "dict" if plan.bare else "S6"
            columns: dict[str, Sequence[float] | Array] = {n: (v,) for n, v in numbers.items()}
            columns["line"] = (float(line),)
            layout = "S7" if plan.family == BLOCK_FAMILY else layout
            rounding = finest_rounding(plan, found)
            plan.store(self.raw, columns, [""], layout=layout, rounding=rounding, hints=False)

    def _place_of(self, path: Path) -> dict[str, float]:
        """Return epoch and step of a checkpoint, where something beside its metrics says them."""
        state = self._states.get(path.parent)
        if state is None and path.name == METRICS_FILE:
            state = _state_beside(path)
        if state is not None:
            names = {"epoch": "epoch", "global_step": "step"}
            return {name: float(state[key]) for key, name in names.items() if key in state}
        folder = _EPOCH_FOLDER.fullmatch(path.parent.name)
        return {"epoch": float(folder[1])} if folder and path.name == METRICS_FILE else {}


def training_state(text: str) -> dict[str, int] | None:
    """Return what a state file of a checkpoint says, None where it is none."""
    try:
        values = dict(_flat(json.loads(text, parse_float=str, parse_int=str, parse_constant=str)))
    except (ValueError, RecursionError):
        return None
    return None if key_plans(tuple(values)) else _state(values)


def _flat(value: Any, above: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the numbers of JSON objects in objects, their keys joined by slashes."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    for key, inner in value.items():
        if isinstance(inner, str):
            yield f"{above}{key}", inner
        elif isinstance(inner, dict):
            yield from _flat(inner, f"{above}{key}/", depth + 1)


def _state(values: dict[str, str]) -> dict[str, int] | None:
    """Return epoch and steps, None where no step is said."""
    state = {key: int(values[key]) for key in _STATE_KEYS if _is_count(values.get(key, ""))}
    return state if "global_step" in state else None


def _is_count(text: str) -> bool:
    """Return whether a text is a whole number that a counter can reach."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _state_beside(path: Path) -> dict[str, int] | None:
    """Return what the state file in the folder of a file says, None where there is none."""
    try:
        with path.with_name(STATE_FILE).open(encoding="utf-8-sig", errors="replace") as file:
            return training_state(file.read(_LONGEST_STATE))
    except OSError:
        return None


def _number(text: str) -> float:
    """Return a number, `MISSING` where there is none."""
    number = printed_number(text)
    return MISSING if number is None else number
