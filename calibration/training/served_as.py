"""How a drafter in training will be served: as given, as calibrated, or as deep as it was trained."""

from typing import NamedTuple

from specmodel.ask import (
    AskedConfiguration,
    UsageError,
    calibrated_depth,
    check_verified_tokens,
    configurations,
    workload_of,
)
from specmodel.calibration import Calibration
from specmodel.question import Configuration


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
