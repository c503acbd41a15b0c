"""A positive quantity between the loads at which it was measured: straight lines on logarithmic axes."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specmodel.errors import ParameterError

Load = tuple[float, ...]


class Beyond(NamedTuple):
    """An axis on which a load is outside what was measured."""

    axis: str
    value: float
    low: float
    high: float


class Interpolated(NamedTuple):
    """A value between measurements, and the axes on which it was carried past them."""

    value: float
    beyond: tuple[Beyond, ...]


def interpolate(points: Mapping[Load, float], at: Load, axes: Sequence[str]) -> Interpolated:
    r"""Value at a load, log-linear between the measured loads around it, axis by axis, the last one first.

    .. math:: \log t = (1 - w) \log t_0 + w \log t_1, \qquad
        w = \frac{\log x - \log x_0}{\log x_1 - \log x_0}

    The loads need not form a whole grid. Below 1 a coordinate counts as 1. Past the ends the outermost line
    goes on, but never falls with the load: a fall is noise. On an axis with one measured value it is held. A
    time that is a constant plus a multiple of the load is convex on these axes, so the lines lie above it
    between measurements and below it past their end.

    >>> points = {(1, 1024): 100.0, (1, 4096): 200.0}
    >>> round(interpolate(points, (1, 2048), ("batch", "context")).value, 3)
    141.421
    """
    for axis, value in zip(axes, at, strict=True):
        if not (math.isfinite(value) and value >= 0):
            raise ParameterError(axis, value, "finite and not negative")
    logarithm, beyond = _along(points, at, tuple(axes))
    return Interpolated(math.exp(logarithm), tuple(dict.fromkeys(beyond)))


def _along(
    points: Mapping[Load, float], at: Load, axes: tuple[str, ...]
) -> tuple[float, list[Beyond]]:
    """Logarithm of the value along the first axis, each end along the others."""
    if not axes:
        return math.log(points[()]), []
    slices: dict[float, dict[Load, float]] = {}
    for load, value in points.items():
        slices.setdefault(load[0], {})[load[1:]] = value
    known, wanted = sorted(slices), at[0]
    beyond = []
    if not known[0] <= wanted <= known[-1]:
        beyond = [Beyond(axes[0], wanted, known[0], known[-1])]
    if wanted in slices or len(known) == 1:
        logarithm, inner = _along(
            slices[wanted if wanted in slices else known[0]], at[1:], axes[1:]
        )
        return logarithm, beyond + inner
    right = min(max(bisect_left(known, wanted), 1), len(known) - 1)
    ends = known[right - 1 : right + 1]
    (low, low_beyond), (high, high_beyond) = (_along(slices[end], at[1:], axes[1:]) for end in ends)
    start, stop, place = (math.log(max(value, 1.0)) for value in (*ends, wanted))
    slope = (high - low) / (stop - start) if stop > start else 0.0
    if beyond:
        slope = max(0.0, slope)
    nearest = (high, stop) if wanted > ends[1] else (low, start)
    return nearest[0] + slope * (place - nearest[1]), beyond + low_beyond + high_beyond
