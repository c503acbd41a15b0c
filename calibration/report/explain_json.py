"""The fitted physical form as JSON for other programs."""

from dataclasses import asdict
from typing import Any

from calibration.report.prediction_json import estimate_json
from calibration.rig.explain import FACTOR_WORDS, Explanation
from specmodel.units import GIGA, MILLI


def explain_json(found: Explanation | None) -> dict[str, Any] | None:
    """Return the physical form of a fit as plain dicts, lists and numbers.

    Parameters
    ----------
    found : Explanation or None
        Of a calibration; None where it knows no rig.

    Returns
    -------
    dict or None
        Times in ms, memory in GB.
    """
    if found is None:
        return None
    rig, at = found.scenario, found.at
    return {
        "rig": {
            "model": rig.model.name,
            "gpu": rig.gpu,
            "tp_size": rig.tp_size,
            "interconnect": rig.interconnect or None,
            "allreduce": rig.kernel or None,
            "allreduce_measured": rig.curve is not None,
            "dtype": rig.dtype or None,
            "kv_bytes_per_value": rig.kv_bytes_per_value,
            "draft_model": rig.draft.described(rig.model)[0],
        },
        "assumed": list(found.assumed),
        "num_times": found.num_loads,
        "factors": [
            {
                "name": one.name,
                "meaning": FACTOR_WORDS[one.name],
                **(estimate_json(one.value) or {}),
                "prior": estimate_json(one.prior),
                "share_learned": one.learned,
            }
            for one in found.factors
        ],
        "factors_without_effect": list(found.idle),
        "at": {
            "num_steps": at.depth,
            "topk": at.topk,
            "batch_size": at.batch_size,
            "context_tokens": at.context_tokens,
        },
        "base_step_ms": estimate_json(found.step.scaled(1 / MILLI)),
        "base_step_from_names_ms": estimate_json(found.prior_step.scaled(1 / MILLI)),
        "round_ms": estimate_json(found.round.scaled(1 / MILLI)),
        "round_cost_from_names": estimate_json(found.prior_cost),
        "allreduce_share_of_base_step": estimate_json(found.allreduce_share),
        "layer_all_reduces": found.collectives.layer_all_reduces,
        "allreduce_bytes_per_token": found.collectives.bytes_per_token,
        "causes": [
            {
                "term": one.name,
                "base_step_ms": one.step_s / MILLI,
                "round_ms": one.round_s / MILLI,
                "added_ms": one.added_s / MILLI,
                "added_steps": one.added_s / found.step.median,
            }
            for one in found.causes
        ],
        "unexplained_ms": found.unexplained_s / MILLI,
        "memory": {
            "fits": found.memory.fits,
            "needed_gb_per_gpu": found.memory.needed_bytes / GIGA,
            "usable_gb_per_gpu": found.memory.usable_bytes / GIGA,
        },
        "agreement": [
            {
                **asdict(one.observation.configuration),
                "identity_round_cost": one.observation.round_cost[1],
                "relative_round_cost": estimate_json(one.relative),
                "physical_round_cost": estimate_json(one.physical),
            }
            for one in found.agreement
        ],
    }
