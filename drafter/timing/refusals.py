"""Reasons for which a measurement is refused, as functions of what was read and counted."""

from collections.abc import Mapping, Sequence
from typing import Final

from drafter.timing.samples import fitted_line
from specmodel.errors import SpecModelError
from specmodel.measurement import Clocks, DraftRecord
from specmodel.units import MICRO, PERCENT

MOST_CLOCK_CHANGE: Final = 3 * PERCENT
"""Relative change of a clock during a measurement, [-]. drafter.md 20."""

MOST_SPREAD: Final = 5 * PERCENT
"""Relative difference of two identical runs, and scatter within one, [-]. A judgement."""

MOST_BEND: Final = 25 * PERCENT
"""Distance of a draft's time from the line over its depths, in slopes, [-]. A judgement."""

LEAST_FLUSHES: Final = 4
"""Bytes that are read to flush a last-level cache, in sizes of that cache, [-]. drafter.md 20."""


class MeasurementRefusedError(SpecModelError, RuntimeError):
    """A measurement that would mislead; nothing is recorded from it.

    Parameters
    ----------
    what : str
        What was measured.
    reason : str
        Why it is refused, what was found, what to do.
    """

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}: refused: {reason}")


class MeasurementCutError(SpecModelError, RuntimeError):
    """A measurement that an error ended; what was measured before is kept.

    Parameters
    ----------
    what : str
        Load at which it ended.
    reason : str
        What the device or torch said.
    record : DraftRecord
        What was measured before.
    """

    def __init__(self, what: str, reason: str, record: DraftRecord) -> None:
        self.what, self.reason, self.record = what, reason, record
        super().__init__(f"{what}: ended by an error, the loads before it are kept: {reason}")


def clock_change(readings: Sequence[Clocks]) -> dict[str, float]:
    r"""Relative change of each clock over some readings.

    .. math:: \frac{\max f - \min f}{\max f}

    Parameters
    ----------
    readings : sequence of Clocks
        In any order.

    Returns
    -------
    dict of str to float
        By clock, in [0, 1); empty without two readings, [-].

    Notes
    -----
    A device that was idle at one of the readings shows as a large change.

    Examples
    --------
    >>> slow, fast = (Clocks(multiprocessor_hz=hz, memory_hz=3e9) for hz in (1.9e9, 2.0e9))
    >>> clock_change([fast, slow])
    {'multiprocessor': 0.05, 'memory': 0.0}
    """
    if len(readings) < 2:
        return {}
    by_name = {
        "multiprocessor": [each.multiprocessor_hz for each in readings],
        "memory": [each.memory_hz for each in readings],
    }
    return {name: (max(hz) - min(hz)) / max(hz) for name, hz in by_name.items()}


def check_clocks(what: str, readings: Sequence[Clocks]) -> None:
    r"""Refuse a measurement during which a clock moved.

    .. math:: \frac{\max f - \min f}{\max f} \le 0.03

    Parameters
    ----------
    what : str
        What was measured, for the message.
    readings : sequence of Clocks
        Before, during and after; without two of them nothing is known and nothing refused.

    Raises
    ------
    MeasurementRefusedError
        If a clock changed by more than 3 %.

    Notes
    -----
    Clocks are read, never set.

    Examples
    --------
    >>> slow, fast = (Clocks(multiprocessor_hz=hz, memory_hz=3e9) for hz in (1.8e9, 2.0e9))
    >>> check_clocks("chain", [fast, fast, slow])
    Traceback (most recent call last):
    ...
    drafter.timing.refusals.MeasurementRefusedError: chain: refused: ... clock moved by 10.0 %, ...
    """
    for name, change in clock_change(readings).items():
        if change > MOST_CLOCK_CHANGE:
            raise MeasurementRefusedError(
                what,
                f"the {name} clock moved by {change / PERCENT:.1f} %, more than "
                f"{MOST_CLOCK_CHANGE / PERCENT:g} %; let the device warm up, cool it or leave it alone",
            )


def check_spread(what: str, spread: float, *, kind: str = "two identical runs differ") -> None:
    r"""Refuse a measurement that does not repeat.

    .. math:: s \le 0.05

    Parameters
    ----------
    what : str
        What was measured, for the message.
    spread : float
        :math:`s`, relative, [-].
    kind : str
        What spreads, for the message.

    Raises
    ------
    MeasurementRefusedError
        If the spread is larger, or no number.

    Notes
    -----
    Differences that are claimed have to exceed the spread besides.

    Examples
    --------
    >>> check_spread("chain", 0.01)
    >>> check_spread("chain", 0.2)
    Traceback (most recent call last):
    ...
    drafter.timing.refusals.MeasurementRefusedError: chain: refused: two identical runs differ by 20.0 %, ...
    """
    if not 0.0 <= spread <= MOST_SPREAD:
        raise MeasurementRefusedError(
            what,
            f"{kind} by {spread / PERCENT:.1f} %, more than {MOST_SPREAD / PERCENT:g} %; "
            "is anything else running on the device?",
        )


def check_compilations(what: str, before: int, after: int) -> None:
    r"""Refuse a measurement in which a kernel was compiled.

    .. math:: n_{\text{after}} = n_{\text{before}}

    Parameters
    ----------
    what : str
        What was measured, for the message.
    before, after : int
        Compilations of the process so far, [-].

    Raises
    ------
    MeasurementRefusedError
        If there was one.

    Notes
    -----
    Triton compiles at the first launch of a variant, which takes a second and not microseconds.

    Examples
    --------
    >>> check_compilations("chain", 12, 12)
    >>> check_compilations("chain", 12, 13)
    Traceback (most recent call last):
    ...
    drafter.timing.refusals.MeasurementRefusedError: chain: refused: 1 kernel was compiled inside ...
    """
    compiled = after - before
    if compiled:
        number = "1 kernel was" if compiled == 1 else f"{compiled} kernels were"
        raise MeasurementRefusedError(
            what, f"{number} compiled inside the timed region; run the work once before"
        )


def check_cold(what: str, flush_bytes: float, cache_bytes: float | None) -> None:
    r"""Refuse times of weights that may still lie in the last-level cache.

    .. math:: F \ge 4 L

    Parameters
    ----------
    what : str
        What was measured, for the message.
    flush_bytes : float
        :math:`F`, other bytes read before each draft, [B].
    cache_bytes : float or None
        :math:`L`, last-level cache; None where the device does not say, [B].

    Raises
    ------
    MeasurementRefusedError
        If fewer bytes were read, or the size of the cache is not known.

    Notes
    -----
    In serving a pass of the target model evicts the draft model before each draft. A hot time is reported
    beside a cold one, never alone.

    Examples
    --------
    >>> check_cold("chain", 512e6, 60e6)
    >>> check_cold("chain", 0, 60e6)
    Traceback (most recent call last):
    ...
    drafter.timing.refusals.MeasurementRefusedError: chain: refused: hot cache only: ...
    """
    if cache_bytes is None or cache_bytes <= 0:
        raise MeasurementRefusedError(what, "the size of the device's cache is not known")
    if flush_bytes < LEAST_FLUSHES * cache_bytes:
        raise MeasurementRefusedError(
            what,
            f"hot cache only: {flush_bytes:.3g} bytes were read between drafts, fewer than "
            f"{LEAST_FLUSHES} times the cache of {cache_bytes:.3g} bytes",
        )


def check_line(what: str, times_s: Mapping[int, float]) -> None:
    r"""Refuse times of drafts that do not rise by one step's time a step.

    .. math:: \max_k |T_k - (a + b k)| \le 0.25\, b, \qquad b > 0

    Parameters
    ----------
    what : str
        What was measured, for the message.
    times_s : mapping of int to float
        :math:`T`, time of a whole draft by its number of steps, at least two, [s].

    Raises
    ------
    MeasurementRefusedError
        If the slope is not positive, or a time is a quarter of it away from the line.

    Notes
    -----
    Every further step launches the same kernels on the same shapes, so anything but a line is noise.

    Examples
    --------
    >>> check_line("chain", {1: 3e-4, 3: 7e-4, 5: 11e-4})
    >>> check_line("chain", {1: 3e-4, 3: 2e-4})
    Traceback (most recent call last):
    ...
    drafter.timing.refusals.MeasurementRefusedError: chain: refused: a further step takes -50 us, ...
    """
    line = fitted_line(times_s)
    if not line.slope_s > 0:
        raise MeasurementRefusedError(
            what, f"a further step takes {line.slope_s / MICRO:.3g} us, which is not positive"
        )
    if line.bend > MOST_BEND:
        raise MeasurementRefusedError(
            what,
            f"times of {', '.join(map(str, sorted(times_s)))} steps are off a line by "
            f"{line.bend / PERCENT:.0f} % of a step, more than {MOST_BEND / PERCENT:g} %",
        )
