"""Fits of a measured all-reduce: two protocols and a one-shot kernel, with their residuals."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from specmodel.cost.allreduce_curve import AllReduceCurve
from specmodel.cost.allreduce_forms import TwoProtocols, ring_factor
from specmodel.cost.allreduce_peer_access import PeerAccess
from specmodel.errors import ParameterError

Array = NDArray[np.float64]

# Sizes below which nothing is fitted. [-]
FEWEST: Final = 3

_ROUNDS = 6
_RESOLUTION = 0.01
_BEHIND_SWITCH = 2
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceFit:
    """A measured all-reduce and the laws that describe it."""

    curve: AllReduceCurve  # as measured
    library_law: TwoProtocols  # two protocols
    library_residuals: Array  # relative, at the sizes of the curve
    one_shot_law: PeerAccess  # one shot, within its window
    one_shot_residuals: Array  # relative, at the sizes of the window

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.library_law.num_ranks

    @property
    def has_floor(self) -> bool:
        """Whether the sizes tell the floor: where time is proportional to size, only a bound is set."""
        return self.library_law.floor_s > float(self.curve.time_s.min()) * _LEAST_SHARE

    @property
    def has_one_shot_floor(self) -> bool:
        """Whether the sizes of the window tell the floor of one shot."""
        return self.one_shot_law.one_shot_floor_s > float(self.curve.time_s.min()) * _LEAST_SHARE

    @property
    def library_median_error(self) -> float:
        """Median of the absolute residuals of two protocols, [-]."""
        return float(np.median(np.abs(self.library_residuals)))

    @property
    def left_out_median_error(self) -> float:
        """Median error of the curve with one size left out; nan with two sizes, [-]."""
        errors = np.abs(self.curve.left_out_errors())
        return float(np.median(errors)) if errors.size else math.nan

    @property
    def one_shot_largest_bytes(self) -> float:
        """Largest size of the window in which one shot describes the curve, [bytes]."""
        return float(self.curve.size_bytes[self.one_shot_residuals.size - 1])


def fit_all_reduce(size_bytes: ArrayLike, time_s: ArrayLike, num_ranks: int) -> AllReduceFit:
    r"""Fit of a measured all-reduce.

    .. math:: \min_{a, B_s, d, B_l, X} \sum_i |T(S_i)/T_i - 1|

    For every switch between two sizes the other parameters are a linear least-squares problem with
    bounds; reweighting makes it the sum of relative errors, so that a slow size does not move the
    rest.
    """
    curve = AllReduceCurve.from_points(size_bytes, time_s)
    if curve.size_bytes.size < FEWEST:
        raise ParameterError("size_bytes", curve.size_bytes.size, f"at least {FEWEST} sizes")
    library = fit_two_protocols(curve, num_ranks)
    one_shot, window = fit_one_shot(curve, num_ranks)
    return AllReduceFit(
        curve=curve,
        library_law=library,
        library_residuals=library.at(curve.size_bytes) / curve.time_s - 1.0,
        one_shot_law=one_shot,
        one_shot_residuals=one_shot.at(curve.size_bytes[:window]) / curve.time_s[:window] - 1.0,
    )


def fit_two_protocols(curve: AllReduceCurve, num_ranks: int) -> TwoProtocols:
    r"""Two protocols through a curve; one where a second does not help.

    .. math:: T(S) = a + f S/B_s, \quad a + d + f S/B_l

    The switch lies at the geometric mean of the two sizes between which it is; with fewer than six
    sizes there is one protocol.
    """
    sizes, times = curve.size_bytes, curve.time_s
    best, switch, values = math.inf, math.inf, np.zeros(4)
    moved = ring_factor(num_ranks) * sizes
    for candidate in _switches(sizes):
        small = sizes <= candidate
        large = ~small
        columns = np.column_stack([np.ones_like(sizes), moved * small, large, moved * large])
        solution = _relative_fit(columns, times)
        error = float(np.abs(columns @ solution / times - 1.0).sum())
        if error < best * (1.0 - _LEAST_SHARE) - _LEAST_SHARE:
            best, switch, values = error, candidate, solution
    floor, slow, step, fast = values.tolist()
    return TwoProtocols(
        num_ranks=num_ranks,
        floor_s=max(floor, float(times.min()) * _LEAST_SHARE),
        small_bytes_per_s=1.0 / slow if slow > 0 else math.inf,
        step_s=step if math.isfinite(switch) else 0.0,
        large_bytes_per_s=1.0 / fast if fast > 0 else math.inf,
        switch_bytes=switch,
    )


def fit_one_shot(
    curve: AllReduceCurve, num_ranks: int, *, tolerance: float = 0.05
) -> tuple[PeerAccess, int]:
    """One-shot law through the small sizes of a curve, and how many of them it describes.

    .. math:: T(S) = a_1 + (n - 1) S/B_1

    The window is the largest with a median error within the tolerance and no size at three times it.
    """
    sizes, times = curve.size_bytes, curve.time_s
    for window in range(sizes.size, FEWEST - 1, -1):
        columns = np.column_stack([np.ones(window), (num_ranks - 1) * sizes[:window]])
        floor, slope = _relative_fit(columns, times[:window]).tolist()
        errors = np.abs(columns @ (floor, slope) / times[:window] - 1.0)
        good = np.median(errors) <= tolerance and errors.max() <= 3.0 * tolerance
        if good or window == FEWEST:
            break
    law = PeerAccess(
        num_ranks=num_ranks,
        one_shot_floor_s=max(floor, float(times.min()) * _LEAST_SHARE),
        one_shot_bytes_per_s=1.0 / slope if slope > 0 else math.inf,
    )
    return law, window


def crossover_bytes(first: AllReduceCurve, second: AllReduceCurve) -> float:
    """Size from which the second of two measured all-reduces is the faster one.

    .. math:: T_1(S) = T_2(S)

    Exact between the sizes, as both curves are linear there.
    """
    low = max(first.size_bytes[0], second.size_bytes[0])
    high = min(first.size_bytes[-1], second.size_bytes[-1])
    if low > high:
        raise ParameterError("size_bytes", f"{low:g} to {high:g}", "a range that both curves share")
    knots = np.unique(np.concatenate([first.size_bytes, second.size_bytes, [low, high]]))
    knots = knots[(knots >= low) & (knots <= high)]
    gap = first.at(knots) - second.at(knots)
    if gap[-1] <= 0:
        return math.inf
    below = np.flatnonzero(gap <= 0)
    if not below.size:
        return 0.0
    place = int(below[-1])
    share = gap[place] / (gap[place] - gap[place + 1])
    return float(knots[place] + share * (knots[place + 1] - knots[place]))


def _switches(sizes: Array) -> list[float]:
    """Return candidates of the switch: none, and between two sizes with two on each side."""
    inner = np.sqrt(sizes[:-1] * sizes[1:])
    usable = inner[_BEHIND_SWITCH - 1 : inner.size - _BEHIND_SWITCH + 1]
    return [math.inf, *(usable.tolist() if sizes.size >= 3 * _BEHIND_SWITCH else [])]


def _relative_fit(columns: Array, times: Array) -> Array:
    """Return coefficients, not negative, with the least sum of relative errors."""
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0] = 1.0
    weights = 1.0 / times
    solution = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        solution = nnls(columns / scale * weights[:, None], times * weights)[0] / scale
        errors = np.abs(columns @ solution / times - 1.0)
        weights = 1.0 / (times * np.sqrt(np.maximum(errors, _RESOLUTION)))
    return np.asarray(solution)
