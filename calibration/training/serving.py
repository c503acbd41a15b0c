"""How a drafter in training will be served: its depth, and the factor from its log to a server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor
from specmodel.ask import (
    AskedConfiguration,
    UsageError,
    calibrated_depth,
    check_verified_tokens,
    configurations,
    workload_of,
)
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.question import Configuration


# ---
# How a drafter in training will be served: as given, as calibrated, or as deep as it was trained.
class ServedAs(NamedTuple):
    """How the drafter will be served; `num_steps` is the depth, also where the points state none."""

    configuration: Configuration
    num_steps: int
    workload: str | None = None
    baseline_tokens_per_s: float | None = None


def served_as(
    calibration: Calibration,
    asked: AskedConfiguration | None = None,
    *,
    trained_depth: int | None = None,
    workload: str | None = None,
    baseline_tokens_per_s: float | None = None,
) -> ServedAs:
    """Return how a drafter will be served: as given, else as calibrated, else as deep as trained."""
    given = asked or AskedConfiguration()
    calibrated = calibrated_depth(calibration)
    if given.num_steps is None and calibrated is not None:
        given = given._replace(num_steps=(calibrated,))
    found = configurations(calibration, given, list_depth=trained_depth)
    if len(found) > 1:
        raise UsageError("one --depth", "a decision is made for one served depth")
    check_verified_tokens(calibration, given, found)
    depth = found[0].num_steps or trained_depth
    if depth is None:
        raise UsageError("--depth", "neither the log nor the calibration states a depth")
    return ServedAs(
        configuration=found[0],
        num_steps=int(depth),
        workload=workload_of(
            calibration, found[0], workload=workload, baseline_tokens_per_s=baseline_tokens_per_s
        ),
        baseline_tokens_per_s=baseline_tokens_per_s,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPoint:
    """What a user measured of a similar drafter, beside what its log said."""

    offline: float  # accept lengths at one depth, bonus token included, above 1, [tokens]
    served: float
    drafter: str = ""  # which drafter; points of one drafter are not independent and count once


def updated_transfer(
    points: Sequence[ServedPoint], prior: TransferFactor = TRANSFER_PRIOR
) -> TransferFactor:
    """Return the transfer factor after a user's own served points."""
    if not points:
        return prior
    for point in points:
        for name, value in (("offline", point.offline), ("served", point.served)):
            if not (math.isfinite(value) and value > 1.0):
                raise ParameterError(
                    name, f"{value:g}", "above 1", "a drafter that is never right has no factor"
                )
    drafters: dict[str, list[float]] = {}
    for point in points:
        ratio = math.log((point.served - 1.0) / (point.offline - 1.0))
        drafters.setdefault(point.drafter, []).append(ratio)
    served = [1.0 + math.exp(float(np.mean(ratios))) for ratios in drafters.values()]
    return prior.update([2.0] * len(served), served)


def transfer_of_pairs(pairs: Sequence[tuple[float, float]]) -> TransferFactor:
    """Return the transfer factor after pairs of accept lengths, by a log and as served."""
    points = [
        ServedPoint(offline=logged, served=served, drafter=f"pair {number}")
        for number, (logged, served) in enumerate(pairs, start=1)
    ]
    return updated_transfer(points) if points else TRANSFER_PRIOR
