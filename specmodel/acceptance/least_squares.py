"""Damped Gauss-Newton for many small least-squares problems of one form at once."""

from collections.abc import Callable

import numpy as np

from specmodel.acceptance.bounds import FloatArray

_DIFFERENCE = 1e-6
_LARGEST_DAMPING = 1e8


def minimise(
    residual: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    longest_step: FloatArray,
    *,
    tolerance: float = 1e-9,
    iterations: int = 60,
) -> FloatArray:
    """Return the minimisers, shape (problems, n), of sums of squared residuals.

    `residual` maps parameters (..., problems, n) to residuals (..., problems, m), row by row.
    A step is shortened to `longest_step` (n,) in every parameter: far steps end in flat regions.
    """
    parameters = start.copy()
    value = residual(parameters)
    cost = (value**2).sum(axis=-1)
    damping = np.full(cost.shape, 1e-3)
    active = np.ones(cost.shape, dtype=bool)
    slope = jacobian(residual, parameters, value)
    diagonal = np.arange(start.shape[-1])
    for _ in range(iterations):
        damped = np.swapaxes(slope, -1, -2) @ slope
        damped[:, diagonal, diagonal] *= 1.0 + damping[:, None]
        gradient = (slope * value[..., None]).sum(axis=-2)
        step = np.linalg.solve(damped, gradient[..., None])[..., 0]
        step /= np.maximum(np.abs(step) / longest_step, 1.0).max(axis=-1, keepdims=True)
        trial = np.where(active[:, None], parameters - step, parameters)
        trial_value = residual(trial)
        trial_cost = (trial_value**2).sum(axis=-1)
        better = active & (trial_cost < cost)
        small = cost - trial_cost < tolerance * (1.0 + cost)
        damping = np.where(better, np.maximum(damping * 0.1, 1e-9), damping * 10.0)
        parameters = np.where(better[:, None], trial, parameters)
        value = np.where(better[:, None], trial_value, value)
        cost = np.where(better, trial_cost, cost)
        active &= ~(better & small) & (damping < _LARGEST_DAMPING)
        if not active.any():
            break
        slope = jacobian(residual, parameters, value)
    return parameters


def jacobian(
    residual: Callable[[FloatArray], FloatArray], parameters: FloatArray, value: FloatArray
) -> FloatArray:
    """Return forward differences, shape (problems, m, n)."""
    steps = _DIFFERENCE * np.eye(parameters.shape[-1])[:, None, :]
    change = (residual(parameters + steps) - value) / _DIFFERENCE
    return np.moveaxis(change, 0, -1)
