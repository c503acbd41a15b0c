"""Points of one system as arrays for the fit: configurations, runs, baselines, measured speed-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.points.baselines import own_baseline
from calibration.points.loads import with_common_loads
from calibration.points.table import (
    Key,
    decode_only_rows,
    numbers,
    row_groups,
    row_key,
    speculative_rows,
)
from calibration.points.unsound import implied_round_cost
from calibration.readers.acceptance_intervals import accept_length_log_sd
from specmodel.architecture import has_preset, preset
from specmodel.baselines import Baseline, Baselines
from specmodel.cost import BatchCurve, round_terms
from specmodel.effects import workload_numbers
from specmodel.posterior import Rows
from specmodel.question import Configuration, Run
from specmodel.speedup import ROUND_COST_NOISE
from specmodel.units import MILLI

Array = NDArray[np.float64]
_Record = TypeVar("_Record", Configuration, Run)

LEAST_DECODE_SHARE = 0.05
"""Share of a request below which decoding cannot be: the time to first token is wrong. [-]"""

UNITS_A_ROUND = 10.0
"""Units of time in the shortest round of a load, where no baseline is known. [-]"""

_CONFIGURATION = ("num_steps", "topk", "num_draft_tokens", "batch_size", "context_tokens")
_RUN = ("workload", "topk", "batch_size", "context_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRows:
    """What a fit needs of one system."""

    rows: Rows  # speculative rows with accept length, throughput and baseline
    log_speedup: Array  # logarithm of measured throughput over baseline, [-]
    # replicate spread where stated and that of a counted accept length, else 0, [-]
    spread_log_sd: Array
    # what the effects belong to, in the order of their indices
    configurations: tuple[Configuration, ...]
    runs: tuple[Run, ...]  # what the effects belong to, in the order of their indices
    # the rows used, in the same order, with common loads (`calibration.points.loads`)
    frame: pd.DataFrame
    as_measured: pd.DataFrame  # the same rows with batches and contexts as they were measured
    num_contradicted: int  # rows whose time to the first token contradicts their throughput
    baselines: Baselines  # every baseline of the system, those without a speculative row included
    curve: BatchCurve | None  # the baseline's batch curve, where the points have one
    # whether the points say that the target is dense or how many experts it has
    experts_known: bool


def system_rows(frame: pd.DataFrame, *, baseline_known: bool = True) -> SystemRows:
    """Arrays of one system's points; `frame` has the canonical columns.

    Baselines that stand for unknown ones say nothing of time outside decoding or of other batches.
    """
    common = with_common_loads(frame)
    share, contradicted = measured_share(frame)
    if not baseline_known:
        share, contradicted = np.zeros(len(frame)), np.zeros(len(frame), dtype=np.bool_)
    baselines = _baselines(common, share)
    if not baseline_known:
        baselines = Baselines(
            entries=tuple(replace(one, step_time_s=np.nan) for one in baselines.entries)
        )
    first = frame.iloc[:1]
    counts = [numbers(first, name).tolist() for name in ("num_experts", "experts_per_token")]
    experts = [values[0] if values else np.nan for values in counts]
    curve = baselines.curve((experts[0], experts[1]))
    usable = np.isfinite(implied_round_cost(frame))
    used = common.loc[usable]
    batch, context = numbers(used, "batch_size"), numbers(used, "context_tokens")
    rate = numbers(used, "baseline_tokens_per_s")
    configurations, configuration = _indexed(used, _CONFIGURATION, _configuration)
    runs, run = _indexed(used, _RUN, _run)
    named = workload_numbers(runs)
    known_step_s = np.where(
        np.isfinite(batch), baselines.best("step_time_s", min, batch, context), np.nan
    )
    return SystemRows(
        rows=Rows(
            terms=round_terms(
                **{name: numbers(used, name) for name in _CONFIGURATION},
                num_experts=numbers(used, "num_experts"),
                experts_per_token=numbers(used, "experts_per_token"),
                curve=curve,
                step_time_s=known_step_s,
            ),
            accept_length=numbers(used, "accept_length"),
            baseline_deficit=baselines.deficit(rate, batch, context),
            measured_share=share[usable],
            configuration=configuration,
            run=run,
            workload=np.array([named[one.workload] for one in runs], dtype=np.intp)[run],
        ),
        log_speedup=np.log(numbers(used, "output_tokens_per_s") / rate),
        spread_log_sd=np.hypot(np.nan_to_num(numbers(used, "spread")), _counted_log_sd(used)),
        configurations=configurations,
        runs=runs,
        frame=used,
        as_measured=frame.loc[usable],
        num_contradicted=int(contradicted[usable].sum()),
        baselines=baselines,
        curve=curve,
        experts_known=bool(np.isfinite(numbers(used, "num_experts")).any()),
    )


def _indexed(
    frame: pd.DataFrame, columns: Sequence[str], build: Callable[[Key], _Record]
) -> tuple[tuple[_Record, ...], NDArray[np.intp]]:
    """Distinct records of rows in the order of the rows, and the index of each row's."""
    groups = row_groups(frame, columns)
    firsts = np.unique(groups, return_index=True)[1].tolist()
    records = [build(row_key(frame, row, columns)) for row in firsts]
    at = {record: index for index, record in enumerate(dict.fromkeys(records))}
    return tuple(at), np.array([at[one] for one in records], dtype=np.intp)[groups]


def _configuration(key: Key) -> Configuration:
    """Configuration of a row."""
    steps, topk, tokens, batch, context = (one if isinstance(one, float) else None for one in key)
    return Configuration(
        num_steps=steps,
        topk=topk,
        num_draft_tokens=tokens,
        batch_size=batch,
        context_tokens=context,
    )


def _run(key: Key) -> Run:
    """Run of a row: workload and load, chains and trees apart.

    Measured on SpecBundle, what the baseline of a workload misses is shared by its chains and by its
    trees, but not between the two.
    """
    workload, topk, batch_size, context_tokens = key
    return Run(
        workload=str(workload),
        tree=isinstance(topk, float) and topk > 1,
        batch_size=batch_size if isinstance(batch_size, float) else None,
        context_tokens=context_tokens if isinstance(context_tokens, float) else None,
    )


def _baselines(frame: pd.DataFrame, share: Array) -> Baselines:
    """Every baseline in the points of one system, with the mean non-decode share of its rows.

    From baseline rows and from baseline cells. A throughput per user is one request's; one per GPU is a
    part of a batch that is not stated.
    """
    is_baseline = numbers(frame, "num_steps") == 0
    own, step = numbers(frame, "step_time_ms"), numbers(frame, "baseline_step_time_ms")
    step_s = np.where(is_baseline, own, step) * MILLI
    rate = own_baseline(frame)
    from_rate_s = np.where(
        frame["throughput_scope"].isin(["per_gpu", "relative"]), np.nan, _requests(frame) / rate
    )
    table = frame[["workload", "batch_size", "context_tokens"]].assign(
        tokens_per_s=rate,
        step_time_s=np.where(np.isfinite(step_s), step_s, from_rate_s),
        non_decode_share=share,
    )
    names = list(table.columns[:-1])
    known = table.loc[np.isfinite(rate)].groupby(names, sort=False, dropna=False, as_index=False)
    rows = known["non_decode_share"].mean().itertuples(index=False)
    return Baselines(entries=tuple(Baseline(**row._asdict()) for row in rows))


def with_unit_baselines(frame: pd.DataFrame) -> pd.DataFrame:
    r"""Runs with speculation whose baseline is a unit of time, far below every round of their load.

    .. math:: t_R = \frac{B \tau}{y}

    For points without baselines: nothing says how the steps of two loads compare.
    """
    runs = frame.loc[speculative_rows(frame)].reset_index(drop=True)
    round_s = (
        _requests(runs) * numbers(runs, "accept_length") / numbers(runs, "output_tokens_per_s")
    )
    load = row_groups(runs, ("batch_size", "context_tokens"))
    unit_s = pd.Series(round_s).groupby(load).transform("min").to_numpy() / UNITS_A_ROUND
    rates = np.where(np.isfinite(round_s), _requests(runs) / unit_s, np.nan)
    return runs.assign(baseline_tokens_per_s=rates, baseline_step_time_ms=np.nan, ttft_ms=np.nan)


def _requests(frame: pd.DataFrame) -> Array:
    """Requests whose tokens a throughput counts; 1 where the batch is not stated."""
    batch = np.nan_to_num(numbers(frame, "batch_size"), nan=1.0)
    return np.where(frame["throughput_scope"].isin(["per_user", "relative"]), 1.0, batch)


def measured_share(frame: pd.DataFrame) -> tuple[Array, NDArray[np.bool_]]:
    r"""Non-decode share of each row's baseline from TTFT and output length, NaN where not stated.

    .. math:: f = \frac{t_\text{first}\, y_0}{B\, N}

    It is 0 where the throughput leaves out prefill and idle time: a time to the first token is no part
    of it. A first token that takes the whole request contradicts the throughput, and so does one that
    leaves rounds less than a step, which they had without it: neither is believed. Of the latter it is
    said which rows they are. Where they are most of those that state a time, the throughputs of the table
    are those of decoding alone, whatever their names: the share is 0.
    """
    rate, tokens = numbers(frame, "baseline_tokens_per_s"), numbers(frame, "output_tokens")
    stated = numbers(frame, "ttft_ms") * MILLI * rate / (_requests(frame) * tokens)
    share = np.where((tokens > 1) & (stated < 1.0 - LEAST_DECODE_SHARE), stated, np.nan)
    share[decode_only_rows(frame)] = 0.0
    accept, output = numbers(frame, "accept_length"), numbers(frame, "output_tokens_per_s")
    least = 1.0 - ROUND_COST_NOISE
    decoding = accept * (rate / output - share) / (1.0 - share)
    contradicted = (decoding < least) & (accept * rate / output >= least)
    stating = speculative_rows(frame) & (share > 0.0)
    if contradicted.any() and 2 * contradicted.sum() > stating.sum():
        return np.where(np.isfinite(share) | contradicted, 0.0, np.nan), contradicted
    return np.where(contradicted, np.nan, share), contradicted


def with_expert_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Points with expert counts filled in by target model where they are not stated."""
    missing = np.isnan(numbers(frame, "num_experts"))
    counts = frame[["num_experts", "experts_per_token"]].to_numpy(dtype=np.float64, copy=True)
    for name in set(frame["target_model"][missing]):
        if has_preset(str(name)):
            model = preset(str(name))
            rows = missing & (frame["target_model"] == name).to_numpy()
            counts[rows] = model.num_experts, model.experts_per_token
    return frame.assign(num_experts=counts[:, 0], experts_per_token=counts[:, 1])


def _counted_log_sd(frame: pd.DataFrame) -> Array:
    """Relative standard deviation of each accept length that comes from counted rounds; else 0."""
    counted = zip(frame["full_accuracy"], numbers(frame, "verify_rounds").tolist(), strict=True)
    found = [
        accept_length_log_sd(accuracy, rounds) if isinstance(accuracy, tuple) else 0.0
        for accuracy, rounds in counted
    ]
    return np.array(found, dtype=np.float64)
