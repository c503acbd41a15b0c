"""Samples of timed works and what is taken from them: medians, differences, slopes, spreads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from specmodel.errors import ParameterError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Times of one work in two identical runs, between which other works ran.

    Parameters
    ----------
    first, second : tuple of float
        Positive, at least one each; each the mean of several replays, [s].

    Raises
    ------
    ParameterError
        If a run is empty or a time is not positive.

    Notes
    -----
    Medians, since a launch that was held up is no property of the work.

    Examples
    --------
    >>> samples = Samples(first=(1.0, 1.1, 1.0), second=(1.02, 1.02, 9.0))
    >>> samples.median_s, round(samples.spread, 3)
    (1.02, 0.02)
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            times = getattr(self, name)
            if not times or not all(0.0 < time_s < np.inf for time_s in times):
                raise ParameterError(name, times, "positive times, at least one")

    @property
    def median_s(self) -> float:
        """Median of all, [s]."""
        return float(np.median(self.first + self.second))

    @property
    def run_medians_s(self) -> tuple[float, float]:
        """Median of each run, [s]."""
        return float(np.median(self.first)), float(np.median(self.second))

    @property
    def spread(self) -> float:
        """Relative difference of the two runs' medians, [-]."""
        return relative_difference(*self.run_medians_s)

    @property
    def scatter(self) -> float:
        """Distance between the 20th and the 80th percentile over the median, [-]."""
        low, high = np.percentile(self.first + self.second, (20, 80))
        return float((high - low) / self.median_s)

    @property
    def num_samples(self) -> int:
        """Number of samples, [-]."""
        return len(self.first) + len(self.second)


@final
class Difference(NamedTuple):
    """Time of what one work does more than another.

    Parameters
    ----------
    time_s : float
        Difference of the medians; not positive where noise is larger than the work, [s].
    spread : float
        Relative difference of the two runs' differences, [-].
    num_samples : int
        Samples behind it, [-].

    Examples
    --------
    >>> Difference(1e-4, 0.01, 20).num_samples
    20
    """

    time_s: float
    spread: float
    num_samples: int


def relative_difference(one: float, other: float) -> float:
    r"""Distance of two numbers over their mean.

    .. math:: \frac{|a - b|}{(|a| + |b|) / 2}

    Parameters
    ----------
    one, other : float
        :math:`a, b`, in one unit.

    Returns
    -------
    float
        Between 0 and 2; 0 where both are 0, [-].

    Examples
    --------
    >>> relative_difference(0.9, 1.1)
    0.2
    """
    scale = (abs(one) + abs(other)) / 2
    return abs(one - other) / scale if scale else 0.0


def difference(whole: Samples, part: Samples) -> Difference:
    r"""Time of what `whole` does more than `part`.

    .. math:: \operatorname{median} T_{\text{whole}} - \operatorname{median} T_{\text{part}}

    Parameters
    ----------
    whole, part : Samples
        Of works that were timed in turns: graph[flush + draft] and graph[flush].

    Returns
    -------
    Difference

    Notes
    -----
    Launch of the graph and the flush cancel. drafter.md 20.

    Examples
    --------
    >>> flush, both = (Samples(first=(t,), second=(t,)) for t in (2.0, 5.0))
    >>> difference(both, flush)
    Difference(time_s=3.0, spread=0.0, num_samples=2)
    """
    runs = [a - b for a, b in zip(whole.run_medians_s, part.run_medians_s, strict=True)]
    return Difference(
        time_s=whole.median_s - part.median_s,
        spread=relative_difference(*runs),
        num_samples=min(whole.num_samples, part.num_samples),
    )


@final
class Line(NamedTuple):
    """A line through times of drafts over their number of steps.

    Parameters
    ----------
    slope_s : float
        Time of one more step, [s].
    start_s : float
        Time of a draft of one step: the extend pass, [s].
    bend : float
        Largest distance of a time from the line, in slopes; infinite without a slope, [-].

    Examples
    --------
    >>> Line(1e-4, 2e-4, 0.0).slope_s
    0.0001
    """

    slope_s: float
    start_s: float
    bend: float


def fitted_line(times_s: Mapping[int, float]) -> Line:
    r"""Least-squares line through times of drafts.

    .. math:: T_k = a + b\,(k - 1)

    Parameters
    ----------
    times_s : mapping of int to float
        :math:`T`, by number of steps :math:`k`, at least two of them, [s].

    Returns
    -------
    Line
        :math:`b` and :math:`a`.

    Raises
    ------
    ParameterError
        If there are fewer than two depths.

    Notes
    -----
    A draft of one step is the extend pass alone, which drafts the first token.

    Examples
    --------
    >>> line = fitted_line({1: 3.0, 3: 7.0, 5: 11.0})
    >>> round(line.slope_s, 6), round(line.start_s, 6)
    (2.0, 3.0)
    """
    if len(times_s) < 2:
        raise ParameterError("depths", sorted(times_s), "at least two")
    steps = np.array(sorted(times_s), dtype=np.float64) - 1.0
    times = np.array([times_s[depth] for depth in sorted(times_s)])
    slope, start = np.polyfit(steps, times, 1)
    off = float(np.abs(times - (start + slope * steps)).max())
    return Line(float(slope), float(start), off / float(slope) if slope > 0 else np.inf)


def step_difference(by_depth: Mapping[int, Samples]) -> Difference:
    r"""Time of one draft step: the slope over the number of steps.

    .. math:: b \text{ of } T_k = a + b\,(k - 1)

    Parameters
    ----------
    by_depth : mapping of int to Samples
        Of graph[flush + draft of k steps], at least two depths.

    Returns
    -------
    Difference
        Its spread is that of the slopes of the two runs.

    Raises
    ------
    ParameterError
        If there are fewer than two depths.

    Notes
    -----
    Flush, launch and extend pass are in every depth alike and cancel.

    Examples
    --------
    >>> times = {depth: Samples(first=(1.0 + depth,), second=(1.0 + depth,)) for depth in (1, 3)}
    >>> round(step_difference(times).time_s, 9)
    1.0
    """
    slopes = [
        fitted_line({depth: each.run_medians_s[run] for depth, each in by_depth.items()}).slope_s
        for run in (0, 1)
    ]
    whole = fitted_line({depth: each.median_s for depth, each in by_depth.items()})
    return Difference(
        time_s=whole.slope_s,
        spread=relative_difference(*slopes),
        num_samples=min(each.num_samples for each in by_depth.values()),
    )
