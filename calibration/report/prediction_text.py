"""Predictions as plain text: one screen for one depth, a line per depth for several, a table for a file."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from specmodel.answer import Answer, Claim, DepthAnswer, Identity, RigAnswer
from specmodel.prediction import Prediction
from specmodel.question import Estimate
from specmodel.text_layout import (
    fits,
    interval,
    labelled,
    number,
    percent,
    plural,
    probability,
    table,
    wrapped,
)
from specmodel.units import MILLI

if TYPE_CHECKING:  # a prediction of one question reads no file
    from calibration.predict.points import PointPrediction, PointPredictions
    from specmodel.calibration import Calibration

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
    lines = [calibration_words(answer.calibration, answer.source)]
    lines += [wrapped(one.message) for one in answer.notes if one.code == "unknown_depth"]
    if answer.rig is not None:
        lines += _changes(answer.rig)
    several = len(answer.depths) > 1
    return "\n".join([*lines, "", *(_several(answer) if several else _single(answer))])


def _changes(rig: RigAnswer) -> list[str]:
    """What was changed of the calibrated rig, and what that does."""
    asked = ", ".join(f"{key}={text}" for key, text in rig.changes)
    form = f"{asked}: the physical form, fitted to {rig.num_loads} measured times"
    lines = ["", labelled("with", form)]
    if rig.speedup_ratio is not None and rig.base is not None:
        gain, output = rig.speedup_ratio, rig.output_ratio
        text = f"{number(gain.median)} times its speed-up (90 %: {interval(gain)})"
        text += "" if output is None else f", {number(output)} times its tokens/s"
        text += f"; as it is, the speed-up is {number(rig.base.speedup.median)}"
        lines.append(labelled("over the rig", text))
    return lines


def calibration_words(calibration: "Calibration", source: str) -> str:
    """Return which calibration is used, of which system, and how old it is."""
    if not calibration.num_points:
        return f"{source}: {calibration.prior.name}"
    text = f"{source}: {calibration.label}, {plural(calibration.num_points, 'point')}"
    if calibration.fitted_at:
        then = datetime.fromisoformat(calibration.fitted_at)
        hours = (datetime.now(UTC) - then) // timedelta(hours=1)
        ago = f"{hours} hours ago" if hours else "in the last hour"
        text += f", fitted {ago if hours < 48 else f'on {then:%Y-%m-%d}, {hours // 24} days ago'}"
    return wrapped(text)


def _single(answer: Answer) -> list[str]:
    """Everything about one depth, a paragraph each."""
    depth = answer.depths[0]
    prediction, question = depth.prediction, depth.prediction.question
    text = str(question.configuration)
    text = text.replace("depth not stated", "the calibrated depth (not stated)")
    text += f", workload {question.workload}" if question.workload else ""
    lines = [labelled("configuration", text)]

    if depth.accept_known:
        logged = depth.as_logged
        accept = (logged or prediction).question.accept_length.estimate
        text = f"{accept.median:.3f}".removesuffix("0")
        if accept.high > accept.low:
            text += f" (90 %: {interval(accept)})"
        if answer.measured_depth is not None and answer.measured_depth != depth.num_steps:
            text += f", carried from depth {answer.measured_depth}"
        if depth.num_steps:
            accepted, drafted = accept.median - 1.0, depth.num_steps
            share = percent(accepted / drafted)
            text += f"; {accepted:.3g} of {drafted} drafted tokens accepted ({share})"
        numbers = _numbers(prediction) if logged is None else _side_by_side(logged, prediction)
        lines += [labelled("accept length", text), "", numbers]

    needed, cost = prediction.break_even_accept_length, number(prediction.round_cost.median)
    same = number(needed.median) == cost
    text = f"accept length {number(needed.median)} (90 %: {interval(needed)})"
    text += ", which is what a round costs in" if same else f"; a round costs {cost}"
    text += " baseline steps"
    if math.isnan(needed.median) and prediction.output_tokens_per_s:
        rate = number(prediction.output_tokens_per_s.median, 1)
        text = f"pays where it is slower than {rate} tokens/s without speculation"
    lines += ["", labelled("break-even", text)]

    if answer.rig is None:
        times = [part.time_s for part in prediction.breakdown if part.time_s is not None]
        parts = [
            f"{part.term} {percent(part.share)}"
            + ("" if part.time_s is None else f" ({part.time_s / MILLI:.3g} ms)")
            for part in prediction.breakdown
        ]
        total = f", together {sum(times) / MILLI:.3g} ms" if times else ""
        lines += [labelled("a round", "; ".join(parts) + total)]
    else:
        lines += ["", _rig_round(prediction)]

    if answer.ask.target_speedup is not None:
        lines += _target(answer.ask.target_speedup, depth)
    if answer.claims and answer.measured_depth is not None:
        lines += [_claims(answer, answer.measured_depth)]
    if answer.identity is not None:
        lines += ["", *_identity(depth, answer.identity, answer.ask.target_speedup)]
    return lines


def _rows(prediction: Prediction) -> list[tuple[str, Estimate, int, str]]:
    """Name, value, digits and remark of each predicted quantity."""
    rate, output = prediction.baseline_tokens_per_s, prediction.output_tokens_per_s
    user, batch = prediction.per_user_tokens_per_s, prediction.question.configuration.batch_size
    rows = []
    if not math.isnan(prediction.probability_faster):
        faster = f"faster than no speculation: {probability(prediction.probability_faster)}"
        rows.append(("speed-up", prediction.speedup, 2, faster))
    if output:
        without = "" if rate is None else f"without speculation {rate:.4g}"
        rows.append(("tokens/s", output, 1, without))
    if user and batch is not None and batch > 1:
        rows.append(("tokens/s/user", user, 1, f"batch {batch:g}"))
    if prediction.tpot_s:
        rows.append(("ms per token", prediction.tpot_s.scaled(1 / MILLI), 2, ""))
    return rows


def _numbers(prediction: Prediction) -> str:
    """Median and interval of what is predicted."""
    rows = [["", "median", "90 % interval", ""]]
    rows += [
        [name, number(one.median, digits), interval(one, digits), said]
        for name, one, digits, said in _rows(prediction)
    ]
    return table([[row[0].ljust(14), *row[1:]] for row in rows], align="lrll")


def _cells(estimate: Estimate, digits: int) -> tuple[str, str]:
    """Median and bounds in two columns."""
    return number(estimate.median, digits), interval(estimate, digits)


def _side_by_side(logged: Prediction, served: Prediction) -> str:
    """The same as logged and as expected in serving."""
    before, after = (one.question.accept_length.estimate for one in (logged, served))
    faster = [probability(one.probability_faster) for one in (logged, served)]
    pairs = zip(_rows(logged), _rows(served), strict=True)
    rows = [
        ["accept length", number(before.median), "", *_cells(after, 2)],
        *(
            [name, *_cells(a, digits), *_cells(b, digits)]
            for (name, a, digits, _), (_, b, *_) in pairs
        ),
        ["faster", faster[0], "", faster[1], ""],
    ]
    text = ""
    for heading in ("expected served", "served"):
        head = ["", "as logged", "90 % interval", heading, "90 % interval"]
        text = table([[row[0].ljust(14), *row[1:]] for row in (head, *rows)], align="lrlrl")
        if fits(text):
            break
    return text


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


def _target(target: float, depth: DepthAnswer) -> list[str]:
    """Accept length that a target needs, and whether this depth can have it."""
    needed = depth.accept_length_needed
    if needed is None:
        return []
    text = f"speed-up {target:g} needs accept length {number(needed.median)} ({interval(needed)})"
    if math.isinf(needed.median):
        share = percent(depth.prediction.non_decode_share)
        text = f"no accept length reaches a speed-up of {target:g}: {share} of the baseline's time "
        text += "is not decoding"
    elif depth.longest is not None and needed.median > depth.longest:
        text += f"; out of reach: a round of this depth emits at most {depth.longest:g}"
    return [labelled("target", text)]


def _claims(answer: Answer, measured_depth: int) -> str:
    """What accept lengths above the expected one would need."""
    first, deepest = measured_depth + 1, answer.depths[-1].num_steps
    steps = f"step {first} needs" if deepest == first else f"steps {first} to {deepest} each need"
    text = f"accept length {', '.join(f'{one.accept_length:g}' for one in answer.claims)} at depth "
    text += f"{deepest}, {steps} conditional accuracy {', '.join(map(_needed, answer.claims))}"
    if answer.measured_conditional is not None:
        text += f"; depth {measured_depth} has {answer.measured_conditional:.2f}"
    return labelled("to reach", text)


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
        shown, there = f"{accept:.3f}".removesuffix("0"), "" if identity.here else " there"
        text = f"{shown}{there}: {shown} / {cost:.4f} = {identity.speedup:.3f}"
        if rate is not None:
            text += f", x {rate:g} = {identity.speedup * rate:.1f} tokens/s"
        lines.append(labelled("", text))
    return lines


def _several(answer: Answer) -> list[str]:
    """One line per depth, no speculation first, and the best."""
    choice = answer.choice
    lines = [_widest_table(answer)]
    if choice is not None:
        best = choice.best_num_steps
        what = "no speculation" if best == 0 else f"depth {best}"
        said = (
            f"{what}: the fastest with probability {probability(choice.probability)}; expected to "
        )
        said += f"lose {percent(choice.regret, 1)} to the depth that is"
        lines += ["", labelled("best", said)]
    if answer.claims and answer.measured_depth is not None:
        lines.append(_claims(answer, answer.measured_depth))
    return lines


def _widest_table(answer: Answer) -> str:
    """The table with as many intervals as fit, that of tokens/s before that of the speed-up."""
    columns, text = _columns(answer), ""
    for left_out in ((), (_SPEEDUP,), (_TOKENS,), (_SPEEDUP, _TOKENS)):
        kept = {name: cells for name, cells in columns.items() if name not in left_out}
        titles = [_TITLES.get(name, name) for name in kept]
        without = answer.choice is not None and answer.choice.num_steps[0] == 0
        rows = [titles, *([_no_speculation(answer, titles)] if without else [])]
        rows += map(list, zip(*kept.values(), strict=True))
        text = table(rows, align="".join("l" if name in _LEFT else "r" for name in kept))
        if fits(text):
            break
    return text


_LOGGED, _SPEEDUP, _TOKENS, _BEST = "90 % as logged", "90 % speed-up", "90 % tokens/s", "best"
_LEFT = (_LOGGED, _SPEEDUP, _TOKENS, _BEST)
_TITLES = dict.fromkeys(_LEFT, "90 %") | {_BEST: "", "speed-up as logged": "speed-up"}


def _columns(answer: Answer) -> dict[str, list[str]]:
    """Cells of each column that this answer has, by depth."""
    depths, target = answer.depths, answer.ask.target_speedup
    predicted = [one.prediction for one in depths]
    logged = [one.as_logged for one in depths if one.as_logged is not None]
    columns = {"depth": [str(one.num_steps) for one in depths]}
    if logged:
        columns["logged"], columns["speed-up as logged"], bounds = _accepts(logged)
        columns |= {_LOGGED: bounds} if target is None else {}
    if depths[0].accept_known:
        name = "served" if logged else "accept"
        columns[name], speedups, bounds = _accepts(predicted)
        compared = not any(math.isnan(one.probability_faster) for one in predicted)
        columns |= {"speed-up": speedups, _SPEEDUP: bounds} if compared else {}
        outputs = [one.output_tokens_per_s for one in predicted if one.output_tokens_per_s]
        if len(outputs) == len(depths) and not logged:
            columns["tokens/s"] = [number(one.median, 1) for one in outputs]
            columns[_TOKENS] = [interval(one, 1, joint="-") for one in outputs]
        if compared:
            columns["faster"] = [probability(one.probability_faster) for one in predicted]
    else:
        columns["break-even"] = [number(one.break_even_accept_length.median) for one in predicted]
    if target is not None:
        columns[f"for {target:g}x"] = list(map(_target_cell, depths))
    best = answer.choice and answer.choice.best_num_steps
    if best:
        columns[_BEST] = ["<- best" if one.num_steps == best else "" for one in depths]
    return columns


def _accepts(predictions: Sequence[Prediction]) -> tuple[list[str], list[str], list[str]]:
    """Accept lengths, speed-ups and their bounds."""
    lengths = [number(one.question.accept_length.estimate.median) for one in predictions]
    speedups = [one.speedup for one in predictions]
    medians = [number(one.median) for one in speedups]
    return lengths, medians, [interval(one, joint="-") for one in speedups]


def _no_speculation(answer: Answer, titles: list[str]) -> list[str]:
    """The line of depth 0."""
    rate = answer.depths[0].prediction.baseline_tokens_per_s
    cells = {"depth": "0", "accept": "1.00", "served": "1.00", "logged": "1.00", "speed-up": "1.00"}
    if rate is not None:
        cells["tokens/s"] = number(rate, 1)
    if answer.choice is not None and answer.choice.best_num_steps == 0:
        cells["faster"] = "<- best"
    return [cells.get(title, "") for title in titles]


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
    return (*rates, None if speedup is None or math.isnan(speedup.median) else speedup.median)


def points_prediction_csv(found: "PointPredictions") -> str:
    """Return the rows of the file, as written, with the predictions beside them."""
    points = found.points
    kept = [place for place, name in enumerate(points.header) if name not in COLUMNS]
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(points.header[place] for place in kept), *COLUMNS])
    for cells, prediction in zip(points.cells, found.predictions, strict=True):
        numbers = [
            "" if one is None else f"{one:.{_DIGITS}g}" for one in predicted_numbers(prediction)
        ]
        said = "; ".join(f"{note.code}: {note.message}" for note in prediction.warnings)
        writer.writerow([*(cells[place] for place in kept), *numbers, said])
    return text.getvalue().rstrip("\n")
