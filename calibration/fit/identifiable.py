"""What the points of a fit can tell, and what they cannot: which constants, and what would."""

from typing import NamedTuple

import numpy as np

from specmodel.calibration import Calibration
from specmodel.constants import CONSTANTS

SAME_ACCEPT_LENGTH = 1.1
"""Ratio of accept lengths at one configuration below which they do not tell the non-decode share. [-]"""

_MORE = {
    "fixed_cost": "depths further apart, or more runs",
    "step_cost": "depths further apart, or more runs",
    "tree_cost": "more chains and trees at the same load",
    "expert_ratio": "more depths or batches",
    "non_decode_share": "more runs at different accept lengths, or TTFT and output length",
    "baseline_share": "more workloads with different baselines",
    "batch_growth_share": "more depths or batches, with a baseline at each",
    "draft_time_exponent": "more batches or contexts, with a baseline at each",
    "kv_row_share": "more contexts, with a baseline at each",
}


class Untold(NamedTuple):
    """Constants that the points do not tell one by one, and what would tell them.

    `summed` marks fixed cost and cost of a step at a single depth: their sum is known there.
    """

    constants: tuple[str, ...]
    needs: str
    summed: bool = False


def constants_in_play(calibration: Calibration) -> tuple[str, ...]:
    """Constants that act on some point of a fit; the others are the prior's and change nothing here.

    Trees are needed for `tree_cost`, known experts for `expert_ratio` (a batch curve replaces it), a
    batch curve for `batch_growth_share` and, with several contexts, `kv_row_share`; workloads with
    different baselines for `baseline_share`; several loads for `draft_time_exponent`. Where every
    throughput is that of decoding alone, no time is spent otherwise.
    """
    configurations, curve = calibration.configurations, calibration.curve
    loads = {(one.batch_size, one.context_tokens) for one in configurations}
    contexts = {one.context_tokens for one in configurations} - {None}
    has_curve = curve is not None and curve.num_batches > 1
    acts = {
        "fixed_cost": True,
        "step_cost": True,
        "tree_cost": any((one.topk or 1.0) > 1.0 for one in configurations),
        "expert_ratio": calibration.num_experts > 0 and not has_curve,
        "non_decode_share": not calibration.decode_only,
        "baseline_share": not calibration.decode_only and _baselines_differ(calibration),
        "batch_growth_share": has_curve,
        "draft_time_exponent": len(loads) > 1,
        "kv_row_share": has_curve and len(contexts) > 1,
    }
    return tuple(constant.name for constant in CONSTANTS if acts[constant.name])


def untold_constants(calibration: Calibration) -> tuple[Untold, ...]:
    """Constants in play that the points leave open.

    theory.md part D: one point fixes only the round cost at its depth; fixed cost and cost of a step
    come apart with two depths.
    """
    found = []
    depths = stated_depths(calibration)
    in_play = constants_in_play(calibration)
    differ = accept_lengths_differ(calibration)
    single = len(depths) < 2
    if single:
        found.append(
            Untold(("fixed_cost", "step_cost"), "a second depth at the same load", summed=True)
        )
    for constant, estimate in zip(CONSTANTS, calibration.constants, strict=True):
        summed = single and constant.name in {"fixed_cost", "step_cost"}
        if constant.name in in_play and not summed and estimate.prior_dominated:
            # More of what the points have, or what they lack.
            lacking = constant.name == "non_decode_share" and not differ
            needs = constant.needs if lacking else _MORE.get(constant.name, constant.needs)
            found.append(Untold((constant.name,), needs))
    return tuple(found)


def accept_lengths_differ(calibration: Calibration) -> bool:
    """Whether some configuration was measured at clearly different accept lengths."""
    return any(
        one.accept_length[1] > SAME_ACCEPT_LENGTH * one.accept_length[0]
        for one in calibration.observations
    )


def stated_depths(calibration: Calibration) -> list[float]:
    """Distinct depths of the points that state one, in rising order."""
    return sorted(
        {one.num_steps for one in calibration.configurations if one.num_steps is not None}
    )


def _baselines_differ(calibration: Calibration) -> bool:
    """Whether two workloads at one load have different baselines."""
    by_load: dict[tuple[str, str], list[float]] = {}
    for entry in calibration.baselines.entries:
        load = (repr(entry.batch_size), repr(entry.context_tokens))
        by_load.setdefault(load, []).append(entry.tokens_per_s)
    return any(np.ptp(rates) > 0 for rates in by_load.values())
