"""Two ways of serving, side by side: how much faster one is at equal load, and by which factor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.table import (
    PROVENANCE_COLUMNS,
    SYSTEM_COLUMNS,
    Points,
    numbers,
    row_groups,
    row_key,
    speculative_rows,
)
from calibration.readers.acceptance_intervals import accept_length_log_sd
from specmodel.errors import SpecModelError, UnknownKeyError
from specmodel.question import Estimate
from specmodel.statistics import NORMAL_95, student_t_quantile
from specmodel.units import MILLI

Array = NDArray[np.float64]

RUN_LOG_SD: Final = 0.02
"""Log-sd of a throughput from run to run, where nothing was repeated: that of public systems. [-]"""

ACCEPT_LOG_SD: Final = 0.01
"""The same of an accept length on the same prompts; a judgement. [-]"""

_WEIGHT = 4.0  # repeats that the usual values count as

SAME_BATCH: Final = 1.1
SAME_LENGTH: Final = 1.5
"""Factors up to which batches, and contexts and output lengths, are one load. [-]"""

_GROUP = (
    *("workload", "batch_size", "context_tokens", "output_tokens", "temperature"),
    *("throughput_scope", "num_steps", "topk"),
)
_LOAD_FACTORS = {
    "batch_size": SAME_BATCH,
    "context_tokens": SAME_LENGTH,
    "output_tokens": SAME_LENGTH,
    "temperature": 1.0,
}


class ComparisonError(SpecModelError, ValueError):
    """Two sides have nothing in common that can be compared."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One load of one side: its runs, averaged."""

    workload: str
    batch_size: float  # NaN where not stated, as the others
    context_tokens: float
    output_tokens: float
    temperature: float
    scope: str
    num_steps: float
    topk: float
    num_rows: int
    tokens_per_s: float
    accept_length: float  # 1 without speculation, NaN where unknown
    # wall time of a round, and the part of it that is not decoding, of one request, [s]; NaN unknown
    round_s: float
    idle_s_per_token: float
    tokens_log_sd: float  # of the mean throughput and accept length
    accept_log_sd: float


class Factor(NamedTuple):
    """A part of a ratio of speeds: its value, and whether it is more than noise."""

    ratio: Estimate
    moved: bool


class Pair(NamedTuple):
    """One load on both sides; ratios are B over A, a value above 1 makes B faster.

    `accept` x `round` x `outside` is `speed`. Parts that the rows do not tell are None; time outside decoding
    is part of the round where no time to the first token tells it.
    """

    a: Side
    b: Side
    speed: Factor
    accept: Factor | None
    round: Factor | None
    outside: Factor | None


class Workload(NamedTuple):
    """Mean ratio of the speeds of one workload."""

    name: str
    speed: Factor
    num_pairs: int


class Comparison(NamedTuple):
    """What a comparison shows.

    `overall` is the mean over the loads, those with speculation where there are any, and `accept` and `round`
    are its parts; `crossover_batch` is where the faster side changes with the batch, None where it does not. `differences`
    are what the two sides state differently of their systems; `left_out` what could not be compared and why.
    """

    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    overall: Factor
    accept: Factor | None
    round: Factor | None
    workloads: tuple[Workload, ...]
    crossover_batch: float | None
    probability_b_faster: float
    differences: tuple[str, ...]
    left_out: tuple[str, ...]


def compare(a: Points, b: Points, names: tuple[str, str]) -> Comparison:
    r"""Compare two sets of measurements at the loads that they share.

    .. math:: \frac{y_B}{y_A} = \frac{\tau_B}{\tau_A} \cdot \frac{t_A}{t_B} \cdot \text{(outside decoding)}

    With y the throughput at a load, :math:`\tau` the accept length and t the time of a round. Intervals are
    from counted rounds, from repeats, and where nothing was repeated from `RUN_LOG_SD`.
    """
    noise = _noise([a.frame, b.frame])
    sides = [_sides(points.frame, *noise) for points in (a, b)]
    for side, name in zip(sides, names, strict=True):
        if not side:
            raise ComparisonError(
                f"{name}: no row has a throughput, so there is nothing to compare"
            )
    pairs, left_out = _matched(sides[0], sides[1], names)
    if not pairs:
        raise ComparisonError(f"{names[0]} and {names[1]} share no load: {'; '.join(left_out)}")
    compared = tuple(_pair(one, other) for one, other in pairs)
    drafting = [one for one in compared if one.a.num_steps != 0] or [*compared]
    speeds = np.log([one.speed.ratio.median for one in drafting])
    overall = _mean([one.speed for one in drafting])
    workloads = tuple(
        Workload(name, _mean([one.speed for one in alike]), len(alike))
        for name in dict.fromkeys(one.a.workload for one in drafting)
        if (alike := [one for one in drafting if one.a.workload == name])
    )
    log_sd = math.log(overall.ratio.high / overall.ratio.low) / (2.0 * NORMAL_95)
    scatter = float(np.std(speeds)) if len(speeds) > 1 else 0.0
    odds = math.log(overall.ratio.median) / math.hypot(log_sd, scatter)
    return Comparison(
        names=names,
        pairs=compared,
        overall=overall,
        accept=_mean_part([one.accept for one in drafting]),
        round=_mean_part([one.round for one in drafting]),
        workloads=workloads if len(workloads) > 1 else (),
        crossover_batch=_crossover(compared),
        probability_b_faster=0.5 * (1.0 + math.erf(odds / math.sqrt(2.0))),
        differences=_differences(a.frame, b.frame),
        left_out=tuple(left_out),
    )


def split_by(points: Points, column: str) -> tuple[Points, Points, tuple[str, str]]:
    """Points in two by the values of a column, known or not."""
    frame = points.frame
    known = [name for name in frame.columns if name not in {*PROVENANCE_COLUMNS, "full_accuracy"}]
    shown = [name for name in known if len(frame[name].unique()) > 1]
    if column not in known:
        raise UnknownKeyError("column", column, shown)
    cells = frame[column].map(lambda cell: f"{cell:g}" if isinstance(cell, float) else str(cell))
    values = [value for value in dict.fromkeys(cells) if value not in {"", "nan"}]
    if len(values) != 2:
        raise ComparisonError(
            f"--by {column}: {len(values)} values ({', '.join(values[:8])}), and a comparison has two sides"
        )
    first, second = (points.where((cells == value).to_numpy()) for value in values)
    return first, second, (f"{column} {values[0]}", f"{column} {values[1]}")


def _noise(frames: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Log-sd of throughput and of accept length from run to run: pooled over repeats, else a usual one."""
    found = []
    for name, usual in (("output_tokens_per_s", RUN_LOG_SD), ("accept_length", ACCEPT_LOG_SD)):
        squares, freedom = 0.0, 0
        for frame in frames:
            values, groups = np.log(numbers(frame, name)), row_groups(frame, _GROUP)
            for group in np.unique(groups):
                inside = values[(groups == group) & np.isfinite(values)]
                if inside.size > 1:
                    squares += float(np.sum((inside - inside.mean()) ** 2))
                    freedom += inside.size - 1
        # A few repeats do not tell the noise alone.
        found.append(math.sqrt((squares + _WEIGHT * usual**2) / (freedom + _WEIGHT)))
    return found[0], found[1]


def _sides(frame: pd.DataFrame, run_log_sd: float, repeat_log_sd: float) -> list[Side]:
    """Loads of one side; repeats averaged."""
    rate = numbers(frame, "output_tokens_per_s")
    drafts = speculative_rows(frame)
    accept = np.where(drafts, numbers(frame, "accept_length"), 1.0)
    counted = np.array(
        [
            accept_length_log_sd(curve, rounds) if isinstance(curve, tuple) else 0.0
            for curve, rounds in zip(
                frame["full_accuracy"], numbers(frame, "verify_rounds").tolist(), strict=True
            )
        ]
    )
    batch = np.where(
        frame["throughput_scope"].isin(["per_user", "per_gpu", "relative"]),
        1.0,
        np.nan_to_num(numbers(frame, "batch_size"), nan=1.0),
    )
    idle_s = numbers(frame, "ttft_ms") * MILLI / numbers(frame, "output_tokens")
    groups = row_groups(frame, _GROUP)
    found = []
    for group in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero((groups == group) & np.isfinite(rate))
        if not rows.size:
            continue
        key = row_key(frame, int(rows[0]), _GROUP)
        workload, *load, scope, steps, topk = key
        speed = float(np.exp(np.mean(np.log(rate[rows]))))
        length, idle = float(np.mean(accept[rows])), float(np.mean(idle_s[rows]))
        wall = float(batch[rows[0]]) / speed
        idle = idle if 0.0 < idle < wall else np.nan
        decoding = wall - (0.0 if np.isnan(idle) else idle)
        stated = [np.nan if one is None else float(one) for one in (*load, steps, topk)]
        found.append(
            Side(
                workload=str(workload),
                batch_size=stated[0],
                context_tokens=stated[1],
                output_tokens=stated[2],
                temperature=stated[3],
                scope=str(scope).replace("aggregate", ""),
                num_steps=stated[4],
                topk=stated[5],
                num_rows=int(rows.size),
                tokens_per_s=speed,
                accept_length=length,
                round_s=length * decoding,
                idle_s_per_token=idle,
                tokens_log_sd=run_log_sd / math.sqrt(rows.size),
                accept_log_sd=math.hypot(
                    float(np.mean(counted[rows])), repeat_log_sd if drafts[rows[0]] else 0.0
                )
                / math.sqrt(rows.size),
            )
        )
    return found


def _matched(
    first: list[Side], second: list[Side], names: tuple[str, str]
) -> tuple[list[tuple[Side, Side]], list[str]]:
    """Loads that both sides have, at one depth where they can, and why others have no counterpart.

    Where no depth is common, the fastest of either side stand for the load.
    """
    pairs: list[tuple[Side, Side]] = []
    left: tuple[list[Side], list[Side]] = ([*first], [*second])
    for same_depth in (True, False):
        for one in sorted(left[0], key=lambda side: -side.tokens_per_s):
            alike = [
                other
                for other in left[1]
                if not _apart(one, other)
                and (_depth(one) == _depth(other) or not same_depth)
                and (
                    same_depth
                    or not any(
                        _away(one, pair[0]) == 0.0 and not _apart(one, pair[0]) for pair in pairs
                    )
                )
            ]
            if alike:
                best = max(alike, key=lambda other: (-_away(one, other), other.tokens_per_s))
                left[0].remove(one)
                left[1].remove(best)
                pairs.append((one, best))
    order = {id(one): place for place, one in enumerate(first)}
    pairs.sort(key=lambda pair: order[id(pair[0])])
    left_out = []
    for one, name, others in (
        *((one, names[0], second) for one in left[0]),
        *((one, names[1], first) for one in left[1]),
    ):
        near = min(others, key=lambda other: len(_apart(one, other)))
        why = ", ".join(_apart(one, near)) or f"depth ({_depth(one)} and {_depth(near)})"
        left_out.append(f"{name}, {load_words(one)}: the nearest load differs in {why}")
    return pairs, left_out


def _depth(side: Side) -> str:
    """Depth of a side in words."""
    return "not stated" if np.isnan(side.num_steps) else f"{side.num_steps:g}"


def _away(one: Side, other: Side) -> float:
    """Distance between two loads that can be compared, as a sum of logarithms."""
    ratios = [
        getattr(one, name) / getattr(other, name) for name in ("batch_size", "context_tokens")
    ]
    return sum(abs(math.log(ratio)) for ratio in ratios if ratio > 0)


def _apart(one: Side, other: Side) -> list[str]:
    """In what two loads differ; nothing where they can be compared."""
    found = [name for name in ("workload", "scope") if getattr(one, name) != getattr(other, name)]
    if (one.num_steps == 0) != (other.num_steps == 0):
        found.append("speculation")
    for name, factor in _LOAD_FACTORS.items():
        here, there = getattr(one, name), getattr(other, name)
        if name == "batch_size":  # one that is not stated is one request, as everywhere
            here, there = np.nan_to_num([here, there], nan=1.0).tolist()
        if max(here, there) > factor * min(here, there) * (1.0 + 1e-9):  # not where one is unknown
            word = "decoding batch" if name == "batch_size" else name
            found.append(f"{word} ({here:g} and {there:g})")
    return found


def load_words(side: Side) -> str:
    """A load in a table."""
    parts = [side.workload] if side.workload else []
    parts += [f"batch {side.batch_size:g}"] if np.isfinite(side.batch_size) else []
    parts += [f"context {side.context_tokens:g}"] if np.isfinite(side.context_tokens) else []
    if side.num_steps == 0:
        parts.append("no speculation")
    elif np.isfinite(side.num_steps):
        parts.append(f"depth {side.num_steps:g}")
    return ", ".join(parts) or "the load (not stated)"


def _pair(a: Side, b: Side) -> Pair:
    """The ratio of two speeds and its parts."""
    idle = np.isfinite(a.idle_s_per_token) and np.isfinite(b.idle_s_per_token)
    if not idle:  # what only one side tells would be taken for a faster round
        a, b = (
            replace(
                one, round_s=one.round_s + one.accept_length * np.nan_to_num(one.idle_s_per_token)
            )
            for one in (a, b)
        )
    speed_sd = math.hypot(a.tokens_log_sd, b.tokens_log_sd)
    accept_sd = math.hypot(a.accept_log_sd, b.accept_log_sd)
    speed = b.tokens_per_s / a.tokens_per_s
    accept, rounds = b.accept_length / a.accept_length, a.round_s / b.round_s
    known = np.isfinite(accept) and np.isfinite(rounds)
    drafts = not a.num_steps == b.num_steps == 0
    return Pair(
        a=a,
        b=b,
        speed=_factor(speed, speed_sd),
        accept=_factor(accept, accept_sd) if known and drafts else None,
        round=_factor(rounds, math.hypot(speed_sd, accept_sd)) if known else None,
        outside=_factor(speed / (accept * rounds), 0.0) if known and idle else None,
    )


def _factor(ratio: float, log_sd: float) -> Factor:
    """A ratio with its interval."""
    width = float(student_t_quantile(0.95, 8.0)) * log_sd
    estimate = Estimate(ratio, ratio * math.exp(-width), ratio * math.exp(width))
    return Factor(estimate, not estimate.low <= 1.0 <= estimate.high)


def _mean(factors: Sequence[Factor]) -> Factor:
    """Geometric mean of ratios, each as sure as it is."""
    logs = np.log([one.ratio.median for one in factors])
    sds = [math.log(one.ratio.high / one.ratio.low) / 2.0 for one in factors]
    width = math.sqrt(float(np.sum(np.square(sds)))) / len(factors)
    middle = float(np.mean(logs))
    estimate = Estimate(*(math.exp(middle + side * width) for side in (0.0, -1.0, 1.0)))
    return Factor(estimate, not estimate.low <= 1.0 <= estimate.high)


def _mean_part(factors: Sequence[Factor | None]) -> Factor | None:
    """Mean of a part that every load tells."""
    known = [one for one in factors if one is not None]
    return _mean(known) if len(known) == len(factors) else None


def _crossover(pairs: Sequence[Pair]) -> float | None:
    """Batch at which the faster side changes, linear in the logarithms between measured ones."""
    points: dict[float, list[float]] = {}
    for one in pairs:
        if np.isfinite(one.a.batch_size) and one.a.num_steps != 0:
            points.setdefault(one.a.batch_size, []).append(math.log(one.speed.ratio.median))
    means = [(math.log(batch), float(np.mean(values))) for batch, values in sorted(points.items())]
    for (low, before), (high, after) in pairwise(means):
        if before * after < 0.0:
            return math.exp(low + (high - low) * before / (before - after))
    return None


def _differences(a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, ...]:
    """What the sides state differently of their systems."""
    found = []
    for name in (*SYSTEM_COLUMNS, "draft_model", "algorithm"):
        values = [
            sorted({str(one) for one in frame[name] if str(one) not in {"", "nan"}})
            for frame in (a, b)
        ]
        if values[0] and values[1] and values[0] != values[1]:
            found.append(f"{name}: {', '.join(values[0])} and {', '.join(values[1])}")
    return tuple(found)
