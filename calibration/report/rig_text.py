"""A rig as text: what a round is made of and why, and what changes of it would do."""

import math
from typing import Final

from calibration.report.prediction_text import PART_NAMES
from calibration.rig.explain import FACTOR_WORDS, Agreement, Explanation, FactorEstimate
from calibration.rig.pricing import ScenarioPrice
from calibration.rig.scenario import Scenario
from calibration.rig.whatif import Row, WhatIf
from specmodel.architecture import MemoryFit
from specmodel.constants import PRIOR_DOMINATED
from specmodel.question import Configuration
from specmodel.text_layout import (
    fits,
    interval,
    labelled,
    long_table,
    number,
    percent,
    spread,
    table,
    wrapped,
)
from specmodel.units import MILLI

_KERNELS: Final = {"nccl": ", NCCL", "engine": ", the engine's own all-reduce"}


def rig_words(scenario: Scenario) -> str:
    """Return a rig on one line: model, weights, GPUs and link."""
    link = "" if scenario.tp_size == 1 else f" over {scenario.interconnect or 'the measured link'}"
    kernel = _KERNELS.get(scenario.kernel, "") if scenario.tp_size > 1 else ""
    measured = ", all-reduce measured" if scenario.curve is not None else ""
    formats = scenario.dtype or "weights as released"
    return (
        f"{scenario.model.name} ({formats}) on {scenario.tp_size} x {scenario.gpu}{link}{kernel}"
        f"{measured}"
    )


def round_words(scenario: Scenario) -> str:
    """Return how a round drafts: its depth, and what is not that of a chain."""
    chain = scenario.num_draft_tokens in {None, scenario.depth + 1}
    tree = "" if scenario.topk == 1 else f", topk {scenario.topk}"
    rows = "" if chain and not tree else f", {scenario.num_draft_tokens} verified"
    return f"depth {scenario.depth}{tree}{rows}"


def memory_words(memory: MemoryFit, *, besides: str = "") -> str:
    """Return what a rig needs and has; of one that was measured, it fits whatever is computed."""
    if memory.fits:
        return memory.sentence + besides
    return (
        f"{memory.sentence}. But such a load was measured, so it needs less than is computed here: is "
        "the KV cache in fp8 (--kv-dtype), or is more of the memory used?"
    )


def short_words(configuration: Configuration) -> str:
    """Return a configuration with short words.

    Examples
    --------
    >>> short_words(Configuration(num_steps=3, topk=4, num_draft_tokens=16, context_tokens=1024))
    'depth 3, topk 4, 16 tokens, ctx 1024'
    >>> short_words(Configuration())
    'unstated depth'
    """
    text = str(configuration)
    for long, short in (("draft tokens", "tokens"), ("context", "ctx"), ("depth not stated", "-")):
        text = text.replace(long, short)
    return "unstated depth" if text == "-" else text


SMALL = 0.01
"""Part of a base step below which what the form does not explain is left out. [-]"""

MOVED = 0.25
"""Part of the prior's 90 % interval, one way, from which a median is no longer called the prior's. [-]"""

LONGEST_CONFIGURATION = 26
"""Configuration that stands beside its numbers where the table would be too wide. [characters]"""

MOST_CONFIGURATIONS = 12
"""Lines of the table of both forms; the JSON has all."""


def explain_text(found: Explanation) -> str:
    """Return the physical form of a fit as text."""
    blocks = [_rig(found), _causes(found), _factors(found), _agreement(found.agreement)]
    return "\n\n".join(block for block in blocks if block)


def _rig(found: Explanation) -> str:
    """The rig and what it was expected to take."""
    step = found.price.step_s.scaled(1 / MILLI)
    before = found.prior.step_s.scaled(1 / MILLI)
    lines = [
        labelled("rig", rig_words(found.scenario)),
        labelled("memory", memory_words(found.price.memory)),
    ]
    lines += [labelled("assumed" if one is found.assumed[0] else "", one) for one in found.assumed]
    lines.append(
        labelled(
            "base step",
            f"{number(step.median)} ms (90 %: {interval(step)}); from names alone "
            f"{spread(before, joint=' to ')}",
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
            f"{spread(found.prior.round_cost, joint=' to ')}",
        )
    )
    return "\n".join(lines)


def _causes(found: Explanation) -> str:
    """What speculation adds, largest first."""
    step_s, at = found.price.step_s.median, found.price.scenario
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
        for name, before_s, round_s in (*parts, ("together", step_s, found.price.round_s.median))
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
            interval(one.value, joint="-"),
            interval(one.prior, joint="-"),
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
            spread(one.relative),
            spread(one.physical),
        ]
        for one in rows[:MOST_CONFIGURATIONS]
    ]
    text = table(cells, align="lrll")
    if not fits(text):
        text = long_table(cells, align="lrll", longest=LONGEST_CONFIGURATION)
    if len(rows) > MOST_CONFIGURATIONS:
        text += f"\nand {len(rows) - MOST_CONFIGURATIONS} more configurations (--json has all)"
    return text


PRIOR_NOTE = (
    "A physical prior: from datasheets and public measurements, not fitted to your points yet."
)
"""Said in every report."""

FITTED_NOTE = "Fitted to {} measured times of this rig; `specmodel fit --explain` shows how well."
"""Said instead where the rig was measured."""

FIXED_NOTE = (
    "The accept length is held fixed; a deeper draft would accept more, a shallower one less. "
    "Intervals are 90 %; 'x base' is the speed-up over that of the base, in which what both share "
    "cancels."
)
"""Said in every report."""

SHARED_NOTES = (
    "That a changed rig shares half of what the form misses with its base is a judgement.",
    (
        "What the form misses on the measured rig is carried to a changed one; how much wider that makes "
        "an interval is a judgement."
    ),
)
"""Said of a rig from names, and of a measured one."""

_LONGEST_LABEL = 22


def what_if_text(found: WhatIf, head: str = "") -> str:
    """Return a base and its changes as text for a terminal."""
    base = found.base
    pieces = [
        head,
        "\n".join(_summary(base, found.draft)),
        "\n".join(wrapped(each, first="Warning: ", indent=9) for each in found.warnings),
        _parts(base),
        _changes(found.all_rows),
        _refused(found.all_rows),
        _elasticities(found),
        wrapped(f"{FIXED_NOTE} {SHARED_NOTES[found.num_points > 0]}"),
        wrapped(FITTED_NOTE.format(found.num_points) if found.num_points else PRIOR_NOTE),
    ]
    return "\n\n".join(piece for piece in pieces if piece)


def _summary(base: ScenarioPrice, draft: str) -> list[str]:
    """The base in labelled lines."""
    scenario = base.scenario
    load = (
        f"{round_words(scenario)}, batch {scenario.batch_size:g}, "
        f"context {scenario.context_tokens:g} tokens, accept length {scenario.accept_length:g}"
    )
    return [
        wrapped(f"Base: {rig_words(scenario)}", indent=6),
        labelled("draft model", f"{draft}, bf16 (assumed)"),
        labelled("load", load),
        labelled("base step", spread(base.step_s.scaled(1 / MILLI), unit=" ms", joint=" to ")),
        labelled("round", spread(base.round_s.scaled(1 / MILLI), unit=" ms", joint=" to ")),
        labelled("round cost", spread(base.round_cost, unit=" base steps", joint=" to ")),
        labelled("speed-up", spread(base.speedup, unit="x", joint=" to ")),
        labelled("output", spread(base.output_tokens_per_s, 1, unit=" tokens/s", joint=" to ")),
        labelled("memory", memory_words(base.memory, besides="; a draft model needs some besides")),
    ]


def _parts(base: ScenarioPrice) -> str:
    """Where the round goes."""
    total = base.round_s.median
    rows = [["where the round goes", "ms", "share"]]
    rows += [
        [PART_NAMES.get(term, term), number(part / MILLI), percent(part / total)]
        for term, part in base.parts_s.items()
        if part > 0
    ]
    return table(rows, align="lrr")


def _changes(rows: tuple[Row, ...]) -> str:
    """Changes with a price."""
    cells = [["change", "step ms", "round ms", "speed-up", "tokens/s", "x base"]]
    for row in rows:
        if row.priced is None or row.ratio is None:
            continue
        priced, ratio = row.priced, row.ratio
        cells.append(
            [
                row.label,
                number(priced.step_s.median / MILLI),
                number(priced.round_s.median / MILLI),
                number(priced.speedup.median),
                number(priced.output_tokens_per_s.median, 0),
                spread(ratio),
            ]
        )
    return "" if len(cells) == 1 else long_table(cells, align="lrrrrr", longest=_LONGEST_LABEL)


def _elasticities(found: WhatIf) -> str:
    """What can be made faster, by what it gives."""
    if not found.elasticities:
        return ""
    rows = [["10 % faster", "speed-up", "tokens/s"]]
    rows += [
        [one.label, f"{10 * one.speedup:+.1f} %", f"{10 * one.output:+.1f} %"]
        for one in found.elasticities
    ]
    return table(rows, align="lrr")


def _refused(rows: tuple[Row, ...]) -> str:
    """Changes without a price, and why."""
    return "\n".join(
        wrapped(f"{row.label}: {row.reason}", first="not priced: ", indent=12)
        for row in rows
        if row.priced is None
    )
