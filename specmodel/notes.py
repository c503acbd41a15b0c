"""What to know beside a prediction: extrapolation, priors, missing baselines."""

from typing import TYPE_CHECKING, Final

import numpy as np

from specmodel.ask import depth_unknown
from specmodel.constants import CONSTANTS, NUM_CONSTANTS, index_of, slope
from specmodel.cost import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.errors import Note
from specmodel.posterior import NEW
from specmodel.prediction import Prediction, question_rows
from specmodel.question import longest_accept_length

if TYPE_CHECKING:
    from specmodel.calibration import Calibration

_EXPONENT: Final = index_of("draft_time_exponent")

MATTERS_LOG_SD: Final = 0.02
"""Uncertainty of the speed-up from one constant, from which it is named when it is the prior's. [-]"""

BASELINE_DIFFERS: Final = 0.2
"""Relative difference to the calibrated baselines at one load from which a given one is named. [-]"""

SAME_ACCEPT_LENGTH: Final = 0.01
"""Relative difference below which an accept length is the measured one. [-]"""

_ROUND_COST_CONSTANTS: Final = ("fixed_cost", "step_cost", "tree_cost", "expert_ratio")
_AXES: Final = {
    "num_steps": "depth",
    "topk": "topk",
    "num_draft_tokens": "draft tokens",
    "batch_size": "batch",
    "context_tokens": "context",
}
_PRICED_BY_RIG: Final = ("batch_size", "context_tokens")  # the physical form knows more of them


ROUNDING: Final = 5e-3
"""How far a round cost may be below 1 without a remark. [-]"""


def calibration_notes(system: "Calibration") -> tuple[Note, ...]:
    """Remarks that hold for every prediction of a calibration: no points, or broken baselines."""
    if not system.num_points:
        what = (
            "no points of this system: constants are the packaged prior, learned from "
            f"{len(system.prior.learned_from)} public systems; one benchmark point and "
            "`specmodel fit` make this an answer about your system"
        )
        return (Note("packaged_prior", what),)
    said = system.broken_baselines
    if not said:
        return ()
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    head = "not all points of this calibration could be used"
    if system.forced:
        head = "this calibration rests on rows that were kept with --force"
    return (Note("broken_baseline", f"{head}: {said[0]}{more}"),)


def held_to_a_step(prediction: Prediction) -> tuple[Note, ...]:
    """Remark on a round cost that was held to one step."""
    implied = prediction.implied_round_cost
    if implied >= 1.0 - ROUNDING:
        return ()
    said = f"a round of {implied:.3g} steps is implied; none takes less than one"
    return (Note("round_cost_held", f"{said}, so it is taken as 1"),)


def depth_note(system: "Calibration", points_depth: int | None) -> tuple[Note, ...]:
    """What is taken for a depth that the points do not state."""
    if not depth_unknown(system):
        return ()
    taken = f"counted as {UNKNOWN_DEPTH_NUM_STEPS:g}, as usual"
    if points_depth is not None:
        taken = f"taken as {points_depth}, where the accept length belongs"
    what = f"the points do not state their depth; it is {taken}. `specmodel fit --num-steps N` states it"
    return (Note("unknown_depth", what),)


def prediction_notes(
    system: "Calibration", prediction: Prediction, *, accept_known: bool = True
) -> tuple[Note, ...]:
    """Remarks on one prediction; the calibration as a whole is `calibration_notes`' matter.

    Codes ``extrapolation``, ``prior_dominated``, ``no_baseline``, ``baseline_differs``,
    ``round_cost_held`` and ``out_of_reach``. Where no accept length was given, only costs are remarked on.
    """
    notes = _outside_the_points(system, prediction) if system.num_points else []
    if accept_known and system.num_points:
        accept = prediction.question.accept_length.estimate.median
        low, high = system.hull.get("accept_length", (accept, accept))
        if not low * (1 - SAME_ACCEPT_LENGTH) <= accept <= high * (1 + SAME_ACCEPT_LENGTH):
            outside = f"accept length {accept:.4g} is outside {_range(low, high)}"
            notes.insert(0, Note("extrapolation", outside))
        notes += _prior_dominated(system, prediction)
    notes += [*_baseline(system, prediction), *held_to_a_step(prediction)]
    longest = longest_accept_length(prediction.question.configuration)
    needed = prediction.break_even_accept_length.median
    if longest is not None and needed > longest:
        what = f"break-even is an accept length of {needed:.2f}, and a round of this depth emits at most "
        notes.append(Note("out_of_reach", f"{what}{longest:g}: it cannot beat no speculation"))
    return tuple(notes)


def _outside_the_points(system: "Calibration", prediction: Prediction) -> list[Note]:
    """Quantities outside the range of the points, with axis and range."""
    configuration = prediction.question.configuration
    depth, tokens = configuration.num_steps, configuration.num_draft_tokens
    chain = configuration.topk == 1 and depth is not None and tokens == depth + 1
    notes = []
    for name, word in _AXES.items():
        value = getattr(configuration, name)
        if value is None or (name == "num_draft_tokens" and chain):
            continue  # the draft tokens of a chain follow from its depth, which is looked at
        measured = system.hull.get(name) or ((1.0, 1.0) if name == "topk" else None)
        if measured is None and name != "num_steps":
            unknown = "the points do not state theirs; nothing is known of how they differ"
            notes.append(Note("extrapolation", f"{word} {value:g} is given, but {unknown}"))
        elif measured is not None and not measured[0] <= value <= measured[1]:
            priced = name in _PRICED_BY_RIG and system.physical is not None
            hint = f"; --set {name}={value:g} prices it by the rig" if priced else ""
            outside = f"{word} {value:g} is outside {_range(*measured)}{hint}"
            notes.append(Note("extrapolation", outside))
    return notes


def _range(low: float, high: float) -> str:
    """The range of the points."""
    return "what was measured, " + (f"{low:g}" if low == high else f"{low:g} to {high:g}")


def _prior_dominated(system: "Calibration", prediction: Prediction) -> list[Note]:
    """Constants that matter here and that the points say nothing about."""
    rows = question_rows(system, [prediction.question])
    posterior = system.posterior
    constants = posterior.constants
    _, gradient, _, _ = rows.log_speedup(constants)
    # The exponent only carries the cost of a draft step from the measured load to another one.
    scale = float(rows.terms.draft_scale[0])
    if scale != 1.0:
        gradient[0, _EXPONENT] *= np.log(scale / system.draft_scale) / np.log(scale)
    sd = np.sqrt(np.diag(posterior.covariance)[:NUM_CONSTANTS])
    matters = np.abs(gradient[0] * slope(constants)) * sd > MATTERS_LOG_SD
    measured_here = bool(rows.configuration[0] != NEW)  # then their sum is known
    names = [
        f"{constant.name} ({constant.symbol})"
        for constant, estimate, big in zip(
            CONSTANTS, system.constants, matters.tolist(), strict=True
        )
        if big
        and estimate.prior_dominated
        and not (measured_here and constant.name in _ROUND_COST_CONSTANTS)
    ]
    prior = f"the points say nothing about this; it is the prior ({system.prior.name})"
    return [Note("prior_dominated", f"{' and '.join(names)}: {prior}")] if names else []


def _baseline(system: "Calibration", prediction: Prediction) -> list[Note]:
    """Remarks on a baseline that is missing, or unlike the calibrated ones."""
    question, rate = prediction.question, prediction.baseline_tokens_per_s
    if rate is None:
        workloads = sorted({entry.workload for entry in system.baselines.entries} - {""})
        what = "no baseline is known at this load, so there is a speed-up and no tokens/s"
        hint = "give --baseline"
        if question.workload is None and len(workloads) > 1:
            what = "each workload has its own baseline, so there is a speed-up and no tokens/s"
            hint = f"give --workload ({', '.join(workloads[:8])}) or --baseline"
        return [Note("no_baseline", f"{what}; {hint}")]
    if question.baseline_tokens_per_s is None:
        return []
    known = [entry.tokens_per_s for entry in system.baselines.at(question.configuration)]
    if not known or (
        min(known) * (1 - BASELINE_DIFFERS) <= rate <= max(known) * (1 + BASELINE_DIFFERS)
    ):
        return []
    spread = f"{min(known):g}" + ("" if min(known) == max(known) else f" to {max(known):g}")
    what = (
        f"baseline {rate:g} tokens/s is far from the calibrated {spread}: another load or "
        "another engine, to which this round cost need not carry; fit points of that system"
    )
    return [Note("baseline_differs", what)]
