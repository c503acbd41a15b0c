"""What a user should know beside an answer."""

from specmodel.calibration import Calibration
from specmodel.errors import Note
from specmodel.prediction import Prediction

ROUNDING = 5e-3
"""How far a round cost may be below 1 without a remark. [-]"""


def broken_baseline_notes(calibration: Calibration) -> tuple[Note, ...]:
    """Return one remark on the broken baselines of a fit; none where there was none.

    Parameters
    ----------
    calibration : Calibration
        It holds what `calibration.points.unsound.assess_soundness` said.

    Returns
    -------
    tuple of Note
        Code ``broken_baseline``, empty for sound points.

    Examples
    --------
    >>> broken_baseline_notes(Calibration.from_prior())
    ()
    """
    said = calibration.broken_baselines
    if not said:
        return ()
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    if calibration.forced:
        head = "this calibration rests on rows that were kept with --force"
    else:
        head = "not all points of this calibration could be used"
    return (Note("broken_baseline", f"{head}: {said[0]}{more}"),)


def held_to_a_step(prediction: Prediction) -> tuple[Note, ...]:
    """Remark on a round cost that was held to one step."""
    implied = prediction.implied_round_cost
    if implied >= 1.0 - ROUNDING:
        return ()
    said = (
        f"a round of {implied:.3g} steps is implied; none takes less than one, so it is taken as 1"
    )
    return (Note("round_cost_held", said),)
