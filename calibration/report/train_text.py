"""A training log and what it is worth, on one screen."""

import math

from calibration.training.assessment import Assessment, DepthCourse
from calibration.training.decision import Outlook, TrainingDecision
from calibration.training.family_facts import FORMATS
from calibration.training.records import Split
from specmodel.question import Estimate
from specmodel.text_layout import (
    labelled,
    number,
    plural,
    probability,
    spread,
    table,
    with_interval,
)
from specmodel.units import KILO

_DETAILED = ("identity-violated", "cond0-differs", "conflicting-records")
_ROUTES = {
    "joint": "1 + sum of full accuracies",
    "conditional": "1 + chained conditional ones",
    "marginal": "1 + chained marginal ones",
    "overlap": "1 + chained overlaps (temperature 1)",
    "marginal_product": "1 + chained marginal ones",
    "overlap_product": "1 + chained overlaps (temperature 1)",
}


def train_text(found: Assessment, system: str) -> str:
    """Return an assessment as text; its notes are printed apart."""
    decision = found.decision
    blocks = [_head(found, system), _depths(found), _routes(found)]
    if decision is None:
        blocks.append(labelled("not known", found.undecided))
    else:
        facts = (_break_even(decision), _target(decision), _gain(decision))
        blocks += [
            _worth(decision),
            "\n".join(line for line in facts if line),
            labelled("verdict", decision.verdict),
            _better(found.better),
        ]
    return "\n\n".join(block for block in blocks if block)


def log_notes(found: Assessment) -> list[str]:
    """Return what reading, checking and projecting found, in sentences."""
    said = []
    for warning in found.log.warnings:
        text = FORMATS["said"].get(warning.code, warning.code.replace("-", " "))
        where = f" ({found.log.where(warning.lines[0])})" if warning.lines else ""
        detail = f": {warning.message}" if warning.message and warning.code in _DETAILED else ""
        said.append(f"{text}{detail}{where}")
    decision, why = found.decision, found.why_not_projected
    if decision is not None and why and decision.end is None and why not in decision.verdict:
        said.append(f"nothing is projected: {why}")
    return said + [one.message for one in found.findings]


def _head(found: Assessment, system: str) -> str:
    """Return what was read and what it was set against."""
    log = found.log
    files = ", ".join(path.name for path in log.paths[:4])
    versions = "" if log.versions == "unknown" else f" {log.versions}"
    counted = log.unique_steps
    steps = "no steps" if counted is None else plural(counted, "step")
    if log.last_step is not None:
        steps += f", the last one {log.last_step}"
    if log.total_steps is not None:
        steps += f" of {log.total_steps}"
    source, used, load = found.acceptance.source, "", ""
    if source is not None:
        split = "split unknown" if source.split is Split.UNKNOWN else source.split
        records = plural(source.num_records, "record").removeprefix("1 ")
        used = f"; accuracies of the last {records} ({split})"
    elif (printed := found.acceptance.printed) is not None:
        records = plural(printed.num_records, "record").removeprefix("1 ")
        used = f"; accept length of the last {records}"
    if found.decision is not None:
        load = f"; {found.decision.prediction.question.configuration}"
    read = labelled("log", f"{files}: {log.framework}{versions}, {steps}{used}")
    return f"{read}\n{labelled('system', system + load)}"


def _depths(found: Assessment) -> str:
    """Return the table by depth."""
    if not found.courses:
        return ""
    has_end = any(course.at_end is not None for course in found.courses)
    has_joint = any(course.joint is not None for course in found.courses)
    kind = "conditional" if found.chained_kind is None else str(found.chained_kind)
    heads = ["depth", "loss", *(["full"] if has_joint else []), kind, "trend/1k"]
    rows = [[*heads, *(["at the end (90 %)"] if has_end else [])]]
    for course in found.courses:
        row = [str(course.depth), _or_dash(course.loss, 3)]
        row += [_or_dash(course.joint, 3)] if has_joint else []
        row += [_or_dash(course.chained, 3), _trend(course)]
        rows.append([*row, _at_end(course)] if has_end else row)
    return table(rows, align="r" * len(heads) + ("l" if has_end else ""))


def _trend(course: DepthCourse) -> str:
    """Return the slope with its sign."""
    return "-" if course.trend is None else f"{course.trend:+.4f}"


def _at_end(course: DepthCourse) -> str:
    """Return the accuracy at the end with its interval."""
    if course.at_end is None:
        return "-"
    median, low, high = course.at_end
    return f"{number(median, 3)} ({number(low, 3)}-{number(high, 3)})"


def _routes(found: Assessment) -> str:
    """Return the accept length of the log by each definition that it allows."""
    routes = {} if "depth0-only" in found.log.codes else found.acceptance.acceptance.routes
    parts = [f"{_ROUTES.get(name, name)} {value:.3f}" for name, value in routes.items()]
    return labelled("accept length", "; ".join(parts)) if parts else ""


def _worth(decision: TrainingDecision) -> str:
    """Return what the checkpoint is worth now and at the end."""
    now, end = decision.now, decision.end
    columns: list[tuple[str, Outlook]] = [
        ("now, as logged", now.as_logged),
        ("now, in serving", now.expected),
    ]
    if end is not None:
        columns.append(("end, in serving", end.expected))
    rows = [["", *(title for title, _ in columns)]]
    rows += [
        ["accept length", *(spread(one.accept_length) for _, one in columns)],
        ["speed-up", *(spread(one.speedup) for _, one in columns)],
    ]
    if decision.baseline_tokens_per_s is not None:
        digits = 1 if decision.baseline_tokens_per_s < KILO / 2 else 0
        rates = [
            "-" if one.output_tokens_per_s is None else spread(one.output_tokens_per_s, digits)
            for _, one in columns
        ]
        rows.append(["tokens/s", *rates])
    rows.append(["faster than none", *(probability(one.probability_faster) for _, one in columns)])
    return table(rows, align="l" * len(rows[0]))


def _better(decision: TrainingDecision | None) -> str:
    """Return the verdict at the depth that would be fastest, where it is another one."""
    if decision is None:
        return ""
    return labelled("best depth", f"{decision.num_steps}. {decision.verdict}")


def _break_even(decision: TrainingDecision) -> str:
    """Return the break-even, with the baseline."""
    needed = decision.break_even_accept_length
    text = f"accept length {with_interval(needed)}"
    rate = decision.baseline_tokens_per_s
    return labelled(
        "break-even", text + ("" if rate is None else f"; without drafts {rate:g} tok/s")
    )


def _target(decision: TrainingDecision) -> str:
    """Return what the target needs, and when it is there."""
    needed = decision.accept_length_for_target
    text = f"{decision.target_speedup:g}: "
    if not math.isfinite(needed.median):
        text += "no accept length is enough"
    else:
        logged = decision.logged_accept_length_for_target.median
        text += f"needs accept length {number(needed.median)} in serving"
        text += f", about {number(logged)} in the log" if math.isfinite(logged) else ""
    reached = decision.step_reaching_target
    at_end = decision.probability_of_target
    if reached is not None and at_end is not None:
        text += f"; at the end with probability {probability(at_end)}"
        if reached.median is not None:
            now = decision.now.step
            text += f", by {_bound(reached.median, now)}"
            text += f" ({_bound(reached.low, now)} to {_bound(reached.high, now)})"
    return labelled("target", text)


def _bound(step: float | None, now: int | None) -> str:
    """Return a step, or that it is the present, or not before the end."""
    if step is None:
        return "later"
    return "now" if now is not None and step <= now else f"step {step:.0f}"


def _gain(decision: TrainingDecision) -> str:
    """Return what the rest of the run adds."""
    gain = decision.gain
    if gain is None:
        return ""
    text = f"{_signed(gain.speedup)} speed-up over {gain.remaining_steps:.0f} more steps"
    text += f", {_signed(gain.per_thousand_steps, 4)} in each 1,000"
    if gain.per_hour is not None and gain.remaining_hours is not None:
        text += f"; {_signed(gain.per_hour, 4)} in each of {gain.remaining_hours:.1f} hours"
    return labelled("still to gain", text)


def _signed(estimate: Estimate, digits: int = 2) -> str:
    """Return a difference with its sign and interval."""
    low, high = f"{estimate.low:+.{digits}f}", f"{estimate.high:+.{digits}f}"
    return f"{estimate.median:+.{digits}f} ({low} to {high})"


def _or_dash(value: float | None, digits: int) -> str:
    """Return a number, or a dash where there is none."""
    return "-" if value is None else number(value, digits)
