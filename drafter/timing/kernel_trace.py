"""Times of single kernels inside a replayed draft, from the device's own trace."""

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch.profiler import ProfilerActivity, profile

from specmodel.measurement import KernelTiming
from specmodel.units import MICRO

REPLAYS: Final = 20
"""Replays that are traced, [-]."""


def kernel_times(replay: Callable[[], None]) -> tuple[KernelTiming, ...]:
    """Mean time of each kernel of a replayed graph.

    Parameters
    ----------
    replay : callable
        Replays a captured draft once.

    Returns
    -------
    tuple of KernelTiming
        The one that takes most first; empty where the device gives no trace.

    Notes
    -----
    Tracing needs rights that some hosts do not give. It slows the gaps between kernels and not the
    kernels, so nothing but their own times is taken from it.

    Examples
    --------
    >>> kernel_times(lambda: None)
    ()
    """
    if not torch.cuda.is_available():
        return ()
    replay()
    torch.cuda.synchronize()
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
            for _ in range(REPLAYS):
                replay()
            torch.cuda.synchronize()
    except (RuntimeError, TypeError):
        return ()
    rows = [
        (str(row.key), int(row.count), float(getattr(row, "device_time_total", 0.0)))
        for row in trace.key_averages()
    ]
    return summed(rows, replays=REPLAYS)


def summed(rows: Iterable[tuple[str, int, float]], *, replays: int) -> tuple[KernelTiming, ...]:
    r"""Rows of a trace as timings of one draft.

    .. math:: \text{calls} = n / r, \qquad t = \sum t_i / n

    Parameters
    ----------
    rows : iterable of (str, int, float)
        Name, launches and summed time in microseconds of each kernel.
    replays : int
        :math:`r`, drafts in the trace, [-].

    Returns
    -------
    tuple of KernelTiming
        By summed time, falling; what was not launched in every draft, or took no time on the device, is
        left out.

    Examples
    --------
    >>> rows = [("head", 40, 800.0), ("cudaGraphLaunch", 20, 0.0)]
    >>> [(each.name, each.calls, each.time_s) for each in summed(rows, replays=20)]
    [('head', 2, 2e-05)]
    """
    kept = [row for row in rows if row[1] >= replays and row[2] > 0.0]
    kept.sort(key=lambda row: -row[2])
    return tuple(
        KernelTiming(name=name, calls=round(count / replays), time_s=total * MICRO / count)
        for name, count, total in kept
    )
