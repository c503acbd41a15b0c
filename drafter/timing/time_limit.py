"""Whether a load may be begun: before a moment of the host's clock, if it is likely to end by then."""

from collections.abc import Callable
from typing import final

from drafter.timing.grid import StepLoad


@final
class TimeLimit:
    """A moment after which no load is begun.

    Parameters
    ----------
    until_s : float or None
        On the clock of `host_s`; None for no limit, [s].
    host_s : callable
        Clock of the host, [s].

    Notes
    -----
    A load at batch 64 can take ten times as long as one at batch 1. What it will take is guessed from the
    loads before: their shortest time for each byte that a step reads, of as many branches where there are
    such. The first load is always begun.

    Examples
    --------
    >>> clock = iter([0.0, 10.0, 10.0, 10.0])
    >>> limit = TimeLimit(60.0, lambda: next(clock))
    >>> small, large = StepLoad(1, 2048, 1), StepLoad(64, 2048, 1)
    >>> limit.timed(small, 1e9, lambda: None)
    >>> limit.allows(small, 1e9), limit.allows(large, 9e9)
    (True, False)
    """

    def __init__(self, until_s: float | None, host_s: Callable[[], float]) -> None:
        self._until_s, self._host_s = until_s, host_s
        self._s_per_byte: dict[int, float] = {}

    def allows(self, load: StepLoad, step_bytes: float) -> bool:
        """Whether a load may be begun.

        Parameters
        ----------
        load : StepLoad
            The load.
        step_bytes : float
            What a step of it reads, [B].

        Returns
        -------
        bool
        """
        if self._until_s is None or not self._s_per_byte:
            return True
        pace = self._s_per_byte.get(load.topk, min(self._s_per_byte.values()))
        return self._host_s() + pace * step_bytes <= self._until_s

    def timed(self, load: StepLoad, step_bytes: float, run: Callable[[], None]) -> None:
        """Measure a load, and keep how long that took.

        Parameters
        ----------
        load : StepLoad
            The load.
        step_bytes : float
            What a step of it reads, [B].
        run : callable
            Measures it.
        """
        begun = self._host_s()
        run()
        pace = (self._host_s() - begun) / step_bytes
        self._s_per_byte[load.topk] = min(pace, self._s_per_byte.get(load.topk, pace))
