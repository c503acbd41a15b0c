"""What the form of the model misses, of configurations and of runs, and how it goes together over loads.

Effects are a process over octaves of batch, verified rows, context and depth: an answer between two measured
loads is between theirs, and widens with the distance. How strong each part is stands in the prior's noise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.constants import NAMES
from specmodel.cost import BatchCurve, RoundTerms, round_cost_parts
from specmodel.cost.growth import NO_BASELINES
from specmodel.prior import Noise
from specmodel.question import Run

Array = NDArray[np.float64]
Index = NDArray[np.intp]

NEW: Final = -1
"""Index of a configuration, run or workload that the points do not hold."""

LOAD_OCTAVES: Final = {"batch": 1.5, "rows": 1.8, "context": 2.0, "depth": 0.9, "workload": 2.0}
"""Distance over which each part of the effects changes, learned by ``scripts/learn_effects.py``."""

TREE_SHARE: Final = 0.5
"""Correlation of what a workload adds to chains and to trees: a judgement. [-]"""

_JITTER = 1e-9
_GROWTH, _KV = NAMES.index("batch_growth_share"), NAMES.index("kv_row_share")


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """What the effect of a run belongs to, as arrays of one length."""

    workload: Index  # which of the system's; `NEW` for another one
    tree: Array  # 1 for trees, 0 for chains
    log_batch: Array  # octaves
    context: Array  # octaves

    def take(self, runs: NDArray[np.bool_] | Index) -> "Runs":
        """Some of the runs."""
        return Runs(**{one.name: getattr(self, one.name)[runs] for one in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """Where the effects of a posterior were measured: its configurations, its runs, the baselines."""

    terms: RoundTerms
    runs: Runs
    curve: BatchCurve | None = None


def workload_numbers(runs: Iterable[Run]) -> dict[str, int]:
    """Number of each workload, in the order of the runs."""
    return {name: at for at, name in enumerate(dict.fromkeys(one.workload for one in runs))}


def _near(one: Array, two: Array, octaves: float) -> Array:
    """Correlation of loads by their distance."""
    return np.asarray(np.exp(-0.5 * ((one[:, None] - two) / octaves) ** 2))


def _of_growth(constants: Array, terms: RoundTerms) -> Array:
    """Relative change of the round cost per relative change of what verification makes of a step."""
    grown = terms.verify_growth + constants[_KV] * terms.kv_growth
    cost = sum(round_cost_parts(constants, terms))
    return np.asarray(constants[0] * constants[_GROWTH] * grown / cost)


def configuration_covariance(
    one: RoundTerms,
    two: RoundTerms,
    noise: Noise,
    scale: float,
    constants: Array,
    curve: BatchCurve | None,
) -> Array:
    """Of the effects on ln R of two sets of configurations, but for what each has alone."""
    octaves = LOAD_OCTAVES
    context = _near(one.context, two.context, octaves["context"])
    batch = _near(one.log_batch, two.log_batch, octaves["batch"]) * context
    rows = _near(one.log_rows, two.log_rows, octaves["rows"]) * context
    deep_one, deep_two = (np.log2(1.0 + each.num_steps) for each in (one, two))
    depth = _near(deep_one, deep_two, octaves["depth"])
    found = noise.load_log_sd**2 * batch + noise.rows_log_sd**2 * rows
    found += noise.depth_log_sd**2 * batch * depth
    found += noise.tree_log_sd**2 * one.tree[:, None] * two.tree
    found *= scale
    if noise.growth_share > 0.0:
        growth = curve.growth if curve is not None else NO_BASELINES
        moved = [noise.growth_share * _of_growth(constants, each) for each in (one, two)]
        found += moved[0][:, None] * moved[1] * growth.covariance(one, two)
    return np.asarray(found)


def run_covariance(one: Runs, two: Runs, noise: Noise, scale: float) -> Array:
    """Of the effects on ln S of two sets of runs, but for what each has alone."""
    same = one.workload[:, None] == two.workload
    kind = np.where(one.tree[:, None] == two.tree, 1.0, TREE_SHARE)
    near = _near(one.log_batch, two.log_batch, LOAD_OCTAVES["workload"])
    near *= _near(one.context, two.context, LOAD_OCTAVES["workload"])
    return np.asarray(scale * noise.workload_log_sd**2 * same * kind * near)


def prior_covariances(
    seen: Seen, noise: Noise, scale: float, constants: Array
) -> tuple[Array, Array]:
    """Of the effects of configurations and of runs where they were measured."""
    cost = configuration_covariance(seen.terms, seen.terms, noise, scale, constants, seen.curve)
    run = run_covariance(seen.runs, seen.runs, noise, scale)
    for each, alone in ((cost, noise.configuration_log_sd), (run, noise.run_log_sd)):
        at = np.diag_indices_from(each)
        each[at] = (each[at] + scale * alone**2) * (1.0 + _JITTER) + _JITTER**2
    return cost, run
