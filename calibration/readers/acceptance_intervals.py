"""How well counted accuracies are known: binomial intervals from the rounds behind them."""

import math
from collections.abc import Sequence
from typing import TypeAlias

from specmodel.statistics import NORMAL_95

_FEWEST = 1e-6  # trials that are none, and whose square would still be a number

Interval: TypeAlias = tuple[float, float]


def binomial_interval(share: float, num_trials: float) -> Interval:
    r"""Return the central 90 % interval of a share that was counted.

    .. math:: \frac{\hat{s} + z^2/2n \pm z\sqrt{\hat{s}(1-\hat{s})/n + z^2/4n^2}}{1 + z^2/n}

    Parameters
    ----------
    share : float
        :math:`\hat{s}`, successes over trials, in [0, 1], [-].
    num_trials : float
        :math:`n`, above 0; trials that do not depend on one another.

    Returns
    -------
    tuple of (float, float)
        Low and high, in [0, 1]. Without trials nothing is known: (0, 1).

    Notes
    -----
    Wilson's score interval, [wilson1927]_ . Rounds of one request are alike, so the real spread is
    larger where few requests gave many rounds.

    Examples
    --------
    >>> low, high = binomial_interval(0.75, 400)
    >>> round(low, 3), round(high, 3)
    (0.713, 0.784)
    """
    if not num_trials > _FEWEST:
        return 0.0, 1.0
    weight = NORMAL_95**2 / num_trials
    centre = share + weight / 2
    half = NORMAL_95 * math.sqrt(
        max(share * (1 - share), 0.0) / num_trials + (weight / NORMAL_95 / 2) ** 2
    )
    return max((centre - half) / (1 + weight), 0.0), min((centre + half) / (1 + weight), 1.0)


def full_intervals(full_accuracy: Sequence[float], num_rounds: float) -> tuple[Interval, ...]:
    """Return the interval of each full accuracy: every round is a trial.

    Examples
    --------
    >>> [round(high - low, 3) for low, high in full_intervals([0.75, 0.5], 400)]
    [0.071, 0.082]
    """
    return tuple(binomial_interval(share, num_rounds) for share in full_accuracy)


def conditional_intervals(
    full_accuracy: Sequence[float], num_rounds: float
) -> tuple[tuple[float, Interval], ...]:
    """Return conditional accuracies with their intervals: only rounds that got there are trials.

    Examples
    --------
    >>> [(round(value, 3), round(high - low, 3))
    ...  for value, (low, high) in conditional_intervals([0.75, 0.5], 400)]
    [(0.75, 0.071), (0.667, 0.089)]
    """
    found = []
    reached = 1.0
    for share in full_accuracy:
        value = min(share / reached, 1.0) if reached > 0 else 0.0
        found.append((value, binomial_interval(value, reached * num_rounds)))
        reached = share
    return tuple(found)


def accept_length_log_sd(full_accuracy: Sequence[float], num_rounds: float) -> float:
    r"""Return the relative standard deviation of an accept length that was counted.

    .. math:: \frac{1}{\tau}\sqrt{\frac{\sum_i (2i-1) s_i - (\sum_i s_i)^2}{n}}, \qquad
              \tau = 1 + \sum_i s_i

    Parameters
    ----------
    full_accuracy : sequence of float
        :math:`s_i`, share of rounds in which the first i drafts were accepted, [-].
    num_rounds : float
        :math:`n`, above 0.

    Returns
    -------
    float
        Of the natural logarithm, [-]; 0 where nothing was counted.

    Notes
    -----
    The accepted drafts of a round have the tail probabilities :math:`s_i`, so their second moment
    is :math:`\sum_i (2i-1)s_i`.

    Examples
    --------
    >>> round(accept_length_log_sd([0.5], 100), 4)
    0.0333
    """
    if not num_rounds > 0:
        return 0.0
    mean = sum(full_accuracy)
    second = sum((2 * depth - 1) * share for depth, share in enumerate(full_accuracy, start=1))
    return math.sqrt(max(second - mean**2, 0.0) / num_rounds) / (1 + mean)
