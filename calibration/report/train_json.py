"""A training log and what it is worth, for machines."""

import math
from typing import Any

from calibration.report.prediction_json import estimate_json
from calibration.training.assessment import Assessment, DepthCourse
from calibration.training.decision import CheckpointOutlook, Gain, Outlook, StepReachingTarget
from calibration.training.log_summary import log_summary, refusal_summary
from calibration.training.records import Kind
from calibration.training.training_log import TrainingLogError

SCHEMA_VERSION = 1


def train_json(found: Assessment) -> dict[str, Any]:
    """Return an assessment as plain values.

    Parameters
    ----------
    found : Assessment
        Of a log.

    Returns
    -------
    dict
        ``schema_version``, ``log``, ``depths``, ``now``, ``projection`` (None where it was refused, with
        ``projection_refused``), ``target``, ``verdict`` and ``verdict_code``. ``now`` and ``projection``
        have ``accept_length``, ``speedup`` and ``output_tokens_per_s``, each ``as_logged`` and as
        ``expected`` in serving with median, low and high. What is unknown or infinite is None.
    """
    decision = found.decision
    shared = {
        "schema_version": SCHEMA_VERSION,
        "log": log_summary(found.log),
        "depths": [_course(course, found.chained_kind) for course in found.courses],
        "routes": dict(found.acceptance.acceptance.routes),
    }
    if decision is None:
        unknown = {"now": None, "projection": None, "verdict": found.undecided}
        return {**shared, **unknown, "verdict_code": "unknown"}
    refused = found.refused
    return {
        **shared,
        "num_steps": decision.num_steps,
        "now": _checkpoint(decision.now),
        "projection": None
        if decision.end is None
        else {
            **_checkpoint(decision.end),
            "at_step": decision.end.step,
            "probability_of_target": decision.probability_of_target,
            "step_reaching_target": _reaching(decision.step_reaching_target),
            "gain": _gain(decision.gain),
            "findings": [{"code": one.code, "message": one.message} for one in found.findings],
        },
        "projection_refused": None
        if refused is None
        else {"code": refused.code, "message": refused.reason},
        "target": {
            "speedup": decision.target_speedup,
            "accept_length": estimate_json(decision.accept_length_for_target),
            "accept_length_in_log": estimate_json(decision.logged_accept_length_for_target),
        },
        "break_even_accept_length": estimate_json(decision.break_even_accept_length),
        "round_cost": estimate_json(decision.round_cost),
        "verdict": decision.verdict,
        "verdict_code": str(decision.code),
        "warnings": [{"code": note.code, "message": note.message} for note in decision.notes],
    }


def refused_json(error: TrainingLogError) -> dict[str, Any]:
    """Return a log that may not be used as plain values: its facts, and the code of the refusal."""
    return {
        "schema_version": SCHEMA_VERSION,
        "log": refusal_summary(error),
        "now": None,
        "projection": None,
        "verdict": str(error),
        "verdict_code": "refused",
    }


def _course(course: DepthCourse, kind: Kind | None) -> dict[str, Any]:
    """Return one depth."""
    at_end = course.at_end
    return {
        "depth": course.depth,
        "loss": course.loss,
        "full_accuracy": course.joint,
        "chained_kind": None if kind is None else str(kind),
        "chained_accuracy": course.chained,
        "trend_per_1000_steps": course.trend,
        "chained_accuracy_at_end": None
        if at_end is None
        else dict(zip(("median", "low", "high"), at_end, strict=True)),
    }


def _checkpoint(outlook: CheckpointOutlook) -> dict[str, Any]:
    """Return a checkpoint, as logged and as expected in serving."""
    both = {"as_logged": outlook.as_logged, "expected": outlook.expected}
    return {
        "step": outlook.step,
        **{
            name: {label: _estimate(one, name) for label, one in both.items()}
            for name in ("accept_length", "speedup", "output_tokens_per_s")
        },
        "probability_faster": {label: one.probability_faster for label, one in both.items()},
    }


def _estimate(outlook: Outlook, name: str) -> dict[str, float | None] | None:
    """Return one estimate; None where it is not known."""
    estimate = getattr(outlook, name)
    return None if estimate is None else estimate_json(estimate)


def _reaching(reached: StepReachingTarget | None) -> dict[str, float | None] | None:
    """Return when the target is reached."""
    if reached is None:
        return None
    return {
        "median": reached.median,
        "low": reached.low,
        "high": reached.high,
        "probability": reached.probability,
    }


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    """Return what the rest of the run adds."""
    if gain is None:
        return None
    return {
        "speedup": estimate_json(gain.speedup),
        "speedup_per_1000_steps": estimate_json(gain.per_thousand_steps),
        "speedup_per_hour": None if gain.per_hour is None else estimate_json(gain.per_hour),
        "remaining_steps": gain.remaining_steps,
        "remaining_hours": gain.remaining_hours if _known(gain.remaining_hours) else None,
    }


def _known(value: float | None) -> bool:
    """Return whether a number is there and finite."""
    return value is not None and math.isfinite(value)
