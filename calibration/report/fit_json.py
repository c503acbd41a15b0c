"""A fit as JSON for other programs."""

import math
from dataclasses import asdict
from typing import Any

from calibration.fit.summary import FitSummary
from calibration.report.explain_json import explain_json
from specmodel.constants import CONSTANTS
from specmodel.question import Estimate

SCHEMA_VERSION = 1
"""Version of the JSON of a fit. 1: first release."""


def fit_json(summary: FitSummary, path: str) -> dict[str, Any]:
    """Return a fit as plain dicts, lists and numbers.

    Parameters
    ----------
    summary : FitSummary
        What was fitted.
    path : str
        The calibration file that was written.

    Returns
    -------
    dict
        Unknown numbers are None.
    """
    calibration = summary.calibration
    return {
        "schema_version": SCHEMA_VERSION,
        "path": path,
        "system": calibration.label,
        "files": [str(file) for file in summary.points.files],
        "rows_read": summary.num_read,
        "rows_of_other_systems": summary.num_other,
        "num_points": calibration.num_points,
        "dropped": [
            {"path": str(row.path), "line": row.line, "code": row.code, "message": row.message}
            for row in summary.points.dropped
        ],
        "prior": {
            "name": calibration.prior.name,
            "learned_from": list(calibration.prior.learned_from),
        },
        "constants": _constants(summary),
        "observations": _observations(summary),
        "baselines": [
            {
                name: _finite(value) if isinstance(value, float) else value
                for name, value in asdict(entry).items()
            }
            for entry in calibration.baselines.entries
        ],
        "residuals": {
            "rms": _finite(summary.residuals.rms),
            "worst": _finite(summary.residuals.worst),
            "worst_row": summary.residuals.worst_place,
        },
        "not_told": [
            {"constants": list(one.constants), "needs": one.needs} for one in summary.untold
        ],
        "measure_next": list(summary.next_measurements),
        "diagnosis": None
        if summary.diagnosis is None
        else {
            "round_cost": summary.diagnosis.observation.decode_round_cost,
            "public_round_cost": _estimate(summary.diagnosis.public),
            "causes": list(summary.diagnosis.causes),
        },
        "physical": explain_json(summary.explanation),
        "rig_note": calibration.rig_note or None,
        "notes": list(calibration.notes),
        "warnings": [{"code": note.code, "message": note.message} for note in summary.notes],
    }


def _constants(summary: FitSummary) -> list[dict[str, Any]]:
    """Every constant with its interval, its prior, and whether the points told it."""
    summed = {name for one in summary.untold if one.summed for name in one.constants}
    return [
        {
            "name": constant.name,
            "symbol": constant.symbol,
            "meaning": constant.meaning,
            "median": _finite(estimate.value),
            "low": _finite(estimate.low),
            "high": _finite(estimate.high),
            "prior": {
                "median": _finite(estimate.prior_value),
                "low": _finite(estimate.prior_low),
                "high": _finite(estimate.prior_high),
            },
            "share_learned": _finite(estimate.learned),
            "prior_dominated": estimate.prior_dominated,
            "in_play": constant.name in summary.in_play,
            "sum_only": constant.name in summed,
        }
        for constant, estimate in zip(CONSTANTS, summary.calibration.constants, strict=True)
    ]


def _observations(summary: FitSummary) -> list[dict[str, Any]]:
    """Every configuration with its round cost by the identity and by the posterior."""
    return [
        {
            **asdict(one.observation.configuration),
            "num_points": one.observation.num_points,
            "accept_length": list(one.observation.accept_length),
            "identity_round_cost": dict(
                zip(("low", "median", "high"), one.observation.round_cost, strict=True)
            ),
            "round_cost": one.posterior and _estimate(one.posterior.round_cost),
            "break_even_accept_length": one.posterior
            and _estimate(one.posterior.break_even_accept_length),
        }
        for one in summary.costs
    ]


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    """Median and bounds."""
    return {
        "median": _finite(estimate.median),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
    }


def _finite(value: float) -> float | None:
    """A number that JSON knows."""
    return float(value) if math.isfinite(value) else None
