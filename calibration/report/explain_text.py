"""The fitted physical form as text: factors, where the time goes, and what the other form says."""

from calibration.physical.explanation import FACTOR_WORDS, Agreement, Explanation
from calibration.report.layout import interval, labelled, number, percent, table, wrapped
from calibration.report.rig_words import PART_NAMES, rig_words
from specmodel.calibrated import PRIOR_DOMINATED
from specmodel.question import Estimate
from specmodel.units import MILLI

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
        labelled("memory", found.memory.sentence),
    ]
    lines += [labelled("assumed" if one is found.assumed[0] else "", one) for one in found.assumed]
    lines.append(
        labelled(
            "base step",
            f"{number(step.median)} ms ({interval(step)}); from names alone "
            f"{number(before.median)} ({interval(before)})",
        )
    )
    if found.scenario.tp_size > 1:
        share = found.allreduce_share
        lines.append(
            labelled(
                "all-reduces",
                f"{percent(share.median)} of the base step ({percent(share.low)} to "
                f"{percent(share.high)})",
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
    step_s = found.step.median
    rows = [["what a round adds to a step", "step ms", "round ms", "added", "in steps"]]
    rows += [
        [
            PART_NAMES.get(one.name, one.name),
            number(one.step_s / MILLI),
            number(one.round_s / MILLI),
            f"{one.added_s / MILLI:+.2f}",
            f"{one.added_s / step_s:+.2f}",
        ]
        for one in found.causes
        if one.round_s > 0 or one.step_s > 0
    ]
    added = sum(one.added_s for one in found.causes)
    rows.append(
        [
            "together",
            number(found.step.median / MILLI),
            number(found.round.median / MILLI),
            f"{added / MILLI:+.2f}",
            f"{added / step_s:+.2f}",
        ]
    )
    at = found.at
    load = f"At depth {at.depth}, batch {at.batch_size:g}, context {at.context_tokens:g} tokens."
    return table(rows, align="lrrrr") + "\n" + load


def _factors(found: Explanation) -> str:
    """Factors with their intervals."""
    rows = [["factor (1: as usual)", "median", "90 %", "prior 90 %", "learned"]]
    rows += [
        [
            FACTOR_WORDS[one.name],
            number(one.value.median),
            f"{number(one.value.low)}-{number(one.value.high)}",
            f"{number(one.prior.low)}-{number(one.prior.high)}",
            "prior" if one.learned < PRIOR_DOMINATED else percent(one.learned),
        ]
        for one in found.factors
    ]
    text = table(rows, align="lrllr")
    if found.idle:
        text += "\n" + wrapped(f"Without effect at these points: {', '.join(found.idle)}.")
    return text


def _agreement(rows: tuple[Agreement, ...]) -> str:
    """Both forms at the measured configurations."""
    if not rows:
        return ""
    cells = [["round cost", "by hand", "relative form", "physical form"]]
    cells += [
        [
            str(one.observation.configuration),
            number(one.observation.round_cost[1]),
            _range(one.relative),
            _range(one.physical),
        ]
        for one in rows[:MOST_CONFIGURATIONS]
    ]
    text = table(cells, align="lrll")
    if len(rows) > MOST_CONFIGURATIONS:
        text += f"\nand {len(rows) - MOST_CONFIGURATIONS} more configurations (--json has all)"
    return text


def _range(estimate: Estimate) -> str:
    """A value with its bounds in a narrow column."""
    return f"{number(estimate.median)} ({number(estimate.low)}-{number(estimate.high)})"
