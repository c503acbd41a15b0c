"""How a drafter in training will be served: its depth, and the factor from its log to a server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specmodel.acceptance import TRANSFER_PRIOR, TransferFactor, transfer_prior
from specmodel.ask import Ask, calibrated_depth, configurations, points_depth, workload_of
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError, UsageError
from specmodel.question import AcceptLength, Configuration, Question


# ---
# How a drafter in training will be served: as given, as calibrated, or as deep as it was trained.
class ServedAs(NamedTuple):
    """How the drafter will be served; `points_depth` is what an unstated depth of the points is taken as."""

    configuration: Configuration
    workload: str | None = None
    baseline_tokens_per_s: float | None = None
    points_depth: int | None = None

    @property
    def num_steps(self) -> int:
        """Served depth, [tokens]."""
        return int(self.configuration.num_steps or 0)

    @property
    def question(self) -> Question:
        """The question of an accept length that is to be filled in."""
        return Question(accept_length=AcceptLength.exact(1.0), **self._asdict())


def served_as(
    calibration: Calibration, ask: Ask | None = None, *, trained_depth: int | None = None
) -> ServedAs:
    """Return how a drafter will be served: as given, else as calibrated, else as deep as trained."""
    given = ask or Ask()
    served = given.num_steps or calibrated_depth(calibration) or trained_depth
    if served is None:
        raise UsageError("--depth", "neither the log nor the calibration states a depth")
    if not isinstance(served, tuple):
        given = given._replace(num_steps=(served,))
    given = given._replace(accept_depth=trained_depth)
    one, *more = configurations(calibration, given)
    if more:
        raise UsageError("one --depth", "a decision is made for one served depth")
    return ServedAs(
        configuration=one,
        workload=workload_of(calibration, one, given),
        baseline_tokens_per_s=given.baseline_tokens_per_s,
        points_depth=points_depth(calibration, given),
    )


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


def transfer_of_pairs(
    pairs: Sequence[tuple[float, float]], *, matched: bool | None = None
) -> TransferFactor:
    """Return the transfer factor after pairs of accept lengths, by a log and as served."""
    points = [
        ServedPoint(offline=logged, served=served, drafter=f"pair {number}")
        for number, (logged, served) in enumerate(pairs, start=1)
    ]
    return updated_transfer(points, transfer_prior(matched=matched))
