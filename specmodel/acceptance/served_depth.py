"""Accept lengths at other depths than the one at which a list of accuracies was served."""

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.accuracy import FullAccuracy
from specmodel.acceptance.bounds import FloatArray, whole
from specmodel.acceptance.other_depth import RUN_NOISE, CarriedAcceptLength, tail_spread
from specmodel.statistics import NORMAL_95

DEPTH_EFFECT = (0.07, 0.075)
"""Exponent of the effect where conditional accuracies do not rise, and more for each unit by which the
logit of the second is above that of the first. By `scripts/learn_acceptance.py` on two workloads of public
traces of an EAGLE head and of an n-gram drafter."""

DEPTH_EFFECT_SPREAD = (0.05, 0.02)
"""Standard deviation of that exponent between drafters, in the same two parts."""

DEEPER_SHARE = 0.5
"""Part of the exponent that is left for deeper rounds: tails were taught by sweeps, too, which hold some of
the effect. With all of it the traces are 2.6 % low and a vLLM sweep is right; with none the traces are
right and the sweep is 2.0 % high."""


def served_at_depths(
    full_accuracy: FullAccuracy, served_depth: int, num_steps: ArrayLike
) -> CarriedAcceptLength:
    r"""Accept lengths of a chain at depths, from a list that was served at one.

    .. math:: \tau(k) - 1 = \Big(\frac{n}{k}\Big)^{\gamma} \sum_{i \le k} S_i^{(n)}

    Deep rounds use up the easy stretches of a text in few rounds, so that a position accepts less the deeper
    rounds are, and a list measured at depth n says too little of a shallower one and too much of a deeper.
    The more conditional accuracies rise, the more the text varies and the stronger it is. Exact at n alone;
    beyond the list `tail_spread` goes on. No shallower depth emits more.

    >>> full = FullAccuracy([0.676, 0.4962, 0.3842])
    >>> found = served_at_depths(full, 3, [1, 3])
    >>> bool(found.low[0] < 1.726 < found.high[0]), float(found.value[1])
    (True, 2.5564)
    """
    depths = np.atleast_1d(whole("num_steps", num_steps))
    every = np.arange(max(int(depths.max(initial=0)), served_depth) + 1)
    spread = tail_spread(full_accuracy, every)
    values = full_accuracy.values
    rise = 0.0
    if values.size > 1:
        first, second = np.clip([values[0], values[1] / max(values[0], 1e-9)], 0.01, 0.99)
        rise = max(float(np.log(second / (1.0 - second) * (1.0 - first) / first)), 0.0)
    (exponent, more), (sd, more_sd) = DEPTH_EFFECT, DEPTH_EFFECT_SPREAD
    away = np.log(served_depth / np.maximum(every, 1))
    deeper = np.where(every > served_depth, DEEPER_SHARE, 1.0)
    factor = np.exp(deeper * (exponent + more * rise) * away)
    log_sd = np.where(every == served_depth, 0.0, np.hypot((sd + more_sd * rise) * away, RUN_NOISE))
    below = every < served_depth
    base = np.maximum(spread.value - 1.0, 1e-9)

    def ordered(accepted: FloatArray) -> FloatArray:
        there = accepted[served_depth]
        ends = np.where(below, np.minimum(accepted, there), np.maximum(accepted, there))
        return np.asarray(np.maximum.accumulate(np.minimum(ends, every))[depths] + 1.0)

    middle, width = base * factor, NORMAL_95 * log_sd
    short = np.hypot(np.log(base / np.maximum(spread.low - 1.0, 1e-9)), width)
    long = np.hypot(np.log(np.maximum(spread.high - 1.0, base) / base), width)
    value = ordered(middle)
    return CarriedAcceptLength(
        value,
        np.minimum(ordered(middle * np.exp(-short)), value),
        np.maximum(ordered(middle * np.exp(long)), value),
        np.hypot(np.where(every > values.size, spread.sd, 0.0), log_sd * middle)[depths],
    )
