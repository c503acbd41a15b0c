"""The accept length that a trainer prints, where it prints no accuracy by depth."""

import math

from calibration.training.offline_acceptance import OfflineAcceptance, within_depth
from specmodel.acceptance import carry_accept_length
from specmodel.errors import ParameterError


def printed_acceptance(
    accept_length: float | None,
    num_steps: int | None = None,
    *,
    printed_depth: int | None = None,
    rounding: float = 0.0,
) -> OfflineAcceptance:
    """Return the accept length that a trainer printed, where it prints no accuracy by depth."""
    if accept_length is None:
        return OfflineAcceptance(
            accept_length=None,
            kind=None,
            num_steps=num_steps,
            trained_depth=0,
            codes=("mean-only", "bonus-unknown"),
        )
    most = math.inf if printed_depth is None else printed_depth + 1.0
    if not 1.0 <= accept_length <= most:
        raise ParameterError(
            "accept length",
            f"{accept_length:g}",
            f"between 1 and {most:g}",
            "every round emits the target's own token; if the trainer leaves it out, add 1",
        )
    spread = rounding / math.sqrt(3.0)
    if printed_depth is None or num_steps in {None, printed_depth}:
        known = within_depth(accept_length, accept_length, accept_length, sd=spread, most=most)
        unknown = () if printed_depth is not None else ("printed-depth-unknown",)
    else:
        carried = carry_accept_length(accept_length, printed_depth, [num_steps])
        median, low, high = (float(one[0]) for one in (carried.value, carried.low, carried.high))
        known = within_depth(median, low, high, sd=spread, most=float(num_steps or 0) + 1.0)
        unknown = ("beyond-trained-depth",) if (num_steps or 0) > printed_depth else ()
    return OfflineAcceptance(
        accept_length=known,
        kind=None,
        num_steps=num_steps if printed_depth is not None and num_steps else printed_depth,
        trained_depth=0,
        codes=("mean-only", *unknown),
    )
