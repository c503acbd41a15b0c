"""A fit as plain text: constants, break-even, residuals, what is open, what to measure next."""

from collections.abc import Sequence
from dataclasses import replace

from calibration.fit.summary import ConfigurationCost, FitSummary
from calibration.report.rig_text import explain_text, rig_words, short_words
from specmodel.constants import CONSTANTS, ConstantEstimate
from specmodel.text_layout import (
    fits,
    interval,
    labelled,
    listed,
    long_table,
    number,
    percent,
    plural,
    spread,
    table,
    wrapped,
)
from specmodel.units import MILLI

MOST_CONFIGURATIONS = 16
"""Lines of the break-even table; the JSON has all."""

LONGEST_CONFIGURATION = 34
"""Configuration that stands beside its numbers where the table would be too wide. [characters]"""

MOST_DROPPED = 5
"""LeftOut rows that are listed; the JSON has all."""

SAME_COST = 0.005
"""Relative difference up to which a round cost with and without prefill is one. [-]"""

SAME_RANGE = 0.02
"""Relative spread of round costs up to which one number stands for them. [-]"""

ASSUMED_OVERHEAD = 0.15
"""An overhead of drafting as papers assume it, to set against the measured one. [-]"""

_LOAD = {"batch_size": "batch", "context_tokens": "context"}
_PLAIN = {
    "fixed_cost": "verification and host, any depth",
    "step_cost": "each draft step, with its token",
    "tree_cost": "drafting a tree, not a chain",
    "expert_ratio": "one token's experts / other work",
    "non_decode_share": "time that is not decoding",
    "baseline_share": "slower baselines: not decoding",
    "batch_growth_share": "batch curve: paid by verifying",
    "draft_time_exponent": "draft time: 1 fixed, 0 grows",
    "kv_row_share": "KV reads: 0 once, 1 per row",
}


def fit_text(summary: FitSummary, path: str, *, explained: bool = False) -> str:
    """Return a fit as text; its warnings are printed apart."""
    known = summary.calibration.baseline_known
    blocks = [
        _read(summary),
        listed("does not fit", summary.calibration.doubts),
        _break_even(summary.costs) if known else _rounds(summary.costs),
        _constants(summary) if known else "",
        _residuals(summary),
        _open(summary),
        _diagnosis(summary),
        listed("look at", summary.remarks),
        listed("measure next", _numbered(summary.next_measurements)),
        explain_text(summary.explanation) if explained and summary.explanation else _rig(summary),
        labelled("written", f"{path}; ask it with `specmodel predict --accept ...`"),
    ]
    return "\n\n".join(block for block in blocks if block)


def _read(summary: FitSummary) -> str:
    """What was read, dropped and used, of which system, on which prior."""
    points, calibration = summary.points, summary.calibration
    files = ", ".join(path.name for path in points.files)
    num_dropped = sum(row.count for row in points.dropped)
    counts = f"{files}: {plural(summary.num_read, 'row')} read, {num_dropped} dropped"
    if any(row.count > 1 for row in points.dropped):  # lines of a log, pooled into rows
        counts = f"{files}: {plural(len(points), 'row')}, {plural(num_dropped, 'line')} left out"
    if summary.num_other:
        counts += f", {summary.num_other} of other systems"
    counts += f", {calibration.num_points} fitted"
    lines = [labelled("read", counts)]
    lines += [
        labelled("", f"dropped {row.path.name}, {row.within_file}")
        for row in points.dropped[:MOST_DROPPED]
    ]
    if len(points.dropped) > MOST_DROPPED:
        lines.append(labelled("", f"dropped {len(points.dropped) - MOST_DROPPED} more"))
    learned = plural(len(calibration.prior.learned_from), "public system")
    prior = labelled("prior", f"{calibration.prior.name}; learned from {learned}")
    return "\n".join([*lines, labelled("system", calibration.label), prior])


def _break_even(costs: Sequence[ConfigurationCost]) -> str:
    """What a round costs, by hand and by the posterior: the break-even accept length."""
    shown = [one.observation.configuration for one in costs]
    load = [name for name in _LOAD if len({getattr(one, name) for one in shown}) == 1]
    rows = [["break-even", "rows", "accept", "by hand", "posterior (90 %)", "accepted"]]
    for one in costs[:MOST_CONFIGURATIONS]:
        observation = one.observation
        needed = one.posterior and one.posterior.break_even_accept_length
        low, high = observation.accept_length
        depth = observation.configuration.num_steps
        accept = (low + high) / 2.0
        label = replace(observation.configuration, **dict.fromkeys(load))
        rows.append(
            [
                short_words(label),
                str(observation.num_points),
                number(low) if low == high else f"{low:.2f}-{high:.2f}",
                _range(observation.round_cost),
                spread(needed) if needed else "impossible",
                percent((accept - 1.0) / depth) if depth else "-",
            ]
        )
    if not fits(table(rows, align="lrlrlr")):
        rows = [row[:-1] for row in rows]
    align = "lrlrlr"[: len(rows[0])]
    text = table(rows, align=align)
    lines = [text if fits(text) else long_table(rows, align=align, longest=LONGEST_CONFIGURATION)]
    if len(costs) > MOST_CONFIGURATIONS:
        lines.append(f"and {len(costs) - MOST_CONFIGURATIONS} more configurations (--json has all)")
    common = [
        f"{_LOAD[name]} {getattr(shown[0], name):g}" for name in load if getattr(shown[0], name)
    ]
    if common:
        lines.append(f"All at {', '.join(common)}.")
    first = costs[0].observation
    cost = first.accept_length_at * first.baseline_tokens_per_s / first.output_tokens_per_s
    said = (
        "Break-even is the round cost in baseline steps. By hand: accept x baseline / throughput = "
    )
    said += f"{first.accept_length_at:g} x {first.baseline_tokens_per_s:g} / "
    said += f"{first.output_tokens_per_s:g} = {cost:.4f}. "
    decoding = ""
    if abs(first.decode_round_cost / first.round_cost[1] - 1.0) > SAME_COST:
        decoding = f"Decoding alone, by TTFT and output length: {first.decode_round_cost:.4f}. "
        cost = first.decode_round_cost
    said += f"{decoding}{_overhead(cost)}"
    return "\n".join([*lines, wrapped(said)])


def _rounds(costs: Sequence[ConfigurationCost]) -> str:
    """What a round takes where no baseline is known, and what it gives at the accept lengths measured."""
    rows = [["rounds", "rows", "accept", "ms a round", "tokens/s (90 %)"]]
    for one in costs[:MOST_CONFIGURATIONS]:
        low, high = one.observation.accept_length
        found = one.posterior
        times = [part.time_s for part in found.breakdown if part.time_s] if found else []
        rate = found and found.output_tokens_per_s
        rows.append(
            [
                short_words(one.observation.configuration),
                str(one.observation.num_points),
                number(low) if low == high else f"{low:.2f}-{high:.2f}",
                number(sum(times) / MILLI),
                spread(rate, 1) if rate else "-",
            ]
        )
    said = (
        "No baseline: speculation pays where the same load without it is slower than these tokens/s. Speed-up "
        "and break-even wait for a run at num_steps 0, or for `specmodel predict --baseline`; "
        "`specmodel predict --depth 1:8` says which depth is best."
    )
    return "\n".join(
        [long_table(rows, align="lrlrr", longest=LONGEST_CONFIGURATION), wrapped(said)]
    )


def _range(round_cost: tuple[float, float, float]) -> str:
    """Round costs of one configuration: one number where they agree, else their range."""
    low, middle, high = round_cost
    return number(middle) if high - low < SAME_RANGE * middle else f"{number(low)}-{number(high)}"


def _overhead(cost: float) -> str:
    """The measured overhead against an assumed one."""
    assumed = 1.0 + ASSUMED_OVERHEAD
    if cost <= assumed:
        return ""
    return (
        f"An assumed overhead of {percent(ASSUMED_OVERHEAD)} would be {assumed:g}: the measured "
        f"overhead, {cost - 1.0:.3g}, is {(cost - 1.0) / ASSUMED_OVERHEAD:.1f} times that."
    )


def _constants(summary: FitSummary) -> str:
    """Constants in play, and those that are not."""
    summed = {name for one in summary.untold if one.summed for name in one.constants}
    rows = [["constant", "", "median", "90 %", "prior", "learned"]]
    for constant, estimate in zip(CONSTANTS, summary.calibration.constants, strict=True):
        if constant.name not in summary.in_play:
            continue
        rows.append(
            [
                constant.symbol,
                _PLAIN[constant.name],
                _constant(estimate.value),
                f"{_constant(estimate.low)}-{_constant(estimate.high)}",
                _constant(estimate.prior_value),
                _learned(estimate, summed=constant.name in summed),
            ]
        )
    lines = [table(rows, align="llrlrr")]
    idle = [one for one in CONSTANTS if one.name not in summary.in_play]
    if idle:
        names = ", ".join(f"{one.symbol} ({one.name})" for one in idle)
        lines.append(wrapped(f"Not in play at these points, so not learned: {names}."))
    return "\n".join(lines)


def _constant(value: float) -> str:
    """A constant; one of 10 or more has no thousandths to show."""
    return number(value, 3 if abs(value) < 10.0 else 1)


def _learned(estimate: ConstantEstimate, *, summed: bool) -> str:
    """How much the points taught."""
    prior = "prior" if estimate.prior_dominated else percent(estimate.learned)
    return "sum only" if summed else prior


def _residuals(summary: FitSummary) -> str:
    """How far the rows are from the fit."""
    found = summary.residuals
    if len(summary.rows.rows) < 2:
        return ""
    return labelled(
        "residuals",
        f"{percent(found.rms, 1)} rms of the speed-up; largest {100 * found.worst:+.1f} % "
        f"({found.worst_place}). `specmodel evaluate` says how wrong it is on points it has not seen.",
    )


def _open(summary: FitSummary) -> str:
    """What the points cannot tell."""
    lines = []
    estimates = {one.name: one for one in summary.calibration.constants}
    symbols = {one.name: one.symbol for one in CONSTANTS}
    for one in summary.untold:
        text = "c0 and c1 apart: of the line c0 + c1 x depth one point is known, not its slope"
        if not one.summed:
            name, found = one.constants[0], estimates[one.constants[0]]
            text = f"{symbols[name]}, {_PLAIN[name]}: still the prior, {found.value:.2g} "
            text += f"({found.low:.2g} to {found.high:.2g})"
        lines.append(f"{text}. Needs {one.needs}.")
    return listed("cannot tell", lines)


def _diagnosis(summary: FitSummary) -> str:
    """Why rounds may be so expensive."""
    found = summary.diagnosis
    if found is None:
        return ""
    one = found.observation
    text = (
        f"{short_words(one.configuration)}: a round of {one.decode_round_cost:.2f} steps is more "
    )
    text += (
        f"than public systems show ({found.public.median:.2f}, 90 %: {interval(found.public)}). "
    )
    return listed("expensive", [f"{text}Test, in this order:", *_numbered(found.causes)])


def _numbered(lines: Sequence[str]) -> list[str]:
    """Lines with their numbers."""
    return [f"{place}. {line}" for place, line in enumerate(lines, start=1)]


def _rig(summary: FitSummary) -> str:
    """Whether the rig is known, on one line."""
    found = summary.explanation
    if found is None:
        return labelled("rig", f"not priced: {summary.calibration.rig_note}")
    fitted = f"{rig_words(found.scenario)}, fitted to {plural(found.num_loads, 'time')}"
    return labelled("rig", f"{fitted}; --explain says what a round is made of")
