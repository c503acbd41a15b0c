"""Whether a measured draft step is faster than the same step in torch with library products."""

from typing import Final, NamedTuple, final

from specmodel.measurement.draft_record import DraftRecord
from specmodel.measurement.timings import StepTiming
from specmodel.units import PERCENT

LEAST_SPREAD: Final = PERCENT
"""Two runs may agree more closely than this by chance; no difference below it is claimed. A judgement. [-]"""

FASTER: Final = "faster"
"""Verdict of a step that takes less time than the baseline, by more than the spreads."""

SLOWER: Final = "slower"
"""Verdict of a step that takes more time than the baseline, by more than the spreads."""

NOT_SEPARABLE: Final = "not separable"
"""Verdict where the difference is within the spreads."""


@final
class Comparison(NamedTuple):
    """A step beside its baseline at one load.

    Parameters
    ----------
    row : StepTiming
        The measurement, with a baseline.
    ratio : float
        Time of the baseline over that of the step; above 1 the step is faster, [-].
    low, high : float
        The ratio less and plus what identical runs differ by, [-].

    Examples
    --------
    >>> row = StepTiming(batch_size=1, context_tokens=2048, topk=1, time_s=2e-4, floor_s=1.6e-4,
    ...                  baseline_s=2.1e-4, baseline_spread=0.02, spread=0.01, num_samples=40)
    >>> found = compared(row)
    >>> round(found.low, 3), round(found.ratio, 3), round(found.high, 3), found.verdict
    (1.019, 1.05, 1.082, 'faster')
    """

    row: StepTiming
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``not separable``."""
        if self.low > 1.0:
            return FASTER
        return SLOWER if self.high < 1.0 else NOT_SEPARABLE


def compared(row: StepTiming) -> Comparison | None:
    r"""A step against its baseline.

    .. math:: r = \frac{t_b}{t}, \qquad \frac{r}{1 + s} \text{ to } r\,(1 + s), \qquad
        s = \max(s_t + s_b,\; 0.01)

    Parameters
    ----------
    row : StepTiming
        With :math:`t, s_t`, and :math:`t_b, s_b` of the baseline.

    Returns
    -------
    Comparison or None
        None without a baseline.

    Notes
    -----
    The spreads, which are differences of two identical runs, are added: both may err the same way. It is
    no confidence interval; two runs give none. drafter.md 22: a spread is below the difference claimed.

    Examples
    --------
    >>> from specmodel.measurement.example import example_record
    >>> compared(example_record().steps[0]).verdict
    'faster'
    """
    if row.baseline_s is None or row.baseline_spread is None:
        return None
    ratio = row.baseline_s / row.time_s
    apart = 1.0 + max(row.spread + row.baseline_spread, LEAST_SPREAD)
    return Comparison(row, ratio, ratio / apart, ratio * apart)


def comparisons(record: DraftRecord) -> tuple[Comparison, ...]:
    r"""Every step of a record that has a baseline.

    .. math:: \{r_i\}

    Parameters
    ----------
    record : DraftRecord
        The record.

    Returns
    -------
    tuple of Comparison
        In the order of the record.

    Examples
    --------
    >>> from specmodel.measurement.example import example_record
    >>> [round(each.ratio, 2) for each in comparisons(example_record())]
    [1.15, 1.0]
    """
    found = (compared(row) for row in record.steps)
    return tuple(each for each in found if each is not None)
