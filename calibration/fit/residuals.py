"""How far the fitted rows are from the fit."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.points.arrays import SystemRows
from specmodel.calibration import Calibration


class Residuals(NamedTuple):
    """Measured over fitted speed-up of the rows that were fitted, less 1.

    `rms` is their root mean square; `worst` is the largest, at `worst_place` (file and line).
    """

    relative: NDArray[np.float64]
    rms: float
    worst: float
    worst_place: str


def residuals(calibration: Calibration, usable: SystemRows) -> Residuals:
    """Relative difference of each fitted row from its fit.

    Parameters
    ----------
    calibration : Calibration
        The fit.
    usable : SystemRows
        The rows it was fitted to.

    Returns
    -------
    Residuals
        In the order of the rows.

    Notes
    -----
    Effects of configuration and run are part of the fit, so these are smaller than errors on points
    that were not seen; `specmodel evaluate` measures those.
    """
    fitted = calibration.posterior.predict(usable.rows).location
    relative = np.expm1(usable.log_speedup - fitted)
    worst = int(np.argmax(np.abs(relative)))
    row = usable.frame.iloc[worst]
    return Residuals(
        relative=relative,
        rms=float(np.sqrt(np.mean(relative**2))),
        worst=float(relative[worst]),
        worst_place=f"{Path(str(row['file'])).name}, line {int(row['line'])}",
    )
