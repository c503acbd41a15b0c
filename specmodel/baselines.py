"""Measured baselines of a system: throughput without speculation by workload, batch and context."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost import BatchCurve
from specmodel.errors import ParameterError

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
        rate, batch, context = np.broadcast_arrays(
            np.asarray(tokens_per_s, dtype=np.float64),
            np.asarray(batch_size, dtype=np.float64),
            np.asarray(context_tokens, dtype=np.float64),
        )
        if np.any(rate <= 0):
            raise ParameterError("baseline_tokens_per_s", f"{np.nanmin(rate):g}", "positive")
        fastest = self.fastest(batch, context)
        with np.errstate(invalid="ignore"):
            deficit = 1.0 - rate / fastest
        return np.clip(np.nan_to_num(deficit), 0.0, 0.99)

    def fastest(self, batch_size: ArrayLike, context_tokens: ArrayLike) -> Array:
        """Throughput of the fastest workload at each load; NaN where the load was not measured."""
        return self._best("tokens_per_s", batch_size, context_tokens)

    def step_time_s(self, batch_size: ArrayLike, context_tokens: ArrayLike) -> Array:
        """Step time of the fastest workload at each load; NaN where not measured or not stated."""
        return -self._best("step_time_s", batch_size, context_tokens, sign=-1.0)

    def _best(
        self, name: str, batch_size: ArrayLike, context_tokens: ArrayLike, sign: float = 1.0
    ) -> Array:
        """Largest value of a field (times sign) over workloads at each load."""
        best: dict[tuple[float, float], float] = {}
        for entry in self.entries:
            value = sign * getattr(entry, name)
            if np.isfinite(value):
                key = _load(entry.batch_size, entry.context_tokens)
                best[key] = max(value, best.get(key, -np.inf))
        batch, context = np.broadcast_arrays(
            np.asarray(batch_size, dtype=np.float64), np.asarray(context_tokens, dtype=np.float64)
        )
        loads = zip(_coded(batch).ravel().tolist(), _coded(context).ravel().tolist(), strict=True)
        values = np.array([best.get(load, np.nan) for load in loads], dtype=np.float64)
        return values.reshape(batch.shape)

    def find(self, workload: str, batch_size: float, context_tokens: float) -> Baseline | None:
        """The mean baseline of a workload at a load; None where it was not measured."""
        load = _load(batch_size, context_tokens)
        found = [
            entry
            for entry in self.entries
            if entry.workload == workload and _load(entry.batch_size, entry.context_tokens) == load
        ]
        if not found:
            return None
        return Baseline(
            workload=workload,
            batch_size=batch_size,
            context_tokens=context_tokens,
            tokens_per_s=float(np.mean([entry.tokens_per_s for entry in found])),
            step_time_s=float(np.mean([entry.step_time_s for entry in found])),
            non_decode_share=_mean_stated([entry.non_decode_share for entry in found]),
        )


def _mean_stated(values: list[float]) -> float:
    """Mean of what is stated; NaN where nothing is."""
    stated = [value for value in values if not np.isnan(value)]
    return float(np.mean(stated)) if stated else np.nan


_NOT_STATED = -1.0


def _coded(values: Array) -> Array:
    """NaN as a number that compares equal to itself."""
    return np.where(np.isnan(values), _NOT_STATED, values)


def _load(batch_size: float, context_tokens: float) -> tuple[float, float]:
    """Key of a load."""
    batch, context = _coded(np.array([batch_size, context_tokens], dtype=np.float64)).tolist()
    return batch, context
