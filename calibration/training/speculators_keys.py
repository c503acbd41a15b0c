"""Which column the keys of a speculators metric record go to, and what the keys say of the version."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from calibration.training.records import Array, Kind, RawLog, Split

# Drafters that unroll depths: joint and conditional accuracies.
EAGLE3_FAMILY: Final = "speculators-eagle3"

# Drafters of whole blocks (DFlash, DSpark, P-EAGLE): marginal accuracies.
BLOCK_FAMILY: Final = "speculators-block"

# Half a unit of the three decimals that the console prints; scientific below. [-]
CONSOLE_ROUNDING: Final = 0.0005

_DEPTHS: Final = {"full_acc": Kind.JOINT, "cond_acc": Kind.CONDITIONAL, "loss": "loss"}
_DEPTH_KEY = re.compile(r"(full_acc|cond_acc|loss)_(\d{1,2})", re.ASCII)
_POSITION_KEY = re.compile(r"position_(\d{1,2})_acc", re.ASCII)
_KEY = re.compile(r"(?:(train|val)/)?(.+?)(_epoch)?", re.DOTALL)
_LATE_PROFILE = re.compile(r"profile/\w*(?:queue|h2d|clip|mem)", re.ASCII)
_SPLITS: Final = {"train": Split.TRAIN, "val": Split.VAL}
_REPORTED: Final = frozenset({"eal", "accept_len"})
_WHOLE_NAMES: Final = {"loss": "total_loss", "full_acc": "mean_marginal"} | {
    key: f"reported:{key}" for key in _REPORTED
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """Where the numbers of a record with certain keys go."""

    family: str  # whose accuracies they are; empty where there are none
    split: Split  # which data the record is about
    columns: Mapping[str, int]  # place of the key by column of `RecordTable`
    first_position: int = 0  # index that is printed for the first depth
    hints: frozenset[str] = frozenset()  # what tells the version apart
    # whether the keys have no ``train/`` or ``val/`` in front, as in what people paste
    bare: bool = False

    @property
    def complete(self) -> bool:
        """Whether a console record with these keys has its end, given that it may be of any version."""
        if self.bare:
            return True
        if self.split is Split.VAL:
            return "epoch" in self.columns
        return "step" in self.columns or "learning_rate" in self.columns

    def format_of_console(self) -> str:
        """Return the id of the layout of a console record."""
        if self.family == BLOCK_FAMILY:
            return "S7"
        if self.bare:
            return "dict"
        if self.split is Split.VAL:
            return "S4"
        if self.hints & {"profile", "error_records"}:
            return "S3"
        return "S2" if "step" in self.columns else "S1"

    def store(
        self,
        raw: RawLog,
        columns: Mapping[str, Sequence[float] | Array],
        streams: Sequence[str],
        *,
        layout: str,
        rounding: float,
        hints: bool = True,
    ) -> None:
        """Add some records with these keys."""
        known = self.hints if hints and not self.bare else ()
        table = raw.extend(
            self.family, self.split, layout, columns, streams, hints=known, rounding=rounding
        )
        table.first_position = self.first_position


@lru_cache(maxsize=256)
def key_plans(keys: tuple[str, ...]) -> tuple[KeyPlan, ...]:
    """Return where the numbers of a record with certain keys go, one plan for each split in it."""
    shared: dict[str, int] = {}
    by_split: dict[Split, dict[str, int]] = {}
    prefixed: set[Split] = set()
    for place, key in enumerate(keys):
        found = _KEY.fullmatch(key)
        if found is None:
            continue
        prefix, name, suffix = found.groups()
        common = _shared_name(name) if prefix is None and suffix is None else None
        if common is not None:
            if common not in shared or key == "global_step":
                shared[common] = place
            continue
        split = _SPLITS.get(prefix or "", Split.VAL if suffix else Split.UNKNOWN)
        if prefix:
            prefixed.add(split)
        by_split.setdefault(split, {}).setdefault(name, place)
    hints = _hints(keys)
    plans = (
        _plan(split, names, shared, hints, bare=split not in prefixed)
        for split, names in by_split.items()
    )
    return tuple(plan for plan in plans if plan is not None)


def _shared_name(name: str) -> str | None:
    """Return the column of a key that is about the record whatever its split."""
    if name == "lr" or name.startswith("lr/"):
        return "learning_rate"
    if name in ("global_step", "step"):
        return "step"
    return "epoch" if name == "epoch" else None


def _plan(
    split: Split,
    names: Mapping[str, int],
    shared: Mapping[str, int],
    hints: frozenset[str],
    *,
    bare: bool,
) -> KeyPlan | None:
    """Return the plan of one split, None where it has neither accuracy nor loss."""
    columns: dict[str, int] = {}
    positions: dict[int, int] = {}
    for name, place in names.items():
        if found := _DEPTH_KEY.fullmatch(name):
            columns[f"{_DEPTHS[found[1]]}_{int(found[2])}"] = place
        elif found := _POSITION_KEY.fullmatch(name):
            positions[int(found[1])] = place
        elif name in _WHOLE_NAMES:
            columns[_WHOLE_NAMES[name]] = place
    unrolled = any(name.startswith((Kind.JOINT, Kind.CONDITIONAL)) for name in columns)
    first = min(positions) if positions and not unrolled else 0
    if unrolled:
        family = EAGLE3_FAMILY
        columns.pop("mean_marginal", None)
    else:
        family = BLOCK_FAMILY if positions or "mean_marginal" in columns else ""
        columns |= {f"{Kind.MARGINAL}_{k - first}": place for k, place in positions.items()}
    if not family and not any(name.startswith(("loss", "total_loss")) for name in columns):
        return None
    if bare and not family:  # a loss without a name in front is anyone's
        return None
    return KeyPlan(
        family=family,
        split=split,
        columns=dict(shared) | columns,
        first_position=first,
        hints=hints,
        bare=bare,
    )


def _hints(keys: tuple[str, ...]) -> frozenset[str]:
    """Return what the keys of a console record say of the version."""
    hints = set()
    for key in keys:
        if key == "global_step":
            hints.add(key)
        elif key == "profile" or key.startswith("profile/"):
            hints.add("profile")
            if _LATE_PROFILE.match(key):
                hints.add("profile_late")
        elif key.endswith("/error_records"):
            hints.add("error_records")
    return frozenset(hints)
