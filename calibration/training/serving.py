"""How a drafter in training will be served: its depth, and the factor from its log to a server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np

from calibration.training.offline_acceptance import chained_accept_length
from calibration.training.records import Kind
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


# ---
# From offline to served accept lengths: what a user's own served points add to the prior.
#
# The prior and the pairs behind it: `specmodel.acceptance.transfer`.
# Relative difference of the first position's rates up to which log and server agree there. A
# judgement: run-to-run noise of equal runs is half of it.
SAME_RATE: Final = 0.15


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPoint:
    """What a user measured of a similar drafter, beside what its log said."""

    offline: float  # accept lengths at one depth, bonus token included, above 1, [tokens]
    served: float
    drafter: str = ""  # which drafter; points of one drafter are not independent and count once
    # accuracy at the first depth and served rate of the first position, where known
    first_offline: float | None = None
    first_served: float | None = None

    @classmethod
    def from_rates(
        cls,
        accuracies: Sequence[float],
        kind: Kind,
        *,
        served_rates: Sequence[float] | None = None,
        served: float | None = None,
        num_steps: int | None = None,
        drafter: str = "",
    ) -> "ServedPoint":
        r"""Return the point of accuracies by depth, cut at the served depth.

        .. math:: \tau_\text{served} = 1 + \sum_{i \le k} r_i
        """
        if (served_rates is None) == (served is None):
            raise ParameterError("served", served, "either an accept length or rates by position")
        depth = num_steps or (len(served_rates) if served_rates is not None else len(accuracies))
        if depth > len(accuracies):
            raise ParameterError(
                "num_steps", depth, f"at most {len(accuracies)}, the depth of the accuracies"
            )
        rates = served_rates or ()
        return cls(
            offline=float(chained_accept_length(accuracies, kind, depth)),
            served=float(1.0 + sum(rates[:depth])) if served is None else served,
            drafter=drafter,
            first_offline=float(accuracies[0]),
            first_served=float(rates[0]) if rates else None,
        )

    @property
    def gate(self) -> str:
        """Where log and server part: a cheap test before anything deeper is blamed.

        ``agrees`` or ``deeper-than-first`` (unrolling or feeding), ``first-position`` (plumbing or
        domain), ``unknown`` where the first position was not served.
        """
        if not self.first_offline or self.first_served is None:
            return "unknown"
        if abs(self.first_served / self.first_offline - 1.0) > SAME_RATE:
            return "first-position"
        same = abs((self.served - 1.0) / (self.offline - 1.0) - 1.0) <= SAME_RATE
        return "agrees" if same else "deeper-than-first"


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
