"""Whether measurements can be true: rounds cheaper than a step, times, baselines, replicates."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.baselines import own_baseline
from calibration.points.table import (
    DRAFT_COLUMNS,
    LOAD_COLUMNS,
    SYSTEM_COLUMNS,
    Points,
    decode_only_rows,
    numbers,
    row_groups,
    speculative_rows,
    warn_rows,
)
from specmodel.errors import Note
from specmodel.speedup import ROUND_COST_NOISE
from specmodel.units import MILLI

BASELINE_SET_ASIDE = "baseline_set_aside"
"""Code of the warning that names a broken baseline."""

MAX_BROKEN = 1
"""How many broken baselines a sound system may have: one is a slip, two are a habit."""

_SPREADS = 2.0  # standard deviations of noise
_ROUNDING = 1e-6
_MAX_TTFT_SHARE = 0.95  # of the request time; the rest has to hold every token but the first
_MAX_STEP_TIME_GAP = 0.5
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Soundness:
    """What of a system can be trusted."""

    sound: bool  # whether the rest of the system can, once the broken baselines are set aside
    kept: NDArray[np.bool_]  # for each row, whether it is not set aside
    # the broken baselines: a workload, or load and baseline where the workload has no name
    broken: tuple[str, ...] = ()
    # codes ``baseline_set_aside``, and ``unsound_system`` where it is not sound
    warnings: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateGroup:
    """Runs of one configuration."""

    rows: tuple[int, ...]  # positions in the frame, two or more
    relative_sd: float  # sample standard deviation / mean of the throughput, [-]
    # the same of the implied round cost; None where a row has no baseline or no accept length
    round_cost_relative_sd: float | None = None


def implied_round_cost(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return accept length x baseline / throughput of every speculative row, nan elsewhere."""
    accept, output = numbers(frame, "accept_length"), numbers(frame, "output_tokens_per_s")
    cost = accept * numbers(frame, "baseline_tokens_per_s") / output
    return np.where(speculative_rows(frame), cost, np.nan)


def warn_impossible(frame: pd.DataFrame) -> tuple[Note, ...]:
    r"""Return notes on rounds cheaper than a step, and on times that cannot be those of their throughput.

    .. math:: t_{first} > 0.95\, \frac{B\, N}{X_{base}}, \qquad
              \left|\frac{t_{step} X}{B\, a} - 1\right| > 0.5

    A baseline that was taken from a step time has no prefill in it, so no time to the first token
    contradicts it. A step time can be below what the throughput implies, where prefill and idle
    time lower the throughput; by more than half they would be most of the run.
    """
    speculative = speculative_rows(frame)
    output, batch = numbers(frame, "output_tokens_per_s"), numbers(frame, "batch_size")
    aggregate = frame["throughput_scope"].isin(["", "aggregate"]).to_numpy()
    per_user = (frame["throughput_scope"] == "per_user").to_numpy()
    requests = np.select([aggregate, per_user], [batch, 1.0], np.nan)
    request_ms = requests * numbers(frame, "output_tokens") / own_baseline(frame) / MILLI
    ttft_ms, step_ms = numbers(frame, "ttft_ms"), numbers(frame, "step_time_ms")
    own_origin = np.where(speculative, frame["baseline_origin"], frame["throughput_origin"])
    too_late = (ttft_ms > _MAX_TTFT_SHARE * request_ms) & (own_origin != "step_time")
    too_late &= ~decode_only_rows(frame)
    emitted = np.where(speculative, numbers(frame, "accept_length"), 1.0)
    implied_ms = np.where(aggregate, emitted * batch / output / MILLI, np.nan)
    apart = np.abs(step_ms / implied_ms - 1) > _MAX_STEP_TIME_GAP
    return (
        *warn_rows(
            frame,
            implied_round_cost(frame) < 1 - _ROUNDING,
            "round_cost_below_one",
            "accept_length x baseline / throughput is below 1: a round cheaper than one step without "
            "speculation, which cannot be; the baseline is broken, or the accept length",
        ),
        *warn_rows(
            frame,
            too_late,
            "ttft_contradicts_throughput",
            "ttft_ms alone is more than 95 % of the request time, batch_size x output_tokens / "
            f"baseline: {_both(frame, too_late, ttft_ms, request_ms)}; is its unit ms, and was it "
            "measured at this load?",
        ),
        *warn_rows(
            frame,
            apart,
            "step_time_contradicts_throughput",
            "step_time_ms is more than 50 % away from accept_length x batch_size / throughput: "
            f"{_both(frame, apart, step_ms, implied_ms)}; is its unit ms, and is the throughput "
            "that of the whole batch?",
        ),
    )


def assess_soundness(points: Points, *, force: bool = False) -> Soundness:
    """Return which rows of a system can be trusted, and whether the system can.

    A row whose implied round cost is below 1 by more than noise (`ROUND_COST_NOISE`, or twice the
    noise of a ratio where the row's spread says more) marks its workload's baseline as broken, and
    the rows of that workload are set aside, at every batch. Rows whose workload has no name share a
    baseline only where batch, context and baseline agree. More than `MAX_BROKEN` make the system
    unsound, and so does it that nothing is left.
    """
    frame = points.frame
    round_cost = implied_round_cost(frame)
    spread = np.nan_to_num(frame["spread"].to_numpy())
    noise = np.maximum(ROUND_COST_NOISE, _SPREADS * np.sqrt(2) * spread)
    baselines = _baseline_names(frame)
    broken = tuple(dict.fromkeys(baselines[round_cost < 1 - noise].tolist()))
    kept = ~np.isin(baselines, broken)
    sound = len(broken) <= MAX_BROKEN and bool(kept[speculative_rows(frame)].any())
    said = "would be" if force or not sound else None
    warnings: tuple[Note, ...] = ()
    for name in broken:
        rows = baselines == name
        count = int(rows.sum())
        warnings += warn_rows(
            frame,
            rows,
            BASELINE_SET_ASIDE,
            f"the baseline of {name} is broken: it implies a round of "
            f"{np.nanmin(round_cost[rows]):.2f} steps, and none can take less than 1; "
            f"{count} row{'s' if count > 1 else ''} "
            f"{said or ('are' if count > 1 else 'is')} set aside",
        )
    if broken and not sound:
        plural = "s" if len(broken) > 1 else ""
        warnings += (
            Note(
                code="unsound_system",
                message=f"{len(broken)} broken baseline{plural} ({'; '.join(broken)}): the system is "
                f"not trusted; measure the baseline{plural} again at the same load",
            ),
        )
    return Soundness(sound=sound or not broken, kept=kept, broken=broken, warnings=warnings)


def replicate_groups(frame: pd.DataFrame) -> tuple[ReplicateGroup, ...]:
    """Return the configurations that were run more than once, with their spread."""
    groups: dict[int, list[int]] = defaultdict(list)
    columns = (*SYSTEM_COLUMNS, *LOAD_COLUMNS, *DRAFT_COLUMNS)
    for row, group in enumerate(row_groups(frame, columns).tolist()):
        groups[group].append(row)
    output = frame["output_tokens_per_s"].to_numpy()
    round_cost = implied_round_cost(frame)
    return tuple(
        ReplicateGroup(
            rows=tuple(rows),
            relative_sd=_relative_sd(output[rows]),
            round_cost_relative_sd=None
            if np.isnan(round_cost[rows]).any()
            else _relative_sd(round_cost[rows]),
        )
        for rows in groups.values()
        if len(rows) > 1 and np.isfinite(output[rows]).all()
    )


def _both(
    frame: pd.DataFrame,
    rows: NDArray[np.bool_],
    stated_ms: NDArray[np.float64],
    implied_ms: NDArray[np.float64],
) -> str:
    """Return stated and implied times of the first rows that contradict each other."""
    found = np.flatnonzero(rows)
    shown = [
        f"{stated_ms[row]:.4g} against {implied_ms[row]:.4g} ms (line {frame['line'].iloc[row]})"
        for row in found[:_MOST_SHOWN]
    ]
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return ", ".join(shown) + more


def _relative_sd(values: NDArray[np.float64]) -> float:
    """Return the sample standard deviation over the mean."""
    return float(np.std(values, ddof=1) / np.mean(values))


def _baseline_names(frame: pd.DataFrame) -> NDArray[np.object_]:
    """The baseline that each row shares: its workload, or load and value without a name."""
    own = frame["baseline_tokens_per_s"].fillna(frame["output_tokens_per_s"])
    columns = (frame["workload"], frame["batch_size"], frame["context_tokens"], own)
    names = []
    for workload, batch_size, context_tokens, baseline in zip(*columns, strict=True):
        load = [] if np.isnan(batch_size) else [f"batch {batch_size:g}"]
        load += [] if np.isnan(context_tokens) else [f"context {context_tokens:g}"]
        unnamed = ", ".join([*load, f"{baseline:g} tok/s"])
        names.append(" ".join(str(workload).split()) or unnamed)
    return np.array(names, dtype=object)
