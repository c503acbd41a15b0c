"""What the layout of a training log says about its numbers, by family and format.

A log names neither its version nor how it feeds tokens or counts targets outside the draft vocabulary:
this follows from who prints what, training_logs.md sections 1, 2 and 5. Nothing here is guessed: what
a layout leaves open is ``unknown``.
"""

import tomllib
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from calibration.training.records import Array, Kind

# Kind of an accuracy that is averaged over the depths.
MEAN_MARGINAL: Final = "mean-marginal"

# What the numbers of each family mean, the keys of trackers, and what is said of a log.
FORMATS: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("formats.toml").read_text("utf-8")
)

# Ids of all families, as a user names them.
FAMILIES: Final = tuple(FORMATS["family"])

# Labels of records that come from progress bars, with the format to name. Bars are a sample: where a
# record line carries the same step, it is used and the bar is not. (Validation records of T1 are lines.)
BAR_FORMATS: Final[Mapping[str, str]] = {"F3": "F3", "T1": "T1", "N1-bar": "N1"}

# Hint of training blocks that two families print alike, as long as no evaluation tells them apart, and
# of exports of trackers with keys that several families log.
OPEN_FAMILY: Final = "family-open"


class Feeding(StrEnum):
    """Which token was fed at the second depth and beyond."""

    OWN = "own"
    DATA = "data"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "n/a"


class OutOfVocabulary(StrEnum):
    """What a target token outside the draft vocabulary counts as."""

    HIT = "hit"
    MISS = "miss"
    REMOVED = "removed"
    UNKNOWN = "unknown"


class Aggregation(StrEnum):
    """How an accuracy was averaged: means of ratios or ratios of counts."""

    MACRO = "macro"
    MICRO = "micro"
    UNKNOWN = "unknown"


class Bonus(StrEnum):
    """Whether a printed accept length counts the bonus token; a rollout is taken as it is."""

    YES = "yes"
    NO = "no"
    MEASURED = "measured"
    UNKNOWN = "unknown"


class FamilyFacts(NamedTuple):
    """What a family's numbers mean."""

    framework: str  # name of the project
    versions: str  # versions or dates that the layout leaves; ``unknown`` where it says nothing
    feeding: Feeding  # token fed at the second depth and beyond
    oov: OutOfVocabulary  # what targets outside the draft vocabulary count as
    aggregation: Aggregation  # how the accuracies of training records were averaged
    kinds: Mapping[str, str]  # what was found: pattern of the key, kind of its accuracy


_EAGLE3_FEEDINGS: Final = {
    "0.3-0.4": Feeding.OWN,
    "0.5-0.6": Feeding.OWN,
    ">=0.7": Feeding.DATA,
    ">=0.8": Feeding.DATA,
    ">=0.9": Feeding.DATA,
}

_EAGLE3_AGGREGATIONS: Final = {  # 0.5 is macro and 0.6 has the aliasing defect: open
    "0.3-0.4": Aggregation.MACRO,
    ">=0.7": Aggregation.MICRO,
    ">=0.8": Aggregation.MICRO,
    ">=0.9": Aggregation.MICRO,
}

_AGGREGATIONS: Final = {"torchspec": Aggregation.MACRO}

_SPECULATORS_HINTS: Final = (
    ("profile_late", ">=0.9"),
    ("error_records", ">=0.8"),
    ("profile", ">=0.7"),
    ("global_step", "0.5-0.6"),
)

_SPECFORGE_PLAIN: Final = {  # until the acceptance rate was printed
    "F4": ">=2026-07-14",
    "F2": "2025-11 to 2026-03",
    "F1": "2025-07",
    "F3": "2025-09 to 2026-03",
}
_SPECFORGE_WITH_RATE: Final = "2026-03 to 2026-07"
_SPECFORGE_EXPORT_WITH_RATE: Final = ">=2026-03"

_PRINTED = 0.0006  # half a unit of three decimals
_MOST_BELOW_WITH_BONUS = 0.1  # training_logs.md section 5.2
_MOST_FROM_WITHOUT_BONUS = 0.35


def family_facts(
    family: str, *, formats: Collection[str], hints: Collection[str], kinds: Collection[str]
) -> FamilyFacts:
    """Return what the layout of a log says about its numbers."""
    versions = _versions(family, formats, hints)
    known = FORMATS["family"][family]
    framework = known["framework"]
    if OPEN_FAMILY in hints:
        framework = known.get("open", framework)
    if family == "speculators-eagle3":
        feeding = _EAGLE3_FEEDINGS.get(versions, Feeding.UNKNOWN)
        aggregation = _EAGLE3_AGGREGATIONS.get(versions, Aggregation.UNKNOWN)
    else:
        feeding = Feeding(known["feeding"])
        aggregation = _AGGREGATIONS.get(family, Aggregation.UNKNOWN)
    return FamilyFacts(
        framework=framework,
        versions=versions,
        feeding=feeding,
        oov=_out_of_vocabulary(family, formats, hints),
        aggregation=aggregation,
        kinds=_kinds(family, hints, kinds),
    )


def accept_length_bonus(
    family: str, key: str, *, versions: str = "unknown", value: float, chain: float | None = None
) -> Bonus:
    """Return whether a printed accept length counts the bonus token.

    The ``eal`` of speculators changed its convention in 0.9. Where the version is open it is compared
    with the sum of the products of the printed positions.
    """
    if family.startswith("speculators") and key == "eal":
        return _eal_bonus(versions, value, chain)
    return Bonus(FORMATS["family"][family].get("bonus", {}).get(key, Bonus.UNKNOWN))


def bonus_by_numbers(values: Array, first: Array, chain: Array) -> Bonus | None:
    """Return whether accept lengths count the bonus token, where they and their accuracies tell.

    Every round emits the target's own token, so with it a length is at least 1, and 1 where no draft
    is right (`first`, of one depth or the mean, is 0). `chain` is the sum of products of accuracies.
    """
    if (values < 1.0 - _PRINTED).any():
        return Bonus.NO
    if (np.isfinite(values) & (first == 0.0)).any():
        return Bonus.YES
    added = values - chain
    more = float(np.median(added[np.isfinite(added)])) if np.isfinite(added).any() else np.nan
    if abs(more) <= _MOST_BELOW_WITH_BONUS:
        return Bonus.NO
    return Bonus.YES if abs(more - 1.0) <= _MOST_BELOW_WITH_BONUS else None


def accept_length_with_bonus(value: float, bonus: Bonus) -> float | None:
    """Return a printed accept length with the bonus token; None where its convention is unknown."""
    if bonus is Bonus.UNKNOWN:
        return None
    return value + 1.0 if bonus is Bonus.NO else value


def _eal_bonus(versions: str, value: float, chain: float | None) -> Bonus:
    """Return the convention of the ``eal`` of speculators."""
    if versions == ">=0.9":
        return Bonus.YES
    if versions in ("0.3-0.4", "0.5-0.6"):
        return Bonus.NO
    if chain is None:
        return Bonus.UNKNOWN
    if value >= 1.0 + chain - _MOST_BELOW_WITH_BONUS:
        return Bonus.YES
    return Bonus.NO if abs(value - chain) <= _MOST_FROM_WITHOUT_BONUS else Bonus.UNKNOWN


def _versions(family: str, formats: Collection[str], hints: Collection[str]) -> str:
    """Return the versions or dates that the layout leaves."""
    if family.startswith("speculators"):
        for hint, versions in _SPECULATORS_HINTS:
            if hint in hints:
                return versions
        return "0.3-0.4" if "S1" in formats else "unknown"
    if family == "specforge":
        newest = _newest_specforge(formats)
        if newest in ("F2", "F3") and "acceptance_rate" in hints:
            return _SPECFORGE_WITH_RATE
        if not newest and "acceptance_rate" in hints:
            return _SPECFORGE_EXPORT_WITH_RATE
        return _SPECFORGE_PLAIN.get(newest, "unknown")
    return "unknown"


def _newest_specforge(formats: Collection[str]) -> str:
    """Return the format that narrows the date most; bars accompany all of them."""
    return next((known for known in _SPECFORGE_PLAIN if known in formats), "")


def _out_of_vocabulary(
    family: str, formats: Collection[str], hints: Collection[str]
) -> OutOfVocabulary:
    """Return what targets outside the draft vocabulary count as."""
    if family == "speculators-eagle3":
        return OutOfVocabulary.HIT
    if family == "torchspec":
        return OutOfVocabulary.REMOVED
    if family == "specforge":  # compared inside the vocabulary until 2026-03
        newest = _newest_specforge(formats)
        if newest == "F4" or (newest in ("F2", "F3", "") and "acceptance_rate" in hints):
            return OutOfVocabulary.MISS
        return OutOfVocabulary.HIT if newest else OutOfVocabulary.UNKNOWN
    return OutOfVocabulary.UNKNOWN


def _kinds(family: str, hints: Collection[str], kinds: Collection[str]) -> dict[str, str]:
    """Return the patterns of the keys that were found, with their kinds."""
    keys = dict(FORMATS["family"][family]["keys"])
    if family == "hf-trainer" and "top_k_acc" in hints:
        keys[Kind.MARGINAL] = "top_k_acc"
    found = {key: str(kind) for kind, key in keys.items() if kind in kinds}
    per_depth = family != "speculators-block" and Kind.MARGINAL in kinds
    if per_depth and MEAN_MARGINAL in kinds:  # the mean of what is there by depth says nothing more
        found.pop(keys.get(MEAN_MARGINAL, ""), None)
    return found
