"""How much longer a step takes for B·n requests than for B: a process that measured baselines pin down.

The logarithm of a baseline's step time over load is a line in a few features plus two smooth parts, one over
less than an octave of batch and one over several. The constants are those under which the packaged baselines
are most likely (`scripts/learn_effects.py`), rounded; without a baseline they are what is believed.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from specmodel.cost.relative import RoundTerms

Array = NDArray[np.float64]

CONTEXT_ORIGIN_TOKENS: Final = 4096.0
"""Context from which a doubling counts as an octave; shorter ones are nearly the same load. [tokens]"""

SAME_CONTEXT_OCTAVES: Final = 0.25
"""Contexts this close are one load: 845 and 846 tokens, not 4k and 8k. A judgement. [-]"""

KV_ORIGIN_TOKENS: Final = 65536.0
"""Tokens of KV cache in a step from which a doubling counts as an octave. [tokens]"""

PRIOR_BATCH: Final = 8.0
"""Largest batch of most systems that taught the constants without a batch curve. [requests]"""

EXPERT_RATIO: Final = 0.03
"""Time to read one token's experts per time of the rest of a step, where the feature stands on it. [-]"""

FEATURES: Final[Mapping[str, tuple[float, float]]] = {
    "experts": (0.8, 0.4),
    "octaves of batch": (0.07, 0.09),
    "their square / 6": (0.12, 0.08),
    "octaves of context / 3": (0.1, 0.08),
    "octaves of KV": (0.05, 0.07),
}
"""Mean and standard deviation, over systems, of what each feature adds to the logarithm of a step."""

_MEAN, _SD = np.array([*FEATURES.values()]).T
_TYPICAL_EXPERTS, _TYPICAL_SHARE = (128.0, 8.0), 0.7  # where it is not known whether there are any
_SHORT_SD, _SHORT_OCTAVES = 0.06, 0.4
_LONG_SD, _LONG_OCTAVES = 0.25, 4.0
_CONTEXT_OCTAVES, _ANY_CONTEXT = 1.9, 0.9
_READING_SD = 0.001  # of a baseline
_KV_ROWS = 0.75  # of the verified rows that are taken to read the KV cache


def context_octaves(context_tokens: ArrayLike) -> Array:
    """Octaves of context; one that is not stated has none."""
    context = np.nan_to_num(np.asarray(context_tokens, dtype=np.float64))
    return np.asarray(np.log2(1.0 + context / CONTEXT_ORIGIN_TOKENS))


def expert_feature(batch: Array, num_experts: float, experts_per_token: float) -> Array:
    """Logarithm of what reading experts makes of a step, less that of one request (theory.md B3)."""
    if num_experts == 0:
        return np.zeros_like(batch)
    known = num_experts > 0 and experts_per_token > 0
    experts, per_token = (num_experts, experts_per_token) if known else _TYPICAL_EXPERTS
    missed = np.log1p(-min(per_token / experts, 1.0 - 1e-15))
    loads = experts / per_token * -np.expm1(batch * missed)
    work = np.log1p(EXPERT_RATIO * loads) - np.log1p(EXPERT_RATIO)
    return np.asarray(work if known else _TYPICAL_SHARE * work)


def _features(experts: Array, octaves: Array, context: Array, kv_tokens: Array) -> Array:
    """What the logarithm of a step is a line in, in the order of `FEATURES`."""
    read = np.log2(1.0 + kv_tokens / KV_ORIGIN_TOKENS)
    return np.stack([experts, octaves, octaves**2 / 6.0, context / 3.0, read], axis=1)


def _smooth(batch: Array, context: Array, other_batch: Array, other_context: Array) -> Array:
    """Covariance of the smooth parts between loads, in octaves."""
    apart = batch[:, None] - other_batch
    near = np.exp(-0.5 * ((context[:, None] - other_context) / _CONTEXT_OCTAVES) ** 2)
    over_batches = _SHORT_SD**2 * np.exp(-0.5 * (apart / _SHORT_OCTAVES) ** 2)
    over_batches += _LONG_SD**2 * np.exp(-0.5 * (apart / _LONG_OCTAVES) ** 2)
    return np.asarray((_ANY_CONTEXT + (1.0 - _ANY_CONTEXT) * near) * over_batches)


class Growth:
    """The process, conditioned on the baselines of one system."""

    def __init__(
        self, batch_size: Array, context_tokens: Array, num_experts: float, experts_per_token: float
    ) -> None:
        self._experts = num_experts, experts_per_token
        self._batch, self._context = np.log2(batch_size), context_octaves(context_tokens)
        self._points = self._at(batch_size, context_tokens)

    def _at(self, batch: Array, context_tokens: Array) -> Array:
        """Features of baselines."""
        return _features(
            expert_feature(batch, *self._experts),
            np.log2(batch),
            context_octaves(context_tokens),
            batch * np.nan_to_num(context_tokens),
        )

    @cached_property
    def _precision(self) -> Array:
        """Inverse covariance of the baselines, the level of their logarithm nearly free."""
        found = 1.0 + _smooth(self._batch, self._context, self._batch, self._context)
        found += (self._points * _SD**2) @ self._points.T
        return np.asarray(np.linalg.inv(found + _READING_SD**2 * np.eye(self._batch.size)))

    def step(self, time_s: Array, batch: Array, context_tokens: Array) -> Array:
        """Step time at other loads, given that of the baselines, [s]."""
        there = self._at(batch, context_tokens)
        across = 1.0 + _smooth(
            np.log2(batch), context_octaves(context_tokens), self._batch, self._context
        )
        across += (there * _SD**2) @ self._points.T
        away = np.log(time_s) - self._points @ _MEAN
        level = float(away.mean())
        return np.asarray(
            np.exp(there @ _MEAN + level + across @ (self._precision @ (away - level)))
        )

    def covariance(self, one: "RoundTerms", two: "RoundTerms") -> Array:
        """Covariance of the logarithm of the growth between two sets of rounds.

        Without baselines the constants of a system hold the growth up to `PRIOR_BATCH`, so that it is what
        larger batches add to that.
        """
        lone = not self._batch.size
        (parts_one, first), (parts_two, second) = (_parts(each, lone=lone) for each in (one, two))
        found = (first * _SD**2) @ second.T
        for sign, at_one in parts_one:
            for other, at_two in parts_two:
                found += sign * other * _smooth(at_one, one.context, at_two, two.context)
        if not lone:
            found -= self._across(one, first) @ self._precision @ self._across(two, second).T
        return np.asarray(found)

    def _across(self, rounds: "RoundTerms", features: Array) -> Array:
        """Covariance of the logarithm of the growth with the baselines."""
        verified, once = (
            _smooth(batch, rounds.context, self._batch, self._context)
            for batch in (rounds.log_rows, rounds.log_batch)
        )
        return np.asarray(verified - once + (features * _SD**2) @ self._points.T)


def _parts(rounds: "RoundTerms", *, lone: bool) -> tuple[list[tuple[float, Array]], Array]:
    """Octaves of batch that a growth is the difference of, each with its sign, and its features."""
    signs = [(1.0, rounds.log_rows), (-1.0, rounds.log_batch)]
    if lone:
        held = np.minimum(rounds.log_batch, np.log2(PRIOR_BATCH))
        signs += [(-1.0, rounds.log_rows - rounds.log_batch + held), (1.0, held)]
    context_tokens = CONTEXT_ORIGIN_TOKENS * (2.0**rounds.context - 1.0)
    found = np.zeros((len(rounds), len(FEATURES)))
    for at, (sign, octaves) in enumerate(signs):
        requests = 2.0**octaves
        if at % 2 == 0:  # of the verified rows a part reads the KV cache
            batch = 2.0 ** signs[at + 1][1]
            requests = batch + _KV_ROWS * (requests - batch)
        none = np.zeros_like(octaves)
        found += sign * _features(none, octaves, rounds.context, requests * context_tokens)
    found[:, 0] = rounds.expert_growth
    return signs, found


NO_BASELINES: Final = Growth(np.empty(0), np.empty(0), 0.0, 0.0)
"""What is believed of a system without a batch curve."""
