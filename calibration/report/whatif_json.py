"""What-if tables as JSON for other programs."""

from typing import Any

from calibration.report.prediction_json import estimate_json
from calibration.rig.pricing import ScenarioPrice
from calibration.rig.whatif import Row, WhatIf
from specmodel.question import Estimate
from specmodel.units import GIGA, MILLI

SCHEMA_VERSION = 1
"""Version of this JSON. 1: first release."""


def what_if_json(found: WhatIf) -> dict[str, Any]:
    """Return a base and its changes as plain dicts, lists and numbers.

    Parameters
    ----------
    found : WhatIf
        As priced.

    Returns
    -------
    dict
        Times in ms, memory in GB, throughput in tokens/s; ``priced`` is None with a ``reason``
        where a change cannot run.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "physical_fit" if found.num_points else "physical_prior",
        "fitted_to_points": found.num_points > 0,
        "num_times": found.num_points,
        "accept_length_held_fixed": True,
        "draft_model": found.draft,
        "warnings": list(found.warnings),
        "base": _priced(found.base),
        "changes": [_row(row) for row in found.rows],
        "elasticities": [
            {"what": one.label, "speedup": one.speedup, "output_tokens_per_s": one.output}
            for one in found.elasticities
        ],
        "all_together": None if found.together is None else _row(found.together),
    }


def _row(row: Row) -> dict[str, Any]:
    """One change."""
    return {
        "change": row.label,
        "speedup_ratio": estimate_json(row.ratio),
        "priced": None if row.priced is None else _priced(row.priced),
        "reason": row.reason or None,
    }


def _priced(priced: ScenarioPrice) -> dict[str, Any]:
    """One scenario with its price."""
    scenario, memory = priced.scenario, priced.memory
    total = priced.round_s.median
    return {
        "model": scenario.model.name,
        "gpu": scenario.gpu,
        "tp_size": scenario.tp_size,
        "interconnect": scenario.interconnect or None,
        "allreduce_measured": scenario.curve is not None,
        "dtype": scenario.dtype or None,
        "num_steps": scenario.depth,
        "topk": scenario.topk,
        "num_draft_tokens": scenario.rows,
        "batch_size": scenario.batch_size,
        "context_tokens": scenario.context_tokens,
        "accept_length": scenario.accept_length,
        "base_step_ms": _ms(priced.step_s),
        "round_ms": _ms(priced.round_s),
        "round_cost": estimate_json(priced.round_cost),
        "speedup": estimate_json(priced.speedup),
        "output_tokens_per_s": estimate_json(priced.output_tokens_per_s),
        "breakdown": [
            {"term": term, "share": part / total, "time_ms": part / MILLI}
            for term, part in priced.parts_s.items()
        ],
        "memory": {
            "fits": memory.fits,
            "needed_gb_per_gpu": memory.needed_bytes / GIGA,
            "usable_gb_per_gpu": memory.usable_bytes / GIGA,
            "note": memory.sentence,
        },
    }


def _ms(estimate: Estimate) -> dict[str, float | None] | None:
    """A time in ms."""
    return estimate_json(estimate.scaled(1 / MILLI))
