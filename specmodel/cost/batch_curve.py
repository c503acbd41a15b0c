"""The baseline's own batch curve: step time without speculation against batch and context."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.cost.growth import Growth
from specmodel.errors import ParameterError

Array = NDArray[np.float64]


class StepTime(NamedTuple):
    """A step time read off a batch curve, and how far it was carried.

    Octaves of the batch to the nearest measured one, and those outside the measured ones; the share of the
    time that comes from carrying another context here; the part that reads the KV cache.
    """

    step_time_s: Array
    octaves_away: Array
    octaves_beyond: Array
    moved_share: Array
    kv_time_s: Array


@dataclass(frozen=True, eq=False)
class BatchCurve:
    r"""Step time without speculation over batch and context, from measured baselines.

    .. math:: T(B, C) = T_j(B) + s \, B \, (C - C_j)

    with :math:`T_j` piecewise linear in log-log through the batches measured at context :math:`C_j`,
    the nearest context whose batches reach :math:`B`, and :math:`s` the time to read one token of KV.

    Parameters
    ----------
    batch_size, context_tokens, step_time_s : numpy.ndarray, shape (m,)
        The measured points; sorted by context, then batch; each pair once.
    kv_s_per_token : float
        :math:`s`, not negative; 0 when only one context was measured, [s/token].
    num_experts, experts_per_token : float
        Of the target model; 0 for dense, NaN where not known.

    Raises
    ------
    ParameterError
        If a time or a batch is not positive.

    Notes
    -----
    Holds where one decode step depends on batch and context only. A staircase (graph sizes, a
    collective's threshold) is kept as measured: steps between two measured batches are not smoothed.
    theory.md B10.

    Examples
    --------
    >>> curve = BatchCurve.from_points([1, 4, 1], [0, 0, 4096], [0.010, 0.016, 0.012])
    >>> float(curve.at(2, 0).step_time_s.round(5))
    0.01265
    >>> float(curve.at(4, 4096).step_time_s.round(5))  # 16 ms + 4 requests reading 4096 tokens
    0.024
    """

    batch_size: Array
    context_tokens: Array
    step_time_s: Array
    kv_s_per_token: float
    num_experts: float = np.nan
    experts_per_token: float = np.nan

    @classmethod
    def from_points(
        cls,
        batch_size: ArrayLike,
        context_tokens: ArrayLike,
        step_time_s: ArrayLike,
        experts: tuple[float, float] = (np.nan, np.nan),
    ) -> "BatchCurve":
        r"""Build the curve from measured baselines; unknown contexts count as 0.

        .. math:: s = \operatorname{median}\frac{T(B, C) - T(B, C')}{B (C - C')}

        Of several at one batch and context the fastest counts: the others hold time that is not decoding.
        """
        batch = np.asarray(batch_size, dtype=np.float64)
        context = np.nan_to_num(np.asarray(context_tokens, dtype=np.float64))
        time_s = np.asarray(step_time_s, dtype=np.float64)
        for name, values in (("batch_size", batch), ("step_time_s", time_s)):
            if not np.all(values > 0):
                raise ParameterError(name, np.min(values), "positive")
        fastest: dict[tuple[float, float], float] = {}
        for key_batch, key_context, value in zip(batch, context, time_s, strict=True):
            key = (float(key_context), float(key_batch))
            fastest[key] = min(float(value), fastest.get(key, np.inf))
        keys = sorted(fastest)
        contexts = np.array([key[0] for key in keys])
        batches = np.array([key[1] for key in keys])
        times = np.array([fastest[key] for key in keys])
        return cls(
            batch_size=batches,
            context_tokens=contexts,
            step_time_s=times,
            kv_s_per_token=_kv_slope(batches, contexts, times),
            num_experts=experts[0],
            experts_per_token=experts[1],
        )

    @cached_property
    def growth(self) -> Growth:
        """The process over load that these points pin down."""
        experts = self.num_experts, self.experts_per_token
        return Growth(self.batch_size, self.context_tokens, *experts)

    def smooth(self, batch_size: Array, context_tokens: Array) -> Array:
        """Step time at any batch and context, [s]: between measured ones theirs, beyond by the process."""
        read = self.at(batch_size, context_tokens)
        believed = self.growth.step(self.step_time_s, batch_size, context_tokens)
        return np.where(read.octaves_beyond > 0.0, believed, read.step_time_s)

    @property
    def num_batches(self) -> int:
        """Number of different batches that were measured."""
        return int(np.unique(self.batch_size).size)

    def at(self, batch_size: ArrayLike, context_tokens: ArrayLike) -> StepTime:
        """Step time without speculation at any batch and context; NaN is the smallest measured context.

        Beyond the measured batches the last segment's slope continues, held between constant and
        proportional.
        """
        batch, context = np.broadcast_arrays(
            np.asarray(batch_size, dtype=np.float64), np.asarray(context_tokens, dtype=np.float64)
        )
        shape = batch.shape
        batch, context = batch.ravel(), context.ravel()
        known = np.unique(self.context_tokens)
        context = np.where(np.isnan(context), known[0], context)
        times = np.empty((known.size, batch.size))
        beyond, away = np.empty_like(times), np.empty_like(times)
        for row, level in enumerate(known):
            inside = self.context_tokens == level
            times[row], beyond[row], away[row] = _log_log(
                self.batch_size[inside], self.step_time_s[inside], batch
            )
        # Nearest context among those that reach the batch; where none does, the one that comes closest.
        closest = beyond <= beyond.min(axis=0) + 1e-9
        chosen = np.argmin(np.where(closest, np.abs(context - known[:, None]), np.inf), axis=0)
        columns = np.arange(batch.size)
        moved_s = self.kv_s_per_token * batch * (context - known[chosen])
        time_s = np.maximum(times[chosen, columns] + moved_s, 0.5 * times[chosen, columns])
        kv_s = np.minimum(self.kv_s_per_token * batch * context, 0.95 * time_s)
        return StepTime(
            step_time_s=time_s.reshape(shape),
            octaves_away=away[chosen, columns].reshape(shape),
            octaves_beyond=beyond[chosen, columns].reshape(shape),
            moved_share=(np.abs(moved_s) / time_s).reshape(shape),
            kv_time_s=kv_s.reshape(shape),
        )


def _log_log(knots: Array, times: Array, batch: Array) -> tuple[Array, Array, Array]:
    """Piecewise linear in log-log, last slopes continued; octaves beyond and away from knots."""
    log_knots, log_times, log_batch = np.log2(knots), np.log2(times), np.log2(batch)
    value = np.interp(log_batch, log_knots, log_times)
    above = np.maximum(log_batch - log_knots[-1], 0.0)
    below = np.maximum(log_knots[0] - log_batch, 0.0)
    if knots.size > 1:
        slopes = np.clip(np.diff(log_times) / np.diff(log_knots), 0.0, 1.0)
        value = value + slopes[-1] * above - slopes[0] * below
    right = np.clip(np.searchsorted(log_knots, log_batch), 0, knots.size - 1)
    nearest = np.minimum(
        np.abs(log_batch - log_knots[right]),
        np.abs(log_batch - log_knots[np.maximum(right - 1, 0)]),
    )
    return 2.0**value, above + below, nearest


def _kv_slope(batch: Array, context: Array, time_s: Array) -> float:
    """Median time to read one token of KV, over pairs of contexts measured at one batch."""
    slopes = []
    for level in np.unique(batch):
        inside = batch == level
        if inside.sum() > 1:
            contexts, times = context[inside], time_s[inside]
            slopes.extend((np.diff(times) / (level * np.diff(contexts))).tolist())
            slopes.append((times[-1] - times[0]) / (level * (contexts[-1] - contexts[0])))
    return max(float(np.median(slopes)), 0.0) if slopes else 0.0
