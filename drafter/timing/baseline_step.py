"""What is taken from the timed works of the torch baseline, or why nothing is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from drafter.timing.draft_works import baseline_name
from drafter.timing.refusals import MeasurementRefusedError, check_spread
from drafter.timing.samples import Difference, Samples, difference, step_difference
from drafter.timing.work_source import FLUSH


@final
class BaselineStep(NamedTuple):
    """A step and a whole draft of the baseline.

    Parameters
    ----------
    step, whole : Difference or None
        Both, or neither.
    why_none : str
        Why there is neither, where the baseline was timed; else empty.

    Examples
    --------
    >>> BaselineStep(None, None).why_none
    ''
    """

    step: Difference | None
    whole: Difference | None
    why_none: str = ""


def baseline_step(samples: Mapping[str, Samples], depths: Sequence[int]) -> BaselineStep:
    r"""Step of the baseline from the works of one load, if it can be trusted.

    .. math:: t_b = \frac{T_{k_2} - T_{k_1}}{k_2 - k_1}

    Parameters
    ----------
    samples : mapping of str to Samples
        By name of the work.
    depths : sequence of int
        Depths that may have a baseline, [tokens].

    Returns
    -------
    BaselineStep
        Neither step nor whole draft where the baseline was not timed, noise is larger than its step, or
        it repeats worse than what is refused of a draft.

    Notes
    -----
    A restless baseline does not refuse the draft that was timed beside it; but nothing is claimed against
    it either. drafter.md 20.

    Examples
    --------
    >>> times = {"flush": 1.0, "baseline of 1": 3.0, "baseline of 3": 7.0}
    >>> samples = {name: Samples(first=(each,), second=(each,)) for name, each in times.items()}
    >>> found = baseline_step(samples, (1, 2, 3))
    >>> round(found.step.time_s, 6), found.whole.time_s
    (2.0, 6.0)
    """
    ends = {
        depth: samples[baseline_name(depth)] for depth in depths if baseline_name(depth) in samples
    }
    if not ends:
        return BaselineStep(None, None)
    step, whole = step_difference(ends), difference(ends[max(ends)], samples[FLUSH])
    if not (step.time_s > 0 and whole.time_s > 0):
        return BaselineStep(None, None, "noise is larger than its step")
    try:
        check_spread("baseline", max(step.spread, whole.spread))
        scatter = max(each.scatter for each in ends.values())
        check_spread("baseline", scatter, kind="samples of one work scatter")
    except MeasurementRefusedError as error:
        return BaselineStep(None, None, error.reason)
    return BaselineStep(step, whole)
