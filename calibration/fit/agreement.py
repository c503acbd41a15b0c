"""Whether a calibration agrees with the rows that it came from, asked as a user would ask it."""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from calibration.points.arrays import SystemRows
from calibration.points.table import PROVENANCE_COLUMNS, numbers, texts
from calibration.readers import NUMBER_NAMES
from specmodel.calibration import Calibration
from specmodel.prediction import Prediction, predict_each
from specmodel.question import AcceptLength, Question
from specmodel.speedup import round_cost_from_throughput
from specmodel.text_layout import number, plural, spread

FAR: Final = 0.08
"""Relative difference of a row from its own prediction, outside its interval, from which it is named. [-]"""

BY_HAND: Final = 0.02
"""How far a round cost by hand may be outside the interval of the fit without a word. [-]"""

MOST_ASKED: Final = 200
"""Rows that are asked for; of more, as many at equal distances. [rows]"""

SPLITS: Final = 0.8
"""Share of the misfit, as a variance, from which a column is named that explains it. [-]"""

_MOST_NAMED = 3
_MEASURED: Final = frozenset(NUMBER_NAMES) - {"num_steps", "topk", "batch_size", "context_tokens"}


def doubts(calibration: Calibration, usable: SystemRows) -> tuple[str, ...]:
    """What a fit says that its own rows contradict; empty where all agree.

    Each row is predicted by the path that `specmodel predict` takes, at its own accept length, load,
    workload and baseline.
    """
    frame, count = usable.frame, len(usable.rows)
    asked = np.unique(np.linspace(0, count - 1, min(count, MOST_ASKED)).astype(np.intp))
    accept, output, rate = (
        numbers(frame, name)
        for name in ("accept_length", "output_tokens_per_s", "baseline_tokens_per_s")
    )
    workloads = texts(frame, "workload")
    questions = [
        Question(
            accept_length=AcceptLength.exact(float(accept[row])),
            configuration=usable.configurations[usable.rows.configuration[row]],
            workload=workloads[row] or None,
            baseline_tokens_per_s=float(rate[row]),
        )
        for row in asked.tolist()
    ]
    far = []
    for row, found in zip(asked.tolist(), predict_each(calibration, questions), strict=True):
        predicted = found.output_tokens_per_s if isinstance(found, Prediction) else None
        if predicted is None:
            continue
        inside = predicted.low <= output[row] <= predicted.high
        if not inside and abs(predicted.median / output[row] - 1.0) > FAR:
            far.append((row, f"{output[row]:.4g} measured, {spread(predicted, 1)} predicted"))
    said = []
    if far:
        named = "; ".join(
            f"{Path(str(frame['file'].iloc[row])).name}, line {int(frame['line'].iloc[row])}: {text}"
            for row, text in far[:_MOST_NAMED]
        )
        more = f"; and {len(far) - _MOST_NAMED} more" if len(far) > _MOST_NAMED else ""
        said.append(
            f"{len(far)} of {plural(asked.size, 'row')} {'is' if len(far) == 1 else 'are'} more than "
            f"{FAR:.0%} off and outside the interval of the very answer for {'it' if len(far) == 1 else 'them'} "
            f"(tokens/s): {named}{more}{_split_by(usable, calibration)}".replace("%", " %")
        )
    return (*said, *_by_hand(calibration, usable))


def _by_hand(calibration: Calibration, usable: SystemRows) -> list[str]:
    """Configurations whose round cost by hand lies outside the interval of the fit.

    By hand is with the share outside decoding that the fit has, where anything tells it: rows with different
    accept lengths, or a measured one.
    """
    frame, rows = usable.frame, usable.rows
    accept = rows.accept_length
    told = np.ptp(accept) > 0 or np.isfinite(rows.measured_share).any()
    share = calibration.posterior.predict(rows).non_decode_share if told else 0.0
    by_hand = round_cost_from_throughput(
        accept,
        numbers(frame, "output_tokens_per_s"),
        numbers(frame, "baseline_tokens_per_s"),
        share,
    )
    questions = [
        Question(accept_length=AcceptLength.exact(1.0), configuration=one)
        for one in usable.configurations
    ]
    found = []
    for index, answer in enumerate(predict_each(calibration, questions)):
        if not isinstance(answer, Prediction):
            continue
        hand, cost = float(np.median(by_hand[rows.configuration == index])), answer.round_cost
        if not cost.low * (1.0 - BY_HAND) <= hand <= cost.high * (1.0 + BY_HAND):
            configuration = usable.configurations[index]
            found.append(f"{configuration}: {number(hand)} by hand, {spread(cost)} by the fit")
    if not found:
        return []
    more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    why = ""
    if not told:
        why = (
            "; all rows have one accept length, at which time outside decoding and the price of a round "
            "cannot be told apart"
        )
    return [
        f"round cost by hand and by the fit disagree: {'; '.join(found[:_MOST_NAMED])}{more}{why}"
    ]


def _split_by(usable: SystemRows, calibration: Calibration) -> str:
    """The column that explains most of what the rows miss, where one does."""
    frame = usable.frame
    residual = pd.Series(usable.log_speedup - calibration.posterior.predict(usable.rows).location)
    total = float(np.sum((residual - residual.mean()) ** 2))
    best, share = "", SPLITS
    for name in frame.columns:
        values = frame[name].astype(str).reset_index(drop=True)
        several = 1 < len(values.unique()) <= len(values) // 2
        if not several or name in PROVENANCE_COLUMNS or name in _MEASURED:
            continue
        within = residual - residual.groupby(values).transform("mean")
        explained = 1.0 - float(np.sum(within**2)) / max(total, 1e-12)
        if explained > share:
            best, share = name, explained
    return f"; column {best} splits them" if best else ""
