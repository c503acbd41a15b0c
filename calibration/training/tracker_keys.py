"""Keys that trainers other than speculators log to trackers, and which of them logs a table.

training_logs.md sections 5.3 and 5.4. SpecForge, the EAGLE-3 repository and TorchSpec share keys: a
table is of the one that logs all of its keys. TorchSpec logs averages beside ``train/acc_i``; a table of
train keys without them is none of its own. What is left open is called as on the console: train keys
alone are ``eagle3``, evaluations alone ``specforge``, both with `OPEN_FAMILY` as hint. A family that the
user names is taken where it logs all of the keys.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.records import Kind, Split
from calibration.training.speculators_keys import KeyPlan, key_plans

# Id of the format of exports that are not of speculators.
TRACKER_FORMAT: Final = "tracker"

# Column of a plan whose cells hold the marginal accuracies of all depths as a list.
LISTED: Final = "listed"

# How the columns of accuracies and accept lengths begin.
MEASURED: Final = (*(f"{kind}_" for kind in Kind), "mean_marginal", "reported:", LISTED)

_SHARING: Final = ("eagle3", "specforge", "torchspec")  # the first one that may be is taken
_AVERAGE = "average"  # of the first depth in SpecForge, of all in TorchSpec
_NO_COLUMN = ""  # of a key that only tells trainers apart
_NUMBERED = re.compile(r"(.{0,120}\D)(\d{1,2})(_train_acc)?", re.ASCII)
_FIRST_DEPTHS = (0, 1)


@dataclass(frozen=True, slots=True)
class _Key:
    """Who logs a key, and what it is."""

    families: frozenset[str]
    split: Split
    # Of `RecordTable`, without the number of the depth.
    column: str


def _known_keys() -> Mapping[str, _Key]:
    """Return all keys, ``#`` for the depth; of those of one column the first is preferred."""
    known: dict[str, _Key] = {}

    def add(families: str, split: Split, column: str, *keys: str) -> None:
        for key in keys:
            known[key] = _Key(frozenset(families.split()), split, column)

    everyone, not_eagle = " ".join(_SHARING), "specforge torchspec"
    add(everyone, Split.TRAIN, "marginal", "train/acc_#")
    add(everyone, Split.TRAIN, "loss", "train/ploss_#")
    add("specforge", Split.TRAIN, "marginal", "train/epoch_acc_#")
    add("eagle3 specforge", Split.TRAIN, "marginal", "train/epochacc_#")
    add("specforge", Split.TRAIN, "overlap", "train/acceptance_rate_#")
    add("specforge", Split.TRAIN, _NO_COLUMN, "train/acceptance_rate", "train/grad_norm")
    add("eagle3", Split.VAL, "marginal", "test/acc_#", "test/epochacc_#", "test/epoch_acc_#")
    add("eagle3", Split.VAL, "loss", "test/ploss_#", "test/epochploss_#")
    add("torchspec", Split.TRAIN, _AVERAGE, "train/avg_acc")
    add("torchspec", Split.TRAIN, "total_loss", "train/avg_loss")
    add("torchspec", Split.TRAIN, "reported:simulated_acc_len", "train/simulated_acc_len")
    add(not_eagle, Split.VAL, "marginal", "eval/acc_#")
    add("specforge", Split.VAL, "marginal", *(f"eval/per_position_acc{s}#" for s in "_./"))
    add("specforge", Split.VAL, LISTED, "eval/per_position_acc")
    add("specforge", Split.VAL, "marginal", "eval/epoch_acc_#", "eval/epochacc_#")
    add("specforge", Split.VAL, "overlap", "eval/acceptance_rate_#")
    add(not_eagle, Split.VAL, "loss", "eval/ploss_#")
    add(not_eagle, Split.VAL, _AVERAGE, "eval/avg_acc")
    add(not_eagle, Split.VAL, "total_loss", "eval/avg_loss")
    add(not_eagle, Split.VAL, "reported:simulated_acc_len", "eval/simulated_acc_len")
    for above in ("", "train/"):  # which HF Trainer puts in front
        add("modelopt", Split.TRAIN, "marginal", f"{above}train_acc/parallel_0_step_#")
        add("modelopt", Split.TRAIN, "marginal", f"{above}parallel_0_step_#_train_acc")
        for length in ("estimated_training_ar", "validate_ar"):
            add("modelopt", Split.TRAIN, f"reported:{length}", above + length)
    for above in ("train/acc_", "train/train_acc_"):  # names of files have no slashes
        add("modelopt", Split.TRAIN, "marginal", f"{above}parallel_0_step_#")
    splits = {"train/": Split.TRAIN, "val/": Split.VAL, "eval/": Split.VAL, "": Split.UNKNOWN}
    for above, split in splits.items():
        add("deepspec", split, "marginal", f"{above}accuracy@#")
        add("deepspec", split, "overlap", f"{above}accept_rate@#")
        for length in ("tau_greedy", "tau_probabilistic"):
            add("deepspec", split, f"reported:{length}", above + length)
    for split in (Split.TRAIN, Split.VAL):
        for length in ("tau_sim", "tau_real"):
            add("automodel", split, f"reported:{length}", f"{split}/{length}")
    return known


_KNOWN: Final = _known_keys()
_RANKS: Final = {key: rank for rank, key in enumerate(_KNOWN)}
_COMMON: Final = {
    **dict.fromkeys(("lr", "train/lr", "learning_rate", "train/learning_rate"), "learning_rate"),
    **dict.fromkeys(("global_step", "step", "train/global_step"), "step"),
    **dict.fromkeys(("epoch", "train/epoch"), "epoch"),
}
_OF_SPLIT: Final = {"loss": "total_loss", "acc": "mean_marginal"}  # where nothing else says them


@dataclass(slots=True)
class _SplitKeys:
    """Places of the keys of one family and split."""

    single: dict[str, int] = field(default_factory=dict)
    # By column, key and depth.
    depths: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)

    def add(self, key: str, column: str, depth: int | None, place: int) -> None:
        """Add a key."""
        if depth is None:
            self.single.setdefault(column, place)
        else:
            self.depths.setdefault(column, {}).setdefault(key, {}).setdefault(depth, place)


@lru_cache(maxsize=256)
def tracker_plans(keys: tuple[str, ...], family: str | None = None) -> tuple[KeyPlan, ...]:
    """Return where the numbers of a table of a tracker go: a plan for each family and split."""
    own = tuple(plan for plan in key_plans(keys) if plan.family)
    found = [(place, *known) for place, key in enumerate(keys) if (known := _known(key))]
    if not found:
        return own
    plans = list(own)
    for name, is_open in _families([_KNOWN[key].families for _, key, _ in found], family).items():
        splits: dict[Split, _SplitKeys] = {}
        for place, key, depth in found:
            entry = _KNOWN[key]
            if name in entry.families and entry.column:
                splits.setdefault(entry.split, _SplitKeys()).add(key, entry.column, depth, place)
        for split, of_split in splits.items():
            plan = _plan(name, split, of_split, keys, is_open=is_open)
            if plan is not None:
                plans.append(plan)
    return tuple(plans)


def _known(key: str) -> tuple[str, int | None] | None:
    """Return a key as `_KNOWN` has it, and the depth; None where it is not there."""
    if key in _KNOWN:
        return (key, None) if "#" not in key else None
    numbered = _NUMBERED.fullmatch(key)
    if numbered is None:
        return None
    pattern = f"{numbered[1]}#{numbered[3] or ''}"
    return (pattern, int(numbered[2])) if pattern in _KNOWN else None


def _families(of_keys: Iterable[frozenset[str]], named: str | None) -> dict[str, bool]:
    """Return the families that some keys are of, and whether each might be another one."""
    sharing = [families for families in of_keys if families & set(_SHARING)]
    alone = {name for families in of_keys if len(families) == 1 for name in families}
    found = dict.fromkeys(sorted(alone - set(_SHARING)), False)
    if not sharing:
        return found
    candidates = frozenset.intersection(*sharing)
    if not candidates:  # keys of several trainers: each has its records
        return found | dict.fromkeys(sorted(alone & set(_SHARING)), False)
    if named in candidates:
        return found | {str(named): False}
    has_train_keys = any(families >= {"eagle3", "specforge"} for families in sharing)
    if has_train_keys and len(candidates) > 1:
        candidates -= {"torchspec"}
    name = next(name for name in _SHARING if name in candidates)
    return found | {name: len(candidates) > 1}


def _plan(
    family: str, split: Split, found: _SplitKeys, keys: tuple[str, ...], *, is_open: bool
) -> KeyPlan | None:
    """Return the plan of a family and split, None where it has neither accuracy nor accept length."""
    columns = dict(found.single)
    first_position = 0
    for column, by_key in found.depths.items():
        depths = by_key[min(by_key, key=_RANKS.__getitem__)]
        first = min(depths)
        if "@" not in next(iter(by_key)) or first not in _FIRST_DEPTHS:
            first = 0
        columns |= {f"{column}_{k - first}": place for k, place in depths.items() if k >= first}
        first_position = max(first_position, first)
    if any(name.startswith("marginal_") for name in columns):
        columns.pop(LISTED, None)
    average = columns.pop(_AVERAGE, None)
    if average is not None and family == "torchspec":
        columns["mean_marginal"] = average
    elif average is not None and not is_open:
        per_depth = LISTED in columns or "marginal_0" in columns
        columns |= {} if per_depth else {"marginal_0": average}
    if not any(name.startswith(MEASURED) for name in columns):
        return None
    hints = {OPEN_FAMILY} if is_open else set()
    if family == "specforge" and "overlap_0" in columns:
        hints.add("acceptance_rate")
    return KeyPlan(
        family=family,
        split=split,
        columns=_shared(keys, family, split) | columns,
        first_position=first_position,
        hints=frozenset(hints),
    )


def _shared(keys: tuple[str, ...], family: str, split: Split) -> dict[str, int]:
    """Return the places of what any trainer logs."""
    columns: dict[str, int] = {}
    for place, key in enumerate(keys):
        above, _, name = key.rpartition("/")
        if key in _COMMON:
            columns.setdefault(_COMMON[key], place)
        elif above == split and (name == "loss" or (name == "acc" and family == "automodel")):
            columns.setdefault(_OF_SPLIT[name], place)
    return columns
