"""Runs as people keep them: tables of steps, accuracies and accept lengths, and ``key:value - key:value``."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from calibration.readers.header import canonical_name, normalised_name
from calibration.readers.text_tables import page_tables, split_table
from calibration.training.lines import half_unit, is_cut, printed_number
from calibration.training.offline_acceptance import chained_accept_length
from calibration.training.records import Kind, RawLog, Split, by_depth
from calibration.training.training_log import TrainingLogError

FAMILY: Final = "run-table"

_SPLIT = re.compile(r"(train|training|val|valid|validation|eval|evaluation|test|dev)[_/.-]+(.+)")
_PLACES: Final = {
    **dict.fromkeys(("step", "steps", "global_step", "training_step", "iteration", "iter"), "step"),
    "epoch": "epoch",
    **dict.fromkeys(("lr", "learning_rate"), "learning_rate"),
}
_WHOLE: Final = {
    "loss": "total_loss",
    **dict.fromkeys(("acc", "accuracy", "mean_acc", "mean_accuracy"), "mean_marginal"),
}
_DEPTH = re.compile(
    r"(?:(full|joint|cumulative|prefix|cond|conditional|marginal)_)?"
    r"(?:acc|accuracy|top1|pos|position|depth)[_@]?(\d{1,2})(?:_acc(?:uracy)?)?",
    re.ASCII,
)
_KINDS: Final = {
    **dict.fromkeys(("full", "joint", "cumulative", "prefix"), Kind.JOINT),
    **dict.fromkeys(("cond", "conditional"), Kind.CONDITIONAL),
    "marginal": Kind.MARGINAL,
}


class _Column(NamedTuple):
    """What a column holds: of which data, under which name, and at which depth."""

    split: Split | None  # None where it belongs to every record
    name: str
    depth: int | None = None


@lru_cache(maxsize=4096)
def _column(written: str) -> _Column | None:
    """Return what a heading means; None where that is not known."""
    name, split = normalised_name(written), Split.UNKNOWN
    if found := _SPLIT.fullmatch(name):
        name, split = found[2], Split.TRAIN if found[1].startswith("train") else Split.VAL
    if name in _PLACES:
        return _Column(None, _PLACES[name])
    if name in _WHOLE:
        return _Column(split, _WHOLE[name])
    if found := _DEPTH.fullmatch(name):
        return _Column(split, _KINDS.get(found[1], ""), int(found[2]))
    if canonical_name(name) == "accept_length":
        return _Column(split, "reported:accept_length")
    return None


def add_run_tables(raw: RawLog, path: Path, text: str, kind: Kind | None = None) -> None:
    """Add the records of the tables of a text; `kind` is that of accuracies that do not say it."""
    delimited = split_table(text, lambda name: _column(name) is not None)
    for table in (*([delimited] if delimited else []), *page_tables(text)):
        columns = [_column(cell) for cell in table.header.cells]
        if not any(one and one.name == "step" for one in columns):
            continue
        for record in table.records:
            _add(raw, path, record.line, columns, record.cells, kind)


def _add(
    raw: RawLog,
    path: Path,
    line: int,
    columns: Sequence[_Column | None],
    cells: Sequence[str],
    kind: Kind | None,
) -> None:
    """Add the records of a row, one for each split."""
    known = [(one, cell) for one, cell in zip(columns, cells, strict=False) if one is not None]
    for split in dict.fromkeys(one.split for one, _ in known if one.split is not None):
        values, depths = dict[str, float](), dict[str, dict[int, float]]()
        units = []
        for (of_split, name, depth), cell in known:
            value = printed_number(cell)
            if value is None or of_split not in (split, None):
                continue
            if depth is None:
                values[name] = value
            else:
                depths.setdefault(name, {})[depth] = value
                units.append(half_unit(cell) or 0.0)
        for name, by in depths.items():
            accuracies = [by[depth] for depth in sorted(by)]
            if not name and kind is None and len(accuracies) > 1:
                raise _open_kind(path, line, accuracies)
            values |= by_depth(name or kind or Kind.MARGINAL, accuracies)
        if values.keys() - {*_PLACES.values(), "total_loss"}:
            rounding = max(units, default=None)
            raw.add(FAMILY, split, "table", line, "", values, rounding=rounding)
            raw.table(FAMILY, split).first_position = min(map(min, depths.values()), default=0)


def _open_kind(path: Path, line: int, accuracies: Sequence[float]) -> TrainingLogError:
    """Return the question that accuracies of an unknown kind leave open."""
    shown = " ".join(f"{value:g}" for value in accuracies)
    joint, chain = (
        float(chained_accept_length(np.array(accuracies), kind))
        for kind in (Kind.JOINT, Kind.MARGINAL)
    )
    reason = (
        f"accuracies by depth {shown} may be joint (accept length 1 + sum = {joint:.3f}), conditional "
        f"(1 + sum of products = {chain:.3f}) or marginal (the same, somewhat low); say it with "
        "`specmodel train --accuracy-kind joint`, `conditional` or `marginal`"
    )
    return TrainingLogError(path, reason, line=line, code="kind-unknown")


# ---
# Console lines of trainers by reinforcement: ``step:7 - loss:0.1 - rollout/accept_length:2.1``. Their
# rollouts are served, so the accept length is a measured one.
_STEP = re.compile(r"\bstep:\s?(\d{1,12}) - ")
_TYPED = re.compile(r"^[A-Za-z_][\w.]{0,30}\((.{1,40})\)$")


class KeyValueLines:
    """Reads lines of pairs that hyphens separate."""

    def __init__(self, raw: RawLog) -> None:
        self._raw = raw

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line if it has a step and an accept length."""
        found = _STEP.search(text) if " - " in text else None
        if found is None:
            return False
        values: dict[str, float | None] = {}
        for pair in text[found.end() :].split(" - "):
            key, _, printed = pair.strip().rpartition(":")
            *_, above, last = ("", *key.split("/"))
            name = above if last in ("mean", "avg") else last
            if key and canonical_name(name) == "accept_length":
                values["reported:rollout"] = printed_number(_TYPED.sub(r"\1", printed.strip()))
        if not values:
            return False
        if is_cut(text, len(text)):
            self._raw.warn("truncated-record", line)
        else:
            values["step"] = float(found[1])
            self._raw.add(FAMILY, Split.TRAIN, "pairs", line, stream, values)
        return True

    def finish(self) -> None:
        """Do nothing: each record is a line."""
