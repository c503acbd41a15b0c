"""What a fit of times cannot hold: arrays of another shape, spreads that are none, loads that cannot be."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.errors import FitError, ParameterError
from specmodel.form_error import Loads

Array = NDArray[np.float64]

LARGEST: Final = 100.0
"""Of a logarithm, its slope or its spread; e to that power is beyond any clock. [-]"""

LEAST_SPREAD: Final = 1e-9
"""Of a spread whose square is divided by. [-]"""

MOST_TOKENS: Final = 1e12
"""Of anything that is counted in a load. [-]"""

ROUNDED: Final = 1e-6
"""What the digits of a file may break of a covariance over that of the prior. [-]"""


def check_array(name: str, values: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape, or one that holds what is no number or far from any."""
    if values.shape != shape or not np.all(np.abs(values) <= LARGEST):
        raise ParameterError(name, f"shape {values.shape}", f"finite, of shape {shape}")


def check_covariance(covariance: Array, prior_sd: Array) -> None:
    """Refuse a posterior covariance that is none, or wider than the prior."""
    scaled = covariance / np.outer(prior_sd, prior_sd)
    if not np.allclose(scaled, scaled.T, atol=ROUNDED):
        raise ParameterError("covariance", "one that is not symmetric", "symmetric")
    values = np.linalg.eigvalsh(scaled) if scaled.size else np.zeros(1)
    if values[0] < -ROUNDED or values[-1] > 1.0 + ROUNDED:
        allowed = "positive semi-definite and no wider than the prior"
        raise ParameterError("covariance", "another one", allowed)


def check_loads(loads: Loads, rows: int) -> None:
    """Refuse loads of another number, or that nothing can have measured."""
    least = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1, "batch_size": 1, "context_tokens": 0}
    for name, lowest in least.items():
        values = getattr(loads, name)
        if values.shape != (rows,) or not np.all((values >= lowest) & (values <= MOST_TOKENS)):
            raise ParameterError(name, f"shape {values.shape}", f"{rows} numbers from {lowest}")


def check_share(name: str, share: Array, rows: int) -> None:
    """Refuse shares of another number, or outside 0 to 1."""
    if share.shape != (rows,) or not np.all((share >= 0) & (share <= 1)):
        raise ParameterError(name, f"shape {share.shape}", f"{rows} shares in [0, 1]")


def sensible(mean: Array, covariance: Array) -> tuple[Array, Array]:
    """A prediction, unless it is of no time that a clock shows."""
    sound = np.all(np.abs(mean) <= LARGEST) and np.all(np.diag(covariance) <= LARGEST)
    if not sound:
        raise FitError(
            "the physical form of this calibration gives no sensible time; check its points, and "
            "run `specmodel fit` again"
        )
    return mean, covariance
