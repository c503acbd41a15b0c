"""What speaks against a measured all-reduce, and against asking it for a size: sentences for a user."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmodel.cost.allreduce_curve import MOST_BEYOND, AllReduceCurve
from specmodel.units import KIBI, MEBI, MICRO

Array = NDArray[np.float64]

OFF: Final = 2.0
"""Factor by which a time may miss what the sizes beside it give (judgement): on the packaged curves the
switches of protocol miss by less. [-]"""

FALL: Final = 0.8
"""Share of a smaller message's time below which a larger one's is a fall, not noise (judgement); 11 of the
145 packaged curves fall further. [-]"""

_MOST_OUTLIERS = 3  # more of them are no outliers


def size_words(size_bytes: float) -> str:
    """Return a message size for a person, such as ``512 KiB``."""
    if size_bytes >= MEBI:
        return f"{size_bytes / MEBI:.3g} MiB"
    return f"{size_bytes / KIBI:.3g} KiB" if size_bytes >= KIBI else f"{size_bytes:.0f} B"


def curve_doubts(curve: AllReduceCurve) -> tuple[str, ...]:
    """Return times of a curve that cannot be those of its sizes: outliers, and times that fall."""
    kept = _without_outliers(curve.size_bytes, curve.time_s)
    rest = AllReduceCurve(size_bytes=curve.size_bytes[kept], time_s=curve.time_s[kept])
    found = []
    for at in np.flatnonzero(~kept):
        size, time_s = float(curve.size_bytes[at]), float(curve.time_s[at])
        found.append(
            f"{size_words(size)} took {_time(time_s)} where the other sizes give "
            f"{_time(float(rest.at(size)))}: measure that size again, and whether others shared the link"
        )
    peak = np.maximum.accumulate(rest.time_s)
    falls = np.flatnonzero(rest.time_s < FALL * peak)
    if falls.size:
        low = int(falls[np.argmin(rest.time_s[falls] / peak[falls])])
        high = int(np.argmax(rest.time_s[: low + 1]))
        found.append(
            f"the time falls from {_time(float(rest.time_s[high]))} at {_size_at(rest, high)} to "
            f"{_time(float(rest.time_s[low]))} at {_size_at(rest, low)}: a larger message is not "
            "faster, so measure again, with more iterations"
        )
    return tuple(found)


def outside_doubt(curve: AllReduceCurve, smallest_bytes: float, largest_bytes: float) -> str:
    """Return that messages are far outside the measured sizes, and what is done; empty where they are not."""
    low, high = float(curve.size_bytes[0]), float(curve.size_bytes[-1])
    below = low / max(smallest_bytes, 1.0) > MOST_BEYOND
    above = largest_bytes / high > MOST_BEYOND
    if not (below or above):
        return ""
    asked = size_words(smallest_bytes)
    if size_words(largest_bytes) != asked:
        asked += f" to {size_words(largest_bytes)}"
    done = [f"below them it is held at {_time(float(curve.time_s[0]))}"] if below else []
    done += ["above them the last slope continues"] if above else []
    return (
        f"messages of {asked} are outside the measured {size_words(low)} to {size_words(high)} "
        f"({_time(float(curve.time_s[0]))} to {_time(float(curve.time_s[-1]))}); "
        f"{' and '.join(done)}: measure the sizes that are served"
    )


def _size_at(curve: AllReduceCurve, index: int) -> str:
    """A size of a curve."""
    return size_words(float(curve.size_bytes[index]))


def _time(time_s: float) -> str:
    """A time in microseconds."""
    return f"{time_s / MICRO:.3g} µs" if time_s < 1e-3 else f"{time_s / MICRO:.0f} µs"


def _without_outliers(sizes: Array, times: Array) -> NDArray[np.bool_]:
    """Return which sizes are left when those are taken out without which the rest agrees best."""
    kept = np.ones(sizes.size, dtype=bool)
    for _ in range(_MOST_OUTLIERS):
        if not (now := _disagreement(sizes[kept], times[kept])) or kept.sum() <= 4:
            return kept
        trials = []
        for at in np.flatnonzero(kept):
            rest = kept.copy()
            rest[at] = False
            trials.append((_disagreement(sizes[rest], times[rest]), at))
        best, at = min(trials)
        if best >= now / 2:
            return kept
        kept[at] = False
    return kept


def _disagreement(sizes: Array, times: Array) -> float:
    """Sum of what times miss of their neighbours' line, and of falls, beyond `OFF`; in logarithms."""
    errors = AllReduceCurve(size_bytes=sizes, time_s=times).left_out_errors()
    missed = np.abs(np.log1p(errors)) - math.log(OFF)
    falls = -np.diff(np.log(times)) - math.log(OFF)
    return float(np.maximum(missed, 0.0).sum() + np.maximum(falls, 0.0).sum())
