"""Predictions as JSON for other programs."""

import math
from typing import Any

from calibration.points.notes import Note
from calibration.predict.answer import Answer, DepthAnswer
from specmodel.calibration import Calibration
from specmodel.prediction import Prediction
from specmodel.question import Estimate
from specmodel.units import MILLI

SCHEMA_VERSION = 1
"""Version of the JSON of predictions. 1: first release."""


def prediction_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain dicts, lists and numbers.

    Parameters
    ----------
    answer : Answer
        One depth or several.

    Returns
    -------
    dict
        The keys of one prediction; for several depths ``predictions`` with the keys of one each, and
        the best depth. Infinite and unknown numbers are None.
    """
    shared = [_note(note) for note in answer.notes]
    if len(answer.depths) == 1:
        return _single(answer, answer.depths[0], shared)
    choice = answer.choice
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "predictions": [_single(answer, depth, []) for depth in answer.depths],
        "best_num_steps": None,
        "probability_best": None,
        "expected_regret": None,
        "candidates": [],
    }
    if choice is not None:
        record |= {
            "best_num_steps": choice.best_num_steps,
            "probability_best": choice.probability,
            "expected_regret": choice.regret,
            "candidates": [
                {"num_steps": int(steps), "probability_best": probability, "expected_regret": loss}
                for steps, probability, loss in zip(
                    choice.num_steps.tolist(),
                    choice.probability_best.tolist(),
                    choice.expected_regret.tolist(),
                    strict=True,
                )
            ],
        }
    return record | {**calibration_json(answer.calibration, answer.source), "warnings": shared}


def calibration_json(calibration: Calibration | None, source: str) -> dict[str, Any]:
    """Return which calibration was used, of which system, and when it was fitted."""
    return {
        "calibration": source or None,
        "calibration_system": None if calibration is None else calibration.label or None,
        "calibration_fitted_at": None if calibration is None else calibration.fitted_at or None,
    }


def _single(answer: Answer, depth: DepthAnswer, shared: list[dict[str, str]]) -> dict[str, Any]:
    """The keys of one depth."""
    prediction, known = depth.prediction, depth.accept_known
    configuration = prediction.question.configuration
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "accept_length": estimate_json(prediction.question.accept_length.estimate)
        if known
        else None,
        "num_steps": depth.num_steps,
        "topk": _whole(configuration.topk),
        "num_draft_tokens": _whole(configuration.num_draft_tokens),
        "batch_size": _whole(configuration.batch_size),
        "round_cost": estimate_json(prediction.round_cost),
        **(_rates(prediction) if known else dict.fromkeys(_RATES)),
        "break_even_accept_length": estimate_json(prediction.break_even_accept_length),
        "probability_faster": prediction.probability_faster if known else None,
        "breakdown": [
            {
                "term": part.term,
                "share": part.share,
                "time_ms": None if part.time_s is None else part.time_s / MILLI,
            }
            for part in prediction.breakdown
        ],
        "warnings": [*shared, *map(_note, depth.notes)],
        **calibration_json(answer.calibration, answer.source),
    }
    if depth.as_logged is not None:
        record["as_logged"] = {
            "accept_length": estimate_json(depth.as_logged.question.accept_length.estimate),
            **_rates(depth.as_logged),
            "probability_faster": depth.as_logged.probability_faster,
        }
    if depth.accept_length_needed is not None:
        needed = depth.accept_length_needed
        record["target"] = {
            "speedup": answer.asked.target_speedup,
            "accept_length": estimate_json(needed),
            "feasible": math.isfinite(needed.median)
            and (depth.longest is None or needed.median <= depth.longest),
        }
    if answer.rig is not None:
        record["set"] = dict(answer.rig.changes)
        record["physical"] = True
        record["speedup_ratio"] = estimate_json(answer.rig.speedup_ratio)
        record["output_ratio"] = answer.rig.output_ratio
    if answer.asked.claim is not None and depth is answer.depths[-1]:
        record["claims"] = [
            {"accept_length": one.accept_length, "required_conditional_accuracy": one.conditional}
            for one in answer.claims
        ]
    return record


_RATES = ("speedup", "output_tokens_per_s", "tpot_ms", "per_user_tokens_per_s")


def _rates(prediction: Prediction) -> dict[str, Any]:
    """Speed-up and what follows from a baseline."""
    tpot_s = prediction.tpot_s
    return {
        "speedup": estimate_json(prediction.speedup),
        "output_tokens_per_s": estimate_json(prediction.output_tokens_per_s),
        "tpot_ms": estimate_json(None if tpot_s is None else tpot_s.scaled(1 / MILLI)),
        "per_user_tokens_per_s": estimate_json(prediction.per_user_tokens_per_s),
    }


def estimate_json(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Return median and bounds; None where there is no estimate, or where it is infinite.

    Examples
    --------
    >>> estimate_json(Estimate(median=2.0, low=1.5, high=float("inf")))
    {'median': 2.0, 'low': 1.5, 'high': None}
    """
    if estimate is None:
        return None
    return {
        "median": _finite(estimate.median),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
    }


def _finite(value: float) -> float | None:
    """A number that JSON knows."""
    return float(value) if math.isfinite(value) else None


def _whole(value: float | None) -> int | float | None:
    """A count as a whole number where it is one."""
    return int(value) if value is not None and float(value).is_integer() else value


def _note(note: Note) -> dict[str, str]:
    """A remark."""
    return {"code": note.code, "message": note.message}
