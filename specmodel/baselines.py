"""Measured baselines of a system: throughput without speculation by workload, batch and context."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost import BatchCurve
from specmodel.errors import ParameterError
from specmodel.question import Configuration

Array = NDArray[np.float64]


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

    def curve(self) -> BatchCurve | None:
        """The batch curve; None where fewer than two batches have a step time."""
        batch, time_s = self.column("batch_size"), self.column("step_time_s")
        usable = np.isfinite(batch) & np.isfinite(time_s)
        if np.unique(batch[usable]).size < 2:
            return None
        return BatchCurve.from_points(
            batch[usable], self.column("context_tokens")[usable], time_s[usable]
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
            deficit = 1.0 - rate / self.fastest(batch_size, context_tokens)
        return np.clip(np.nan_to_num(deficit), 0.0, 0.99)

    def fastest(self, batch_size: ArrayLike, context_tokens: ArrayLike) -> Array:
        """Throughput of the fastest workload at each load; NaN where the load was not measured."""
        return self._best("tokens_per_s", max, batch_size, context_tokens)

    def step_time_s(self, batch_size: ArrayLike, context_tokens: ArrayLike) -> Array:
        """Step time of the fastest workload at each load; NaN where not measured or not stated."""
        return self._best("step_time_s", min, batch_size, context_tokens)

    def _best(self, name: str, better: Callable[..., float], *load: ArrayLike) -> Array:
        """Best value of a field over workloads at each load."""
        best: dict[tuple[float | None, ...], float] = {}
        for entry in self.entries:
            value, key = getattr(entry, name), _key(entry.batch_size, entry.context_tokens)
            if np.isfinite(value):
                best[key] = better(value, best.get(key, value))
        batch, context = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in load))
        loads = map(_key, batch.ravel().tolist(), context.ravel().tolist())
        values = np.array([best.get(key, np.nan) for key in loads], dtype=np.float64)
        return values.reshape(batch.shape)

    def at(self, load: Configuration) -> list[Baseline]:
        """Those at the load of a configuration; one that is not stated is a load of its own."""
        asked = _key(load.batch_size, load.context_tokens)
        return [one for one in self.entries if _key(one.batch_size, one.context_tokens) == asked]


def _key(*load: float | None) -> tuple[float | None, ...]:
    """A load by which it can be looked up: NaN is None."""
    return tuple(None if value != value else value for value in load)  # noqa: PLR0124 - NaN
