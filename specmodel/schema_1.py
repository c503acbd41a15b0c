"""Calibration files of schema 1: constants by name, triangles of matrices, an own layout for each part."""

from typing import Any

import numpy as np

from specmodel.constants import NAMES

_KEPT = (
    *("label", "system", "intervals", "configurations", "runs", "num_experts"),
    *("experts_per_token", "throughput_scope", "hull", "num_points", "residual_log_sd"),
    *("points_sha256", "package_version", "notes", "broken_baselines", "forced"),
)


def from_schema_1(old: dict[str, Any]) -> dict[str, Any]:
    """Record of schema 2 from one of schema 1."""
    names, prior = list(old["internal_mean"]), old["prior"]
    effects = [*old["configuration_effects"], *old["run_effects"]]
    order = [*map(names.index, NAMES), *range(len(names), len(names) + len(effects))]
    covariance = np.zeros((len(order), len(order)))
    for index, row in enumerate(old["covariance"]):
        covariance[index, : index + 1] = covariance[: index + 1, index] = row
    of_prior = [list(prior["mean"]).index(name) for name in NAMES]
    before = np.array(prior["covariance"], dtype=np.float64)[np.ix_(of_prior, of_prior)]
    scales = ("noise_scale", "effect_scale", "degrees_of_freedom")
    for name in (*scales, "prior_width"):
        if not 0.0 < old[name] < np.inf:
            raise ValueError(f"{name} must be finite and positive, found {old[name]:g}")
    physical = old.get("physical")
    return {
        **{name: old[name] for name in _KEPT},
        "prior": {
            **prior,
            "mean": [prior["mean"][name] for name in NAMES],
            "covariance": before.tolist(),
        },
        "posterior": {
            "mean": [[*old["internal_mean"].values(), *effects][index] for index in order],
            "covariance": covariance[np.ix_(order, order)].tolist(),
            "num_configurations": len(old["configuration_effects"]),
            "noise": prior["noise"],
            **{name: old[name] for name in scales},
            "prior_covariance": (old["prior_width"] * before).tolist(),
        },
        "observations": [
            {"decode_round_cost": one["round_cost"][1], **one} for one in old["observations"]
        ],
        "baselines": {"entries": old["baselines"]},
        "curve": old["batch_curve"],
        # The first files lack what follows.
        "decode_only": old.get("decode_only", False),
        "physical": physical and _physical(physical),
        "rig_note": old.get("rig_note", ""),
        "fitted_at": old.get("fitted_at", ""),
    }


def _physical(old: dict[str, Any]) -> dict[str, Any]:
    """The hardware model's fit; its rig held measured all-reduces by another name."""
    rig = {key: value for key, value in old["rig"].items() if key != "allreduce"}
    rig["curves"] = [
        [curve["num_ranks"], {name: curve[name] for name in ("size_bytes", "time_s")}]
        for curve in old["rig"]["allreduce"]
    ]
    measured = ("loads", "log_time", "jacobian", "target_share")
    renamed = {"factors", "form_error", "rig", *measured}
    return {
        **{key: value for key, value in old.items() if key not in renamed},
        "rig": rig,
        "factors": list(old["factors"]),
        "mean": list(old["factors"].values()),
        "measured": {name: old[name] for name in measured},
        "form": old["form_error"],
    }
