"""The published speed-up formula, to compare with: what a reader of the papers would compute."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError


def textbook_speedup(
    accept_length: ArrayLike, num_steps: ArrayLike, draft_cost_ratio: ArrayLike
) -> NDArray[np.float64]:
    r"""Speed-up when a round costs its draft steps and exactly one target step.

    .. math:: S = \frac{\tau}{kc+1}

    Theorem 3.8 of [leviathan2023]_ with a measured accept length in place of the constant-rate sum, so
    that only its cost side is tested. 18 % off on its own paper's measurements (theory.md A1).
    """
    given = {
        "accept_length": (accept_length, 1.0),
        "num_steps": (num_steps, 0.0),
        "draft_cost_ratio": (draft_cost_ratio, 0.0),
    }
    for name, (value, lowest) in given.items():
        array = np.asarray(value, dtype=np.float64)
        wrong = ~(np.isfinite(array) & (array >= lowest))
        if np.any(wrong):
            found = f"{array[wrong].flat[0]:g}"
            raise ParameterError(name, found, f"finite and at least {lowest:g}")
    steps = np.asarray(num_steps, dtype=np.float64)
    return np.asarray(np.asarray(accept_length) / (steps * np.asarray(draft_cost_ratio) + 1.0))
