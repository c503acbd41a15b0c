"""What to know beside a prediction: extrapolation, priors, missing baselines."""

import math
from typing import Final

import numpy as np

from calibration.points.notes import held_to_a_step
from specmodel.ask import depth_unknown
from specmodel.calibration import Calibration
from specmodel.constants import CONSTANTS, NUM_CONSTANTS, index_of, slope
from specmodel.cost import UNKNOWN_DEPTH_NUM_STEPS
from specmodel.errors import Note
from specmodel.posterior import NEW
from specmodel.prediction import Prediction, question_rows
from specmodel.question import Configuration, longest_accept_length
from specmodel.speedup import log_speedup_gradient

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

_PRICED_BY_RIG: Final = {"batch_size": "batch_size", "context_tokens": "context_tokens"}
"""Keys of --set for axes on which the physical form knows more than the points."""


def prediction_notes(
    calibration: Calibration, prediction: Prediction, *, accept_known: bool = True
) -> tuple[Note, ...]:
    """Remarks on one prediction; the calibration as a whole is `calibration_notes`' matter.

    Parameters
    ----------
    calibration : Calibration
        Which made it.
    prediction : Prediction
        The answer.
    accept_known : bool
        Whether its accept length was given; if not, only costs are remarked on.

    Returns
    -------
    tuple of Note
        Codes ``extrapolation``, ``unknown_depth``, ``prior_dominated``, ``no_baseline``,
        ``baseline_differs``, ``round_cost_held`` and ``out_of_reach``.
    """
    return (
        *(_outside_accept(calibration, prediction) if accept_known else ()),
        *_outside_the_points(calibration, prediction),
        *_unknown_depth(calibration, prediction),
        *(_prior_dominated(calibration, prediction) if accept_known else ()),
        *_baseline(calibration, prediction),
        *held_to_a_step(prediction),
        *_out_of_reach(prediction),
    )


def calibration_notes(calibration: Calibration) -> tuple[Note, ...]:
    """Remarks that hold for every prediction of a calibration.

    Parameters
    ----------
    calibration : Calibration
        Fitted, or the packaged prior.

    Returns
    -------
    tuple of Note
        Code ``packaged_prior`` where there are no points.
    """
    if calibration.num_points:
        return ()
    return (
        Note(
            "packaged_prior",
            f"no points of this system: constants are the packaged prior, learned from "
            f"{len(calibration.prior.learned_from)} public systems; one benchmark point and "
            "`specmodel fit` make this an answer about your system",
        ),
    )


def _outside_accept(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """An accept length outside the range of the points."""
    accept = prediction.question.accept_length.estimate.median
    low, high = calibration.hull.get("accept_length", (accept, accept))
    if low * (1 - SAME_ACCEPT_LENGTH) <= accept <= high * (1 + SAME_ACCEPT_LENGTH):
        return []
    outside = _outside((low, high), accept)
    return [Note("extrapolation", f"accept length {accept:.4g} is outside {outside}")]


def _outside_the_points(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """Quantities outside the range of the points, with axis and range."""
    if not calibration.num_points:
        return []
    configuration = prediction.question.configuration
    notes = []
    for name, word in _AXES.items():
        value = getattr(configuration, name)
        measured = calibration.hull.get(name)
        if name == "topk":
            measured = measured or (1.0, 1.0)
        if value is None or (name == "num_draft_tokens" and _is_chain(configuration)):
            continue  # the draft tokens of a chain follow from its depth, which is looked at
        outside = _outside(measured, value)
        if outside:
            ask = _PRICED_BY_RIG.get(name, "") if calibration.physical is not None else ""
            hint = f"; --set {ask}={value:g} prices it by the rig" if ask else ""
            notes.append(Note("extrapolation", f"{word} {value:g} is outside {outside}{hint}"))
        elif measured is None and name != "num_steps":
            notes.append(
                Note(
                    "extrapolation",
                    f"{word} {value:g} is given, but the points do not state theirs; nothing is "
                    "known of how they differ",
                )
            )
    return notes


def _is_chain(configuration: Configuration) -> bool:
    """Whether every drafted position holds one token."""
    depth, tokens = configuration.num_steps, configuration.num_draft_tokens
    return configuration.topk == 1 and depth is not None and tokens == depth + 1


def _outside(measured: tuple[float, float] | None, value: float) -> str:
    """The range that a value is outside of; empty where it is inside or nothing is known."""
    if measured is None or measured[0] <= value <= measured[1]:
        return ""
    low, high = measured
    measured_at = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"what was measured, {measured_at}"


def _unknown_depth(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """Remark on a depth that the points do not state."""
    depth = prediction.question.configuration.num_steps
    if not depth_unknown(calibration) or depth is None:
        return []
    return [
        Note(
            "unknown_depth",
            "the points do not state their depth; costs at a stated depth count from "
            f"{UNKNOWN_DEPTH_NUM_STEPS:g} and take the cost of a step mostly from the prior; add "
            "num_steps to the points and fit again",
        )
    ]


def _prior_dominated(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """Constants that matter here and that the points say nothing about."""
    if not calibration.num_points:
        return []
    rows = question_rows(calibration, [prediction.question])
    posterior = calibration.posterior
    constants = posterior.constants
    _, gradient, _, _ = log_speedup_gradient(
        constants, rows.terms, rows.accept_length, rows.baseline_deficit, rows.measured_share
    )
    # The exponent only carries the cost of a draft step from the measured load to another one.
    scale = float(rows.terms.draft_scale[0])
    if scale != 1.0:
        gradient[0, _EXPONENT] *= np.log(scale / calibration.draft_scale) / np.log(scale)
    sd = np.sqrt(np.diag(posterior.covariance)[:NUM_CONSTANTS])
    matters = np.abs(gradient[0] * slope(constants)) * sd > MATTERS_LOG_SD
    measured_here = bool(rows.configuration[0] != NEW)  # then their sum is known
    names = [
        f"{constant.name} ({constant.symbol})"
        for constant, estimate, big in zip(
            CONSTANTS, calibration.constants, matters.tolist(), strict=True
        )
        if big
        and estimate.prior_dominated
        and not (measured_here and constant.name in _ROUND_COST_CONSTANTS)
    ]
    if not names:
        return []
    return [
        Note(
            "prior_dominated",
            f"{' and '.join(names)}: the points say nothing about this; it is the prior "
            f"({calibration.prior.name})",
        )
    ]


def _baseline(calibration: Calibration, prediction: Prediction) -> list[Note]:
    """Remarks on a baseline that is missing, or unlike the calibrated ones."""
    question, rate = prediction.question, prediction.baseline_tokens_per_s
    configuration = question.configuration
    if rate is None:
        workloads = sorted({entry.workload for entry in calibration.baselines.entries} - {""})
        what = "no baseline is known at this load, so there is a speed-up and no tokens/s"
        hint = "give --baseline"
        if question.workload is None and len(workloads) > 1:
            what = "each workload has its own baseline, so there is a speed-up and no tokens/s"
            hint = f"give --workload ({', '.join(workloads[:8])}) or --baseline"
        return [Note("no_baseline", f"{what}; {hint}")]
    if question.baseline_tokens_per_s is None:
        return []
    known = [
        entry.tokens_per_s
        for entry in calibration.baselines.entries
        if _is(entry.batch_size, configuration.batch_size)
        and _is(entry.context_tokens, configuration.context_tokens)
    ]
    if not known or (
        min(known) * (1 - BASELINE_DIFFERS) <= rate <= max(known) * (1 + BASELINE_DIFFERS)
    ):
        return []
    spread = f"{min(known):g}" + ("" if min(known) == max(known) else f" to {max(known):g}")
    return [
        Note(
            "baseline_differs",
            f"baseline {rate:g} tokens/s is far from the calibrated {spread}: another load or "
            "another engine, to which this round cost need not carry; fit points of that system",
        )
    ]


def _is(measured: float, asked: float | None) -> bool:
    """Whether a load is the one asked for; NaN is one that is not stated."""
    return math.isnan(measured) if asked is None else measured == asked


def _out_of_reach(prediction: Prediction) -> list[Note]:
    """Remark on a depth that cannot emit as much as it costs."""
    longest = longest_accept_length(prediction.question.configuration)
    needed = prediction.break_even_accept_length.median
    if longest is None or needed <= longest:
        return []
    return [
        Note(
            "out_of_reach",
            f"break-even is an accept length of {needed:.2f}, and a round of this depth emits at "
            f"most {longest:g}: it cannot beat no speculation",
        )
    ]
