"""The fitted physical form as text: factors, where the time goes, and what the other form says."""

import math

from calibration.report.configuration_words import short_words
from calibration.report.layout import (
    fits,
    interval,
    labelled,
    long_table,
    number,
    percent,
    table,
    wrapped,
)
from calibration.report.prediction_text import PART_NAMES
from calibration.report.rig_words import memory_words, rig_words, round_words
from calibration.rig.explain import FACTOR_WORDS, Agreement, Explanation, FactorEstimate
from specmodel.calibration import PRIOR_DOMINATED
from specmodel.question import Estimate
from specmodel.units import MILLI

SMALL = 0.01
"""Part of a base step below which what the form does not explain is left out. [-]"""

MOVED = 0.25
"""Part of the prior's 90 % interval, one way, from which a median is no longer called the prior's. [-]"""

LONGEST_CONFIGURATION = 26
"""Configuration that stands beside its numbers where the table would be too wide. [characters]"""

MOST_CONFIGURATIONS = 12
"""Lines of the table of both forms; the JSON has all."""


def explain_text(found: Explanation) -> str:
    """Return the physical form of a fit as text.

    Parameters
    ----------
    found : Explanation
        Of a calibration.

    Returns
    -------
    str
        Lines of at most 80 characters.
    """
    blocks = [_rig(found), _causes(found), _factors(found), _agreement(found.agreement)]
    return "\n\n".join(block for block in blocks if block)


def _rig(found: Explanation) -> str:
    """The rig and what it was expected to take."""
    step = found.step.scaled(1 / MILLI)
    before = found.prior_step.scaled(1 / MILLI)
    lines = [
        labelled("rig", rig_words(found.scenario)),
        labelled("memory", memory_words(found.memory)),
    ]
    lines += [labelled("assumed" if one is found.assumed[0] else "", one) for one in found.assumed]
    lines.append(
        labelled(
            "base step",
            f"{number(step.median)} ms (90 %: {interval(step)}); from names alone "
            f"{number(before.median)} ({interval(before)})",
        )
    )
    if found.scenario.tp_size > 1:
        share, sent = found.allreduce_share, found.collectives
        lines.append(
            labelled(
                "all-reduces",
                f"{percent(share.median)} of the base step ({percent(share.low)} to "
                f"{percent(share.high)}): {sent.layer_all_reduces} over the layers, each of "
                f"{sent.bytes_per_token:,.0f} B a token",
            )
        )
    lines.append(
        labelled(
            "round cost",
            f"{number(found.measured_cost)} measured; from names alone "
            f"{number(found.prior_cost.median)} ({interval(found.prior_cost)})",
        )
    )
    return "\n".join(lines)


def _causes(found: Explanation) -> str:
    """What speculation adds, largest first."""
    step_s, at = found.step.median, found.at
    parts = [
        (PART_NAMES.get(one.name, one.name), one.step_s, one.round_s)
        for one in found.causes
        if one.round_s > 0 or one.step_s > 0
    ]
    if abs(found.unexplained_s) > SMALL * step_s:
        parts.append(("what the form does not explain", 0.0, found.unexplained_s))
    rows = [["what a round adds to a step", "step ms", "round ms", "added ms", "in steps"]]
    rows += [
        _added(name, before_s, round_s, step_s)
        for name, before_s, round_s in (*parts, ("together", step_s, found.round.median))
    ]
    load = (
        f"At {round_words(at)}, batch {at.batch_size:g}, context {at.context_tokens:g} tokens; by the "
        "form that was fitted."
    )
    return table(rows, align="lrrrr") + "\n" + wrapped(load)


def _added(name: str, before_s: float, round_s: float, step_s: float) -> list[str]:
    """One row of what a round adds."""
    added_s = round_s - before_s
    signs = (
        f"{value:+.2f}".replace("-0.00", "+0.00") for value in (added_s / MILLI, added_s / step_s)
    )
    return [name, number(before_s / MILLI), number(round_s / MILLI), *signs]


def _factors(found: Explanation) -> str:
    """Factors with their intervals."""
    rows = [["factor (1: as usual)", "median", "90 %", "prior 90 %", "learned"]]
    rows += [
        [
            FACTOR_WORDS[one.name],
            number(one.value.median),
            f"{number(one.value.low)}-{number(one.value.high)}",
            f"{number(one.prior.low)}-{number(one.prior.high)}",
            _learned(one),
        ]
        for one in found.factors
    ]
    text = table(rows, align="lrllr")
    if found.idle:
        names = ", ".join(FACTOR_WORDS[name].partition(":")[0] for name in found.idle)
        text += "\n" + wrapped(f"Without effect at these points: {names}.")
    return text


def _learned(one: FactorEstimate) -> str:
    """How much the points taught of a factor; one that they moved is not the prior's."""
    moved = abs(math.log(one.value.median / one.prior.median))
    still = moved < MOVED * math.log(one.prior.high / one.prior.median)
    return "prior" if still and one.learned < PRIOR_DOMINATED else percent(one.learned)


def _agreement(rows: tuple[Agreement, ...]) -> str:
    """Both forms at the measured configurations."""
    if not rows:
        return ""
    cells = [["round cost", "by hand", "relative form", "physical form"]]
    cells += [
        [
            short_words(one.observation.configuration),
            number(one.observation.round_cost[1]),
            _range(one.relative),
            _range(one.physical),
        ]
        for one in rows[:MOST_CONFIGURATIONS]
    ]
    text = table(cells, align="lrll")
    if not fits(text):
        text = long_table(cells, align="lrll", longest=LONGEST_CONFIGURATION)
    if len(rows) > MOST_CONFIGURATIONS:
        text += f"\nand {len(rows) - MOST_CONFIGURATIONS} more configurations (--json has all)"
    return text


def _range(estimate: Estimate) -> str:
    """A value with its bounds in a narrow column."""
    return f"{number(estimate.median)} ({number(estimate.low)}-{number(estimate.high)})"
