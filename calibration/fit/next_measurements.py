"""What to measure next: runs that can be made, by how much each would narrow the answers of a fit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from calibration.fit.identifiable import accept_lengths_differ, stated_depths
from calibration.fit.posterior_mode import fit_rows, with_measured_shares
from calibration.points.arrays import SystemRows, system_rows
from calibration.points.table import numbers
from specmodel.acceptance import carry_accept_length
from specmodel.calibration import Calibration
from specmodel.prediction import Prediction, predict_each
from specmodel.prior import Prior
from specmodel.question import AcceptLength, Configuration, Question, longest_accept_length

MOST_ROWS: Final = 100
"""Rows of a fit up to which fits with one more run are tried; the advice of more rows has no sizes. [rows]"""

HELPS: Final = 0.05
"""Share by which a run must be expected to narrow an answer to be named. [-]"""

_SHALLOW, _DEEP = 1, 7
_MIDDLE = 4
_ASKED_DEPTHS = (1, 2, 3, 5, 8)
_ACCEPT_FACTORS = (0.8, 1.25)
_MORE_BATCH = 4.0
_GROWTH = 0.8  # of a throughput with the batch, where nothing tells it: a judgement


class Candidate(NamedTuple):
    """A run that can be made: what it is, the answers that it is for, and what it changes of a measured row."""

    text: str
    answers: str
    changes: tuple[dict[str, Any], ...]


def next_measurements(
    calibration: Calibration, rows: SystemRows | None = None, belief: Prior | None = None
) -> tuple[str, ...]:
    """What to measure next, the most useful first, with the expected width of the answers before and after.

    Each run is put into the fit at the value that it is expected to have, and the answers that it is for are
    asked again; what would not narrow them is not named (theory.md part D).
    """
    first = _first_of_all(calibration)
    candidates = _candidates(calibration)
    if (
        rows is None
        or belief is None
        or len(rows.rows) > MOST_ROWS
        or not calibration.baseline_known
    ):
        return (*first, *(one.text for one in candidates))
    ranked = []
    for one in candidates:
        questions = _questions(calibration, one.answers)
        before = _width(calibration, questions)
        after = _width(_refitted(calibration, rows, belief, one), questions)
        if after < (1.0 - HELPS) * before:
            said = f"{one.text}; {one.answers} then known to ± {after:.0%}, not ± {before:.0%}"
            ranked.append((after / before, said.replace("%", " %")))
    return (*first, *(text for _, text in sorted(ranked, key=lambda pair: pair[0])))


def _first_of_all(calibration: Calibration) -> list[str]:
    """What the points lack, whatever it is worth."""
    wanted = []
    if not calibration.baseline_known:
        wanted.append("the same load without speculation: tells the speed-up and the break-even")
    if not stated_depths(calibration):
        wanted.append("the column num_steps: without it no other depth is predicted well")
    return wanted


def _candidates(calibration: Calibration) -> list[Candidate]:
    """Runs that can be made of this system."""
    found = []
    depths = stated_depths(calibration)
    # A user who loses gains nothing by drafting more.
    loses = calibration.baseline_known and all(
        one.output_tokens_per_s < one.baseline_tokens_per_s for one in calibration.observations
    )
    tells = "tells c1, the price of one more draft step"
    if not depths:
        text = f"the same load at depth {_SHALLOW} or {_DEEP}, whichever is further away: {tells}"
        found.append(Candidate(text, "other depths", ({"num_steps": float(_DEEP)},)))
    elif len(depths) == 1:
        far = _DEEP if depths[0] <= _MIDDLE and not loses else _SHALLOW
        if far != depths[0]:
            text = f"the same load at depth {far}: {tells}, and with it the best depth"
            found.append(Candidate(text, "other depths", ({"num_steps": float(far)},)))
    told = any(entry.non_decode_share > 0.0 for entry in calibration.baselines.entries)
    if not accept_lengths_differ(calibration) and not told and calibration.baseline_known:
        text = (
            "another workload with another accept length, and its baseline: tells f (so do TTFT and output "
            "length)"
        )
        found.append(Candidate(text, "other accept lengths", ({"accept_length": 1.4},)))
    if calibration.curve is None and calibration.baseline_known:
        text = "without speculation, a sweep over batch 1 to 64: tells what verification costs at other batches"
        sweep = tuple({"num_steps": 0.0, "batch_size": batch} for batch in (1.0, 4.0, 16.0, 64.0))
        found.append(Candidate(text, "other batches", sweep))
    return found


def _questions(calibration: Calibration, answers: str) -> list[Question]:
    """Answers of one kind that a user may ask for, around the first configuration that was measured."""
    measured = calibration.observations[0]
    at, accept = measured.configuration, measured.accept_length_at
    tokens = None if (at.topk or 1.0) == 1.0 else at.num_draft_tokens  # those of a chain follow
    if answers == "other accept lengths":
        most = longest_accept_length(at) or np.inf
        lengths = [min(max(1.0, accept * factor), most) for factor in _ACCEPT_FACTORS]
        asked = [(at, length) for length in lengths]
    elif answers == "other batches":
        batch = _MORE_BATCH * (at.batch_size or 1.0)
        asked = [(replace(at, batch_size=batch), accept)]
    else:
        depth = int(at.num_steps or _MIDDLE)
        reached = max(1.0, min(accept, depth + 1.0))
        asked = [
            (
                replace(at, num_steps=float(steps), num_draft_tokens=tokens),
                _carried(reached, depth, steps),
            )
            for steps in _ASKED_DEPTHS
            if steps not in stated_depths(calibration)
        ]
    return [
        Question(accept_length=AcceptLength.exact(length), configuration=configuration)
        for configuration, length in asked
    ]


def _carried(accept: float, depth: int, steps: int) -> float:
    """Accept length expected at another depth."""
    return float(carry_accept_length(accept, depth, steps).value)


def _width(calibration: Calibration, questions: Sequence[Question]) -> float:
    """Mean half width of the speed-ups, relative to them."""
    found = [
        one.speedup for one in predict_each(calibration, questions) if isinstance(one, Prediction)
    ]
    widths = [(one.high - one.low) / (2.0 * one.median) for one in found]
    return float(np.mean(widths)) if widths else np.nan


def _refitted(
    calibration: Calibration, rows: SystemRows, belief: Prior, candidate: Candidate
) -> Calibration:
    """The calibration with one more run at the value that it is expected to have."""
    first = int(np.flatnonzero(rows.rows.configuration == 0)[0])
    template = rows.frame.iloc[[first]]
    rate = float(numbers(template, "baseline_tokens_per_s")[0])
    added = []
    for change in candidate.changes:
        row = template.assign(file="", line=0)
        if change.get("num_steps") == 0.0:
            batch = change["batch_size"] / (
                calibration.observations[0].configuration.batch_size or 1.0
            )
            own = {"accept_length": np.nan, "num_draft_tokens": np.nan, "ttft_ms": np.nan}
            own |= {"baseline_tokens_per_s": np.nan, "output_tokens_per_s": rate * batch**_GROWTH}
            added.append(row.assign(**own, **change))
            continue
        added.append(row.assign(**_expected(calibration, row, change, rate)))
    frame = pd.concat([rows.frame, *added], ignore_index=True)
    again = system_rows(frame)
    fitted = fit_rows(
        again.rows, again.log_speedup, belief, spread_log_sd=again.spread_log_sd, curve=again.curve
    )
    return replace(
        calibration,
        posterior=with_measured_shares(fitted.posterior, again.baselines),
        configurations=again.configurations,
        runs=again.runs,
        baselines=again.baselines,
        curve=again.curve,
    )


def _expected(
    calibration: Calibration, row: pd.DataFrame, change: dict[str, Any], rate: float
) -> dict[str, Any]:
    """Cells of a run with speculation, its throughput as predicted."""
    accept = float(numbers(row, "accept_length")[0])
    at = calibration.observations[0].configuration
    cells: dict[str, Any] = {}
    if "accept_length" in change:  # of another workload, as far away as the depth allows
        most = longest_accept_length(at) or np.inf
        up = accept * change["accept_length"]
        length = up if up < 0.95 * most else max(1.05, accept / change["accept_length"])
        cells |= {"accept_length": length, "workload": "another workload"}
        asked: Configuration = at
    else:
        depth = int(at.num_steps or _MIDDLE)
        steps = change["num_steps"]
        length = _carried(max(1.0, min(accept, depth + 1.0)), depth, int(steps))
        cells |= {"accept_length": length, "num_steps": steps, "num_draft_tokens": np.nan}
        asked = replace(at, num_steps=steps, num_draft_tokens=None)
    question = Question(
        accept_length=AcceptLength.exact(length), configuration=asked, baseline_tokens_per_s=rate
    )
    (found,) = predict_each(calibration, [question])
    gain = found.speedup.median if isinstance(found, Prediction) else 1.0
    return cells | {"full_accuracy": None, "output_tokens_per_s": rate * gain}
