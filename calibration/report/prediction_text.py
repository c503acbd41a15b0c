"""Predictions as plain text: one screen for one depth, a line per depth for several, a table for a file."""

import csv
import io
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from specmodel.answer import Answer, Claim, DepthAnswer, Identity
from specmodel.prediction import Predictable, Prediction
from specmodel.question import Estimate
from specmodel.text_layout import (
    WIDTH,
    fits,
    interval,
    labelled,
    number,
    percent,
    probability,
    table,
    wrapped,
)
from specmodel.units import MILLI

if TYPE_CHECKING:  # a prediction of one question reads no file
    from calibration.predict.points import PointPrediction, PointPredictions

PART_NAMES: Final[Mapping[str, str]] = {
    "draft memory": "draft: reading weights and cache",
    "draft compute": "draft: computing",
    "draft all-reduce": "draft: all-reduce",
    "draft host": "draft: kernels, launches, host",
    "verify memory": "verify: reading weights and cache",
    "verify compute": "verify: computing",
    "verify all-reduce": "verify: all-reduce",
    "verify host": "verify: kernels and launches",
    "round host": "host between rounds",
}
"""Plain names of the parts of a round."""


def prediction_text(answer: Answer) -> str:
    """Return an answer as text; its notes are printed apart."""
    several = len(answer.depths) > 1
    body = _several(answer) if several else _single(answer, answer.depths[0])
    unstated = [wrapped(one.message) for one in answer.notes if one.code == "unknown_depth"]
    head = calibration_words(answer.calibration, answer.source)
    return "\n".join([head, *unstated, *_changes(answer), "", *body])


def _changes(answer: Answer) -> list[str]:
    """What was changed of the calibrated rig, and what that does."""
    rig = answer.rig
    if rig is None:
        return []
    asked = ", ".join(f"{key}={text}" for key, text in rig.changes)
    lines = [
        "",
        labelled("with", f"{asked}: the physical form, fitted to {rig.num_loads} measured times"),
    ]
    if rig.speedup_ratio is not None and rig.base is not None:
        output = rig.output_ratio
        rate = "" if output is None else f", {number(output)} times its tokens/s"
        lines.append(
            labelled(
                "over the rig",
                f"{number(rig.speedup_ratio.median)} times its speed-up "
                f"(90 %: {interval(rig.speedup_ratio)}){rate}; as it is, the speed-up is "
                f"{number(rig.base.speedup.median)}",
            )
        )
    return lines


def calibration_words(calibration: Predictable, source: str) -> str:
    """Return which calibration is used, of which system, and how old it is."""
    if not calibration.num_points:
        return f"{source}: {calibration.prior.name}"
    points = f"{calibration.num_points} point" + ("" if calibration.num_points == 1 else "s")
    return wrapped(f"{source}: {calibration.label}, {points}{_age(calibration.fitted_at)}")


def _age(fitted_at: str) -> str:
    """How long ago a calibration was fitted; empty where its file does not say."""
    if not fitted_at:
        return ""
    then = datetime.fromisoformat(fitted_at)
    hours = (datetime.now(UTC) - then) // timedelta(hours=1)
    if hours < 48:
        return f", fitted {hours} hours ago" if hours else ", fitted in the last hour"
    return f", fitted on {then:%Y-%m-%d}, {hours // 24} days ago"


def _single(answer: Answer, depth: DepthAnswer) -> list[str]:
    """Everything about one depth."""
    prediction = depth.prediction
    lines = [_configuration(depth)]
    if depth.accept_known:
        logged = depth.as_logged
        numbers = _numbers(prediction) if logged is None else _side_by_side(logged, prediction)
        lines += [_accept_line(answer, depth), "", numbers]
    lines += ["", _break_even(prediction)]
    lines += [_round(prediction)] if answer.rig is None else ["", _rig_round(prediction)]
    lines += _target(answer, depth)
    lines += _claims(answer)
    if answer.identity is not None:
        lines += ["", *_identity(depth, answer.identity, answer.ask.target_speedup)]
    return lines


def _configuration(depth: DepthAnswer) -> str:
    """What was predicted."""
    question = depth.prediction.question
    text = str(question.configuration)
    text = text.replace("depth not stated", "the calibrated depth (not stated)")
    if question.workload:
        text += f", workload {question.workload}"
    return labelled("configuration", text)


def _accept_line(answer: Answer, depth: DepthAnswer) -> str:
    """Accept length, with its interval where it was carried or transferred."""
    shown = depth.as_logged or depth.prediction
    estimate = shown.question.accept_length.estimate
    text = _trimmed(estimate.median)
    if estimate.high > estimate.low:
        text += f" (90 %: {interval(estimate)})"
    if answer.measured_depth is not None and answer.measured_depth != depth.num_steps:
        text += f", carried from depth {answer.measured_depth}"
    if depth.num_steps:
        accepted = estimate.median - 1.0
        text += f"; {accepted:.3g} of {depth.num_steps} drafted tokens accepted"
        text += f" ({percent(accepted / depth.num_steps)})"
    return labelled("accept length", text)


def _trimmed(value: float) -> str:
    """An accept length with the digits it has, at least two."""
    return f"{value:.3f}".removesuffix("0")


def _rows(prediction: Prediction) -> list[tuple[str, Estimate, int, str]]:
    """Name, value, digits and remark of each predicted quantity."""
    rate = prediction.baseline_tokens_per_s
    faster = f"faster than no speculation: {probability(prediction.probability_faster)}"
    rows = [("speed-up", prediction.speedup, 2, faster)]
    if prediction.output_tokens_per_s and rate is not None:
        rows.append(
            ("tokens/s", prediction.output_tokens_per_s, 1, f"without speculation {rate:.4g}")
        )
    batch = prediction.question.configuration.batch_size
    if prediction.per_user_tokens_per_s and batch is not None and batch > 1:
        rows.append(("tokens/s/user", prediction.per_user_tokens_per_s, 1, f"batch {batch:g}"))
    if prediction.tpot_s:
        rows.append(("ms per token", prediction.tpot_s.scaled(1 / MILLI), 2, ""))
    return rows


def _numbers(prediction: Prediction) -> str:
    """Median and interval of what is predicted."""
    rows = [["", "median", "90 % interval", ""]]
    for name, estimate, digits, remark in _rows(prediction):
        row = [name, number(estimate.median, digits), interval(estimate, digits), remark]
        rows.append(row)
    return table([[row[0].ljust(14), *row[1:]] for row in rows], align="lrll")


def _side_by_side(logged: Prediction, served: Prediction) -> str:
    """The same as logged and as expected in serving."""
    before, after = logged.question.accept_length.estimate, served.question.accept_length.estimate
    rows = [
        ["", "as logged", "90 % interval", "expected served", "90 % interval"],
        ["accept length", number(before.median), "", number(after.median), interval(after)],
    ]
    for (name, first, digits, _), (_, second, _, _) in zip(
        _rows(logged), _rows(served), strict=True
    ):
        rows.append(
            [
                name,
                number(first.median, digits),
                interval(first, digits),
                number(second.median, digits),
                interval(second, digits),
            ]
        )
    rows.append(
        [
            *("faster", probability(logged.probability_faster), ""),
            *(probability(served.probability_faster), ""),
        ]
    )
    text = table([[row[0].ljust(14), *row[1:]] for row in rows], align="lrlrl")
    if fits(text):
        return text
    rows[0][3] = "served"
    return table([[row[0].ljust(14), *row[1:]] for row in rows], align="lrlrl")


def _break_even(prediction: Prediction) -> str:
    """Break-even, which is the round cost."""
    needed, cost = prediction.break_even_accept_length, prediction.round_cost
    text = f"accept length {number(needed.median)} (90 %: {interval(needed)})"
    if number(needed.median) == number(cost.median):
        text += ", which is what a round costs in baseline steps"
    else:
        text += f"; a round costs {number(cost.median)} baseline steps"
    return labelled("break-even", text)


def _round(prediction: Prediction) -> str:
    """What the round is made of."""
    parts = []
    for part in prediction.breakdown:
        time = "" if part.time_s is None else f" ({part.time_s / MILLI:.3g} ms)"
        parts.append(f"{part.term} {percent(part.share)}{time}")
    times = [part.time_s for part in prediction.breakdown if part.time_s is not None]
    total = f", together {sum(times) / MILLI:.3g} ms" if times else ""
    return labelled("a round", "; ".join(parts) + total)


def _rig_round(prediction: Prediction) -> str:
    """The round by phase and cause."""
    rows = [["a round", "ms", "share"]]
    rows += [
        [PART_NAMES.get(part.term, part.term), f"{part.time_s / MILLI:.2f}", percent(part.share)]
        for part in prediction.breakdown
        if part.time_s is not None
    ]
    total = sum(part.time_s or 0.0 for part in prediction.breakdown)
    return table([*rows, ["together", f"{total / MILLI:.2f}", ""]], align="lrr")


def _target(answer: Answer, depth: DepthAnswer) -> list[str]:
    """Accept length that a target needs, and whether this depth can have it."""
    target, needed = answer.ask.target_speedup, depth.accept_length_needed
    if target is None or needed is None:
        return []
    if math.isinf(needed.median):
        share = percent(depth.prediction.non_decode_share)
        text = (
            f"no accept length reaches a speed-up of {target:g}: {share} of the baseline's time is "
            "not decoding"
        )
        return [labelled("target", text)]
    text = f"speed-up {target:g} needs accept length {number(needed.median)} ({interval(needed)})"
    if depth.longest is not None and needed.median > depth.longest:
        text += f"; out of reach: a round of this depth emits at most {depth.longest:g}"
    return [labelled("target", text)]


def _claims(answer: Answer) -> list[str]:
    """What accept lengths above the expected one would need."""
    if not answer.claims or answer.measured_depth is None:
        return []
    first, deepest = answer.measured_depth + 1, answer.depths[-1].num_steps
    steps = f"step {first} needs" if deepest == first else f"steps {first} to {deepest} each need"
    text = f"accept length {', '.join(f'{one.accept_length:g}' for one in answer.claims)} at depth "
    text += f"{deepest}, {steps} conditional accuracy {', '.join(map(_needed, answer.claims))}"
    if answer.measured_conditional is not None:
        text += f"; depth {answer.measured_depth} has {answer.measured_conditional:.2f}"
    return [labelled("to reach", text)]


def _needed(claim: Claim) -> str:
    """Conditional accuracy that a claim needs."""
    if claim.conditional is None:
        return "above 1 (out of reach)"
    return "0" if claim.conditional == 0.0 else f"{claim.conditional:.2f}"


def _identity(depth: DepthAnswer, identity: Identity, target: float | None) -> list[str]:
    """The plain identity, for a check by hand."""
    one = identity.observation
    low, cost, high = one.round_cost
    where = "" if identity.here else f" at the measured configuration ({one.configuration})"
    text = (
        f"round cost{where} = accept x baseline / throughput = {one.accept_length_at:g} x "
        f"{one.baseline_tokens_per_s:g} / {one.output_tokens_per_s:g} = "
    )
    text += f"{one.accept_length_at * one.baseline_tokens_per_s / one.output_tokens_per_s:.4f}"
    if one.num_points > 1:
        text += f" (first of {one.num_points} rows; median {cost:.3f}, {low:.3f} to {high:.3f})"
    lines = [labelled("by hand", text)]
    if target is not None and cost >= 1.0:
        lines.append(
            labelled("", f"speed-up {target:g}: {target:g} x {cost:.4f} = {target * cost:.2f}")
        )
    if identity.speedup is not None:
        accept = depth.prediction.question.accept_length.estimate.median
        rate = identity.baseline_tokens_per_s
        shown, there = _trimmed(accept), "" if identity.here else " there"
        text = f"{shown}{there}: {shown} / {cost:.4f} = {identity.speedup:.3f}"
        if rate is not None:
            text += f", x {rate:g} = {identity.speedup * rate:.1f} tokens/s"
        lines.append(labelled("", text))
    return lines


def _several(answer: Answer) -> list[str]:
    """One line per depth, no speculation first, and the best."""
    choice = answer.choice
    best = None if choice is None else choice.best_num_steps
    lines = [_widest_table(answer, best)]
    if choice is not None:
        what = "no speculation" if best == 0 else f"depth {best}"
        lines += [
            "",
            labelled(
                "best",
                f"{what}: the fastest with probability {probability(choice.probability)}; expected to "
                f"lose {percent(choice.regret, 1)} to the depth that is",
            ),
        ]
    return [*lines, *_claims(answer)]


def _widest_table(answer: Answer, best: int | None) -> str:
    """The table with as many intervals as fit, that of tokens/s before that of the speed-up."""
    columns = _columns(answer)
    most: tuple[_Cell, ...] = (_tokens_range, _speedup_range_of)
    text = ""
    for left_out in ((), (_speedup_range_of,), (_tokens_range,), most):
        kept = [column for column in columns if column[2] not in left_out]
        rows = [[title for title, _, _ in kept]]
        if answer.choice is not None:
            rows.append(_no_speculation(answer, rows[0], best=best == 0))
        rows += [[cell(depth) for _, _, cell in kept] for depth in answer.depths]
        text = table(rows, align="".join(align for _, align, _ in kept))
        if max(map(len, text.splitlines())) <= WIDTH:
            break
    return text


_Cell = Callable[[DepthAnswer], str]
_Column = tuple[str, str, Callable[[DepthAnswer], str]]


def _columns(answer: Answer) -> list[_Column]:
    """Title, alignment and cell of each column that this answer has."""
    target = answer.ask.target_speedup
    columns: list[_Column] = [("depth", "r", lambda depth: str(depth.num_steps))]
    if answer.depths[0].as_logged is not None:
        columns += [
            ("logged", "r", lambda depth: _accept(depth.as_logged)),
            ("speed-up", "r", lambda depth: _speedup(depth.as_logged)),
        ]
        if target is None:
            columns.append(("90 %", "l", lambda depth: _speedup_range(depth.as_logged)))
    if answer.depths[0].accept_known:
        served = "served" if answer.depths[0].as_logged else "accept"
        columns += [
            (served, "r", lambda depth: _accept(depth.prediction)),
            ("speed-up", "r", lambda depth: _speedup(depth.prediction)),
            ("90 %", "l", _speedup_range_of),
        ]
        tokens = all(depth.prediction.output_tokens_per_s for depth in answer.depths)
        if tokens and answer.depths[0].as_logged is None:
            columns += [("tokens/s", "r", _tokens), ("90 %", "l", _tokens_range)]
        columns.append(
            ("faster", "r", lambda depth: probability(depth.prediction.probability_faster))
        )
    else:
        columns.append(("break-even", "r", _break_even_cell))
    if target is not None:
        columns.append((f"for {target:g}x", "r", _target_cell))
    best = None if answer.choice is None else answer.choice.best_num_steps
    if best:
        columns.append(("", "l", lambda depth: "<- best" if depth.num_steps == best else ""))
    return columns


def _no_speculation(answer: Answer, titles: list[str], *, best: bool) -> list[str]:
    """The line of depth 0."""
    rate = answer.depths[0].prediction.baseline_tokens_per_s
    cells = {"depth": "0", "accept": "1.00", "served": "1.00", "logged": "1.00", "speed-up": "1.00"}
    if rate is not None:
        cells["tokens/s"] = number(rate, 1)
    if best:
        cells["faster"] = "<- best"
    return [cells.get(title, "") for title in titles]


def _accept(prediction: Prediction | None) -> str:
    """Accept length of a line."""
    return "" if prediction is None else number(prediction.question.accept_length.estimate.median)


def _speedup(prediction: Prediction | None) -> str:
    """Speed-up of a line."""
    return "" if prediction is None else number(prediction.speedup.median)


def _speedup_range(prediction: Prediction | None) -> str:
    """Interval of the speed-up of a line."""
    return "" if prediction is None else _range(prediction.speedup, 2)


def _speedup_range_of(depth: DepthAnswer) -> str:
    """Interval of the speed-up that is expected at a depth."""
    return _speedup_range(depth.prediction)


def _tokens(depth: DepthAnswer) -> str:
    """Throughput of a line."""
    output = depth.prediction.output_tokens_per_s
    return "" if output is None else number(output.median, 1)


def _tokens_range(depth: DepthAnswer) -> str:
    """Interval of the throughput of a line."""
    output = depth.prediction.output_tokens_per_s
    return "" if output is None else _range(output, 1)


def _range(estimate: Estimate, digits: int) -> str:
    """Bounds in a narrow column."""
    return f"{number(estimate.low, digits)}-{number(estimate.high, digits)}"


def _break_even_cell(depth: DepthAnswer) -> str:
    """Break-even accept length of a line."""
    return number(depth.prediction.break_even_accept_length.median)


def _target_cell(depth: DepthAnswer) -> str:
    """Accept length that a target needs; a dash where this depth cannot emit it."""
    needed = depth.accept_length_needed
    if needed is None or (depth.longest is not None and needed.median > depth.longest):
        return "-"
    return number(needed.median)


PREDICTED = (
    "predicted_output_tokens_per_s",
    "predicted_low_tokens_per_s",
    "predicted_high_tokens_per_s",
    "predicted_speedup",
)
"""What is predicted of a row of a file."""
COLUMNS = (*PREDICTED, "warnings")
"""Columns that are added; those of an earlier prediction are replaced."""

_DIGITS = 6


def predicted_numbers(prediction: "PointPrediction") -> tuple[float | None, ...]:
    """Return median, low and high throughput, and speed-up."""
    output, speedup = prediction.output_tokens_per_s, prediction.speedup
    rates = (None,) * 3 if output is None else (output.median, output.low, output.high)
    return (*rates, None if speedup is None else speedup.median)


def points_prediction_csv(found: "PointPredictions") -> str:
    """Return the rows of the file, as written, with the predictions beside them."""
    points = found.points
    kept = [place for place, name in enumerate(points.header) if name not in COLUMNS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(points.header[place] for place in kept), *COLUMNS])
    for cells, prediction in zip(points.cells, found.predictions, strict=True):
        numbers = [
            "" if one is None else f"{one:.{_DIGITS}g}" for one in predicted_numbers(prediction)
        ]
        said = "; ".join(f"{note.code}: {note.message}" for note in prediction.warnings)
        writer.writerow([*(cells[place] for place in kept), *numbers, said])
    return text.getvalue()
