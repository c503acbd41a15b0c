"""What to know beside a prediction: extrapolation, priors, missing baselines."""

from typing import TYPE_CHECKING, Final

from specmodel.ask import depth_unknown
from specmodel.constants import CONSTANTS
from specmodel.cost import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.errors import Note
from specmodel.prediction import Prediction
from specmodel.question import longest_accept_length

if TYPE_CHECKING:
    from specmodel.calibration import Calibration

MATTERS_LOG_SD: Final = 0.02
"""Uncertainty of the speed-up from one constant, from which it is named when it is the prior's. [-]"""

BASELINE_DIFFERS: Final = 0.2
"""Relative difference to the calibrated baselines at one load from which a given one is named. [-]"""

SAME_ACCEPT_LENGTH: Final = 0.01
"""Relative difference below which an accept length is the measured one. [-]"""

_ROUND_COST_CONSTANTS: Final = ("fixed_cost", "step_cost", "tree_cost", "expert_ratio")
_AXES: Final = {
    "accept_length": "accept length",
    "num_steps": "depth",
    "topk": "topk",
    "num_draft_tokens": "draft tokens",
    "batch_size": "batch",
    "context_tokens": "context",
}
_LOAD: Final = ("num_draft_tokens", "batch_size", "context_tokens")
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
    doubts = tuple(Note("contradicts_points", one) for one in system.doubts)
    if not system.baseline_known:
        what = (
            "no baseline is known, so there are tokens/s and no speed-up; give --baseline, or measure the "
            "same load without speculation"
        )
        doubts += (Note("no_baseline", what),)
    said = system.broken_baselines
    if not said:
        return doubts
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    head = "not all points of this calibration could be used"
    if system.forced:
        head = "this calibration rests on rows that were kept with --force"
    return (*doubts, Note("broken_baseline", f"{head}: {said[0]}{more}"))


def held_to_a_step(prediction: Prediction) -> tuple[Note, ...]:
    """Remark on a round cost that was held to one step."""
    implied = prediction.implied_round_cost
    if not implied < 1.0 - ROUNDING:
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
    notes = []
    if system.num_points:
        notes += _outside_the_points(system, prediction, accept_known=accept_known)
    # Of a measured configuration the sum of its round's constants is known.
    known = _ROUND_COST_CONSTANTS if prediction.configuration_measured else ()
    matters = [
        index
        for index, log_sd in enumerate(prediction.from_constants)
        if log_sd > MATTERS_LOG_SD and CONSTANTS[index].name not in known
    ]
    estimates = system.constants if matters and system.num_points and accept_known else ()
    names = [
        f"{CONSTANTS[index].name} ({CONSTANTS[index].symbol})"
        for index in matters
        if estimates and estimates[index].prior_dominated
    ]
    if names:
        prior = f"the points say nothing about this; it is the prior ({system.prior.name})"
        notes.append(Note("prior_dominated", f"{' and '.join(names)}: {prior}"))
    notes += [*_baseline(system, prediction), *held_to_a_step(prediction)]
    longest = longest_accept_length(prediction.question.configuration)
    needed = prediction.break_even_accept_length.median
    if longest is not None and needed > longest:
        what = f"break-even is an accept length of {needed:.2f}, and a round of this depth emits at most "
        notes.append(Note("out_of_reach", f"{what}{longest:g}: it cannot beat no speculation"))
    return tuple(notes)


def _outside_the_points(
    system: "Calibration", prediction: Prediction, *, accept_known: bool
) -> list[Note]:
    """Quantities outside the range of the points, with axis and range."""
    configuration, notes = prediction.question.configuration, []
    depth, tokens = configuration.num_steps, configuration.num_draft_tokens
    chain = configuration.topk == 1 and depth is not None and tokens == depth + 1
    for name, word in _AXES.items():
        value, measured, near = getattr(configuration, name, None), system.hull.get(name), 0.0
        if name == "accept_length":
            value = prediction.question.accept_length.estimate.median if accept_known else None
            near = SAME_ACCEPT_LENGTH
        if value is None or (name == "num_draft_tokens" and chain):
            continue  # the draft tokens of a chain follow from its depth, which is looked at
        if measured is None:
            unknown = "the points do not state theirs; nothing is known of how they differ"
            if name == "topk" and value != 1.0:
                notes.append(
                    Note("extrapolation", f"topk {value:g} is outside what was measured, 1")
                )
            elif name in _LOAD:
                notes.append(Note("extrapolation", f"{word} {value:g} is given, but {unknown}"))
            continue
        low, high = measured
        if not low * (1 - near) <= value <= high * (1 + near):
            priced = name in _PRICED_BY_RIG and system.physical is not None
            hint = f"; --set {name}={value:g} prices it by the rig" if priced else ""
            known = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            shown = f"{value:.4g}" if near else f"{value:g}"
            outside = f"{word} {shown} is outside what was measured, {known}{hint}"
            notes.append(Note("extrapolation", outside))
    return notes


def _baseline(system: "Calibration", prediction: Prediction) -> list[Note]:
    """Remarks on a baseline that is missing, or unlike the calibrated ones."""
    question, rate = prediction.question, prediction.baseline_tokens_per_s
    if not system.baseline_known:
        return []  # said of the whole calibration
    if rate is None:
        workloads = sorted({entry.workload for entry in system.baselines.entries} - {""})
        what = "no baseline is known at this load, so there is a speed-up and no tokens/s"
        hint = "give --baseline"
        if question.workload is None and len(workloads) > 1:
            what = "each workload has its own baseline, so there is a speed-up and no tokens/s"
            hint = f"give --workload ({', '.join(workloads[:8])}) or --baseline"
        return [Note("no_baseline", f"{what}; {hint}")]
    if question.baseline_tokens_per_s is None or system.throughput_scope == "relative":
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
