"""Which calibration a command works with, and where it is from."""

from pathlib import Path
from typing import Final

from specmodel.calibration import Calibration

DEFAULT_CALIBRATION: Final = "calibration.json"
PACKAGED_PRIOR: Final = "packaged prior"


def chosen_calibration(path: Path | None) -> tuple[Calibration, str]:
    """Return the calibration that was named, the one in this folder, or that of the packaged prior.

    Parameters
    ----------
    path : path, optional
        What was named.

    Returns
    -------
    tuple of (Calibration, str)
        With its file, or `PACKAGED_PRIOR`.

    Raises
    ------
    FormatError
        If the file is no calibration.
    """
    if path is None and not Path(DEFAULT_CALIBRATION).exists():
        return Calibration.from_prior(), PACKAGED_PRIOR
    chosen = Path(DEFAULT_CALIBRATION) if path is None else path
    return Calibration.load(chosen), str(chosen)
