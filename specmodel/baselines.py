"""Measured baselines of a system: throughput without speculation by workload, batch and context."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost import BatchCurve
from specmodel.errors import ParameterError
from specmodel.question import Configuration

Array = NDArray[np.float64]
Load = tuple[float, float]

_NOT_STATED = -1.0


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One measured baseline.

    Parameters
    ----------
    workload : str
        Empty where the points do not name it.
    batch_size, context_tokens : float
        The load; NaN where not stated.
    tokens_per_s : float
        Throughput without speculation, in the scope of the points, [tokens/s].
    step_time_s : float
        One decode step, [s]; NaN where the throughput is not an aggregate.
    non_decode_share : float
        Share of its wall time that is not decoding; NaN where it was not measured, [-].
    """

    workload: str
    batch_size: float
    context_tokens: float
    tokens_per_s: float
    step_time_s: float
    non_decode_share: float = np.nan


@dataclass(frozen=True, kw_only=True)
class Baselines:
    r"""All baselines of a system, and what follows from them without any speculative run.

    .. math:: d_w = 1 - \frac{y_w}{\max_{w'} y_{w'}} \text{ at equal batch and context}

    Parameters
    ----------
    entries : tuple of Baseline
        In the order of the points.

    Notes
    -----
    The deficit tells the non-decode share (theory.md B9), the step times over several batches tell
    the verification (B10).

    Examples
    --------
    >>> entries = tuple(
    ...     Baseline(workload=name, batch_size=8, context_tokens=np.nan, tokens_per_s=rate, step_time_s=8 / rate)
    ...     for name, rate in (("chat", 500.0), ("short", 400.0))
    ... )
    >>> Baselines(entries=entries).deficit([400.0], [8], [np.nan]).round(2).tolist()
    [0.2]
    """

    entries: tuple[Baseline, ...] = ()

    def column(self, name: str) -> Array:
        """One numeric field of all entries."""
        return np.array([getattr(entry, name) for entry in self.entries], dtype=np.float64)

    def curve(self, experts: tuple[float, float] = (np.nan, np.nan)) -> BatchCurve | None:
        """The batch curve; None where fewer than two batches have a step time."""
        batch, time_s = self.column("batch_size"), self.column("step_time_s")
        usable = np.isfinite(batch) & np.isfinite(time_s)
        if np.unique(batch[usable]).size < 2:
            return None
        return BatchCurve.from_points(
            batch[usable], self.column("context_tokens")[usable], time_s[usable], experts
        )

    def deficit(
        self, tokens_per_s: ArrayLike, batch_size: ArrayLike, context_tokens: ArrayLike
    ) -> Array:
        r"""How much slower baselines are than the fastest known at the same batch and context.

        .. math:: d = \max\left(0, 1 - \frac{y}{y_\max(B, C)}\right)
        """
        rate = np.asarray(tokens_per_s, dtype=np.float64)
        if np.any(rate <= 0):
            raise ParameterError("baseline_tokens_per_s", f"{np.nanmin(rate):g}", "positive")
        with np.errstate(invalid="ignore"):
            deficit = 1.0 - rate / self.best("tokens_per_s", max, batch_size, context_tokens)
        return np.clip(np.nan_to_num(deficit), 0.0, 0.99)

    def best(
        self,
        name: str,
        better: Callable[..., float],
        batch_size: ArrayLike,
        context_tokens: ArrayLike,
    ) -> Array:
        """Best value of a field over workloads at each load; NaN where not measured or not stated."""
        best: dict[Load, float] = {}
        for load, entries in self.by_load.items():
            values = [getattr(entry, name) for entry in entries]
            best[load] = better([one for one in values if np.isfinite(one)], default=np.nan)
        loads = np.broadcast_arrays(batch_size, context_tokens)
        keys = zip(
            *(np.nan_to_num(one, nan=_NOT_STATED).ravel().tolist() for one in loads), strict=True
        )
        found = [best.get(key, np.nan) for key in keys]
        return np.array(found, dtype=np.float64).reshape(loads[0].shape)

    @cached_property
    def by_load(self) -> dict[Load, list[Baseline]]:
        """Entries by batch and context."""
        found: dict[Load, list[Baseline]] = {}
        for one in self.entries:
            load = np.nan_to_num([one.batch_size, one.context_tokens], nan=_NOT_STATED).tolist()
            found.setdefault(tuple(load), []).append(one)
        return found

    def at(self, load: Configuration) -> list[Baseline]:
        """Those at the load of a configuration; one that is not stated is a load of its own."""
        batch, context = load.batch_size, load.context_tokens
        return self.by_load.get(
            (_NOT_STATED if batch is None else batch, _NOT_STATED if context is None else context),
            [],
        )
