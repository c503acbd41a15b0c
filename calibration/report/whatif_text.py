"""What-if tables as text: the base, where its round goes, and changes by their effect."""

from calibration.report.layout import (
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
from calibration.rig.pricing import ScenarioPrice
from calibration.rig.whatif import Row, WhatIf
from specmodel.question import Estimate
from specmodel.units import MILLI

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


def what_if_text(found: WhatIf) -> str:
    """Return a base and its changes as text for a terminal.

    Parameters
    ----------
    found : WhatIf
        As priced.

    Returns
    -------
    str
        80 columns wide.
    """
    base = found.base
    pieces = [
        "\n".join(_summary(base, found.draft)),
        "\n".join(wrapped(each, first="Warning: ", indent=9) for each in found.warnings),
        _parts(base),
        _changes([*found.rows, *([found.together] if found.together else [])]),
        _refused([*found.rows, *([found.together] if found.together else [])]),
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
        labelled("base step", _with_interval(base.step_s.scaled(1 / MILLI), " ms")),
        labelled("round", _with_interval(base.round_s.scaled(1 / MILLI), " ms")),
        labelled("round cost", _with_interval(base.round_cost, " base steps")),
        labelled("speed-up", _with_interval(base.speedup, "x")),
        labelled("output", _with_interval(base.output_tokens_per_s, " tokens/s", digits=1)),
        labelled("memory", memory_words(base.memory, besides="; a draft model needs some besides")),
    ]


def _with_interval(estimate: Estimate, unit: str, *, digits: int = 2) -> str:
    """A value with its bounds."""
    return f"{number(estimate.median, digits)}{unit} ({interval(estimate, digits)})"


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


def _changes(rows: list[Row]) -> str:
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
                f"{number(ratio.median)} ({number(ratio.low)}-{number(ratio.high)})",
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


def _refused(rows: list[Row]) -> str:
    """Changes without a price, and why."""
    return "\n".join(
        wrapped(f"{row.label}: {row.reason}", first="not priced: ", indent=12)
        for row in rows
        if row.priced is None
    )
