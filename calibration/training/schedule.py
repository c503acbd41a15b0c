"""What the printed learning rates say: where warm-up ends, whether decay has begun, how it ends."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Share of the peak that counts as the peak: rates are printed with three digits.
_AT_PEAK: Final = 0.995

# Ends of a decay over its peak that trainers use; a judgement.
_FLOORS: Final = (0.0, 0.01, 0.1)

# Residuals within this factor of the best one are as good as it.
_GOOD: Final = 2.0

# Relative spread of the ends of good fits above which the end is not known.
_SURE: Final = 0.1

# Error of a relative rate that three printed digits leave.
_PRINTED: Final = 0.001

# Error above which a decay has none of the known forms; a judgement.
_NO_FORM: Final = 0.05

# Rise of the relative rate during a decay that is a second warm-up.
_REWARMED: Final = 0.02

_LOW: Final = 0.9
# Share of the rates between two peaks below `_LOW` of them that makes it a cycle, not a restart.
_CYCLES: Final = 0.2

_MOST_RATES: Final = 400


class Decay(StrEnum):
    """How the learning rate falls after its peak."""

    # Not printed, or of no known form.
    UNKNOWN = "unknown"
    # At its peak up to now; a decay may come (warm-up, stable, decay).
    CONSTANT = "constant"
    COSINE = "cosine"
    LINEAR = "linear"


# Error, form, start, end and floor.
_Fit: TypeAlias = tuple[float, Decay, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate of a run, as far as its records tell."""

    decay: Decay  # its form
    peak: float  # highest rate; nan where none is printed
    warm_up_end: float  # first step at the peak; 0 where warm-up was not seen
    in_warm_up: bool  # the rate was still rising at the last record
    decay_start: float  # step at which it left the peak; infinite before that
    end: float | None  # planned last step: given, or where the decay ends; None where it is open
    floor: float  # rate at the end over the peak
    end_known: bool  # `end` was given and not inferred
    rate_steps: Array  # what was printed
    rates: Array

    @property
    def known(self) -> bool:
        """Whether learning rates were printed."""
        return self.rates.size > 0

    @property
    def decay_begun(self) -> bool | None:
        """Whether the rate has left its peak; None where it is not known."""
        return bool(np.isfinite(self.decay_start)) if self.known else None

    def relative_rate(self, steps: ArrayLike) -> Array:
        """Return the rate over its peak: printed up to the last record, planned after it."""
        step = np.asarray(steps, dtype=np.float64)
        if not self.known:
            return np.ones_like(step)
        printed = np.interp(step, self.rate_steps, self.rates) / self.peak
        last = self.rate_steps[-1]
        if self.decay in (Decay.CONSTANT, Decay.UNKNOWN) or self.end is None:
            planned = np.full_like(step, self.rates[-1] / self.peak)
        else:
            planned = _decayed(self.decay, step, self.decay_start, self.end, self.floor)
        return np.asarray(np.where(step <= last, printed, planned))


def read_schedule(
    rate_steps: ArrayLike, rates: ArrayLike, *, total_steps: float | None = None
) -> Schedule:
    """Return what learning rates say about the run."""
    step, rate = _thinned(
        np.asarray(rate_steps, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    )
    end = None if total_steps is None else float(total_steps)
    if not rate.size or not rate.max() > 0.0:
        return Schedule(
            decay=Decay.UNKNOWN, peak=float("nan"), warm_up_end=0.0, in_warm_up=False,
            decay_start=float("inf"), end=end, floor=1.0, end_known=end is not None,
            rate_steps=step[:0], rates=rate[:0],
        )  # fmt: skip
    peak = float(rate.max())
    high = np.flatnonzero(rate >= _AT_PEAK * peak)
    first, last = int(high[0]), int(high[-1])
    begins_low = rate[0] < _AT_PEAK * peak
    warm_up_end = float(step[first]) if begins_low else 0.0
    rising = bool(begins_low and last == rate.size - 1 and rate[-1] > rate[max(last - 1, 0)])
    decay, start, found, floor = Decay.CONSTANT, float("inf"), end, 1.0
    if float(np.mean(rate[first : last + 1] < _LOW * peak)) > _CYCLES:
        decay = Decay.UNKNOWN
    elif last < rate.size - 1:
        start = float(step[last])
        decay, start, found, floor = _fitted_decay(step, rate / peak, start, warm_up_end, end)
    return Schedule(
        decay=decay, peak=peak, warm_up_end=warm_up_end, in_warm_up=rising, decay_start=start,
        end=found, floor=floor, end_known=end is not None, rate_steps=step, rates=rate,
    )  # fmt: skip


def _thinned(step: Array, rate: Array) -> tuple[Array, Array]:
    """Return finite rates, at most some hundreds, the first and last among them."""
    finite = np.isfinite(step) & np.isfinite(rate) & (rate >= 0.0)
    step, rate = step[finite], rate[finite]
    if step.size <= _MOST_RATES:
        return step, rate
    kept = np.unique(np.linspace(0, step.size - 1, _MOST_RATES).round().astype(int))
    return step[kept], rate[kept]


def _decayed(decay: Decay, step: Array, start: float, end: float, floor: float) -> Array:
    """Return the rate over its peak of a decay."""
    progress = np.clip((step - start) / max(end - start, 1e-9), 0.0, 1.0)
    shape = 0.5 * (1.0 + np.cos(np.pi * progress)) if decay is Decay.COSINE else 1.0 - progress
    return np.asarray(floor + (1.0 - floor) * shape)


def _fitted_decay(
    step: Array, relative: Array, left: float, warm_up_end: float, end: float | None
) -> tuple[Decay, float, float | None, float]:
    """Return form, start, end and floor of the decay that fits the rates after the peak."""
    after = step >= left
    seen, values = step[after], relative[after]
    tail = _last_stretch(values)
    seen, values = seen[tail:], values[tail:]
    fits = (
        _open_fits(seen, values) if end is None else _fits_to(seen, values, left, warm_up_end, end)
    )
    if not fits:
        return Decay.UNKNOWN, left, end, float(values[-1])
    fits.sort(key=lambda fit: fit[0])
    error, decay, start, found, floor = fits[0]
    if error > _NO_FORM:
        return Decay.UNKNOWN, left, end, float(values[-1])
    if end is not None:
        return decay, start, end, floor
    ends = [fit[3] for fit in fits if fit[0] <= max(_GOOD * error, _PRINTED)]
    sure = max(ends) - min(ends) <= _SURE * found
    return decay, start, found if sure else None, floor


def _open_fits(seen: Array, values: Array) -> list[_Fit]:
    """Return fits whose end follows from the rates: a straight line, and cosines to some floors.

    Over its floor, the angle of a cosine is linear in the step. A line is taken to end at zero.
    """
    fits: list[_Fit] = []
    slope, level = _line(seen, values, np.ones_like(values))
    if slope < 0.0:
        start, end = (1.0 - level) / slope, -level / slope
        fits.append(_fit(Decay.LINEAR, seen, values, start=start, end=end, floor=0.0))
    for floor in _FLOORS:
        cosine = np.clip(2.0 * (values - floor) / (1.0 - floor) - 1.0, -1.0, 1.0)
        angle = np.arccos(cosine)
        slope, level = _line(seen, angle, 1.0 - cosine**2 + 1e-9)
        if slope > 0.0:
            start, end = -level / slope, (np.pi - level) / slope
            fits.append(_fit(Decay.COSINE, seen, values, start=start, end=end, floor=floor))
    return [fit for fit in fits if fit[3] > seen[-1] * (1.0 - _SURE)]


def _fits_to(seen: Array, values: Array, left: float, warm_up_end: float, end: float) -> list[_Fit]:
    """Return fits that end where the run is planned to.

    A cosine leaves its peak long before the printed digits show it, so a start at the end of warm-up
    is tried beside the step at which the rate was last seen at its peak.
    """
    fits: list[_Fit] = []
    for decay in (Decay.COSINE, Decay.LINEAR):
        for start in {left, warm_up_end}:
            if not start < end:
                continue
            shape = _decayed(decay, seen, start, end, 0.0)
            room = 1.0 - shape
            weight = float(room @ room)
            floor = float(np.clip(room @ (values - shape) / weight, 0.0, 1.0)) if weight else 0.0
            fits.append(_fit(decay, seen, values, start=start, end=end, floor=floor))
    return fits


def _fit(
    decay: Decay, seen: Array, values: Array, *, start: float, end: float, floor: float
) -> _Fit:
    """Return a fit with its error."""
    error = _decayed(decay, seen, start, end, floor) - values
    return float(np.sqrt(np.mean(error**2))), decay, float(start), float(end), floor


def _line(at: Array, values: Array, weights: Array) -> tuple[float, float]:
    """Return slope and level of a weighted straight line; slope 0 where it is not determined."""
    total = float(weights.sum())
    centre, mean = float(weights @ at) / total, float(weights @ values) / total
    spread = float(weights @ (at - centre) ** 2)
    if at.size < 3 or not spread > 0.0:
        return 0.0, mean
    slope = float(weights @ ((at - centre) * (values - mean))) / spread
    return slope, mean - slope * centre


def _last_stretch(values: Array) -> int:
    """Return where the last stretch without a rise begins: a restart may warm up again."""
    rises = np.flatnonzero(np.diff(values) > _REWARMED)
    return int(rises[-1]) + 1 if rises.size and rises[-1] + 4 < values.size else 0
