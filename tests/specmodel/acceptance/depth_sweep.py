"""What the tests of tails need of depth sweeps: a fit to accept lengths, and chains of equal depths."""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from specmodel.acceptance import measured
from specmodel.acceptance.tails import FittedTail

FloatArray = NDArray[np.float64]

ACCEPT_LENGTH_NOISE = 0.005
"""Relative standard deviation of a measured (accept_length - 1) about a smooth curve."""


fit_tail_to_accept_lengths = partial(
    measured.fit_tail_to_accept_lengths, relative_noise=ACCEPT_LENGTH_NOISE
)


def accept_length_of(tail: FittedTail, num_steps: int) -> float:
    conditional = tail.family.conditional_accuracy(tail.parameters, np.arange(1, num_steps + 1))
    return 1.0 + float(np.cumprod(conditional).sum())


def geometric_accept_length(acceptance_rate: ArrayLike, num_steps: int) -> FloatArray:
    """Eq. 1 of Leviathan et al. 2023, as a sum."""
    rate = np.asarray(acceptance_rate, dtype=np.float64)
    return np.asarray((rate[..., None] ** np.arange(num_steps + 1)).sum(axis=-1))


def geometric_acceptance_rate(accept_lengths: ArrayLike, num_steps: int) -> FloatArray:
    lengths = np.asarray(accept_lengths, dtype=np.float64)
    rates = [
        brentq(lambda rate, length=length: geometric_accept_length(rate, num_steps) - length, 0, 1)
        for length in lengths.ravel()
    ]
    return np.array(rates).reshape(lengths.shape)
