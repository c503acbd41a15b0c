"""Which measurements would tell most about a system, from what its points lack."""

from calibration.fit.identifiable import accept_lengths_differ, stated_depths
from specmodel.calibration import Calibration

_SHALLOW, _DEEP = 1, 7
_MIDDLE = 4


def next_measurements(calibration: Calibration) -> tuple[str, ...]:
    """What to measure next, the most useful first.

    Parameters
    ----------
    calibration : Calibration
        Of some points.

    Returns
    -------
    tuple of str
        One line each; empty where nothing simple is missing.

    Notes
    -----
    theory.md part D: the best second point has the same load and a depth far away, the third another
    workload with a different accept length; a baseline sweep over batches holds the verification.
    """
    wanted = []
    depths = stated_depths(calibration)
    if not depths:
        wanted.append("the column num_steps: without it no other depth is predicted well")
        wanted.append(
            f"the same load at depth {_SHALLOW} or {_DEEP}, whichever is further away: tells c1, the "
            "price of one more draft step"
        )
    elif len(depths) == 1:
        far = _DEEP if depths[0] <= _MIDDLE else _SHALLOW
        wanted.append(
            f"the same load at depth {far}: tells c1, the price of one more draft step, and with it "
            "the best depth"
        )
    if not accept_lengths_differ(calibration):
        wanted.append(
            "another workload with another accept length, and its baseline: tells f (so do TTFT and "
            "output length)"
        )
    if calibration.curve is None:
        wanted.append(
            "without speculation, a sweep over batch 1 to 64: tells what verification costs at "
            "other batches"
        )
    return tuple(wanted)
